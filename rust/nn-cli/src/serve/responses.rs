//! How the answer of /v1/responses is written, the newer of OpenAI's forms, of which this server keeps nothing.
//! (<https://www.openresponses.org/specification>, whose stateless part this is)

use std::time::{SystemTime, UNIX_EPOCH};

use nn_core::format::{Table, Value};
use nn_core::infer::{Event, Finish};

use super::answers::Writing;
use super::api::ApiError;
use super::calling::Calling;
use super::fields::Values;
use super::logprobs::{TokenNames, entries_of};
use super::output_items::{Change, OutputItems};
use super::tools::{Tool, Tools};
use super::wire::{DONE, Json};

/// Writes a response: its bytes depend on the request alone, but for ids and times.
#[derive(Debug)]
pub(super) struct ResponseWriter {
    id: String,
    created: u64,
    model: String,
    prompt_tokens: usize,
    repeated: Repeated,
    /// Events that were written.
    events: usize,
    tokens: usize,
    calling: Option<Calling>,
    output: OutputItems,
}

/// What a response repeats of its request.
#[derive(Clone, Debug)]
pub(super) struct Repeated {
    instructions: Option<String>,
    max_output_tokens: Option<i64>,
    user: Option<String>,
    top_logprobs: i64,
    numbers: [(&'static str, f32); 4],
    format: Json,
    tools: Vec<Json>,
    tool_choice: Value,
    parallel: bool,
    scored: bool,
}

impl Repeated {
    /// `format` is that of the request's `text`; `tools` are those that the model may call.
    pub(super) fn new(values: &Values, format: Option<&Table>, tools: Option<&Tools>, scored: bool) -> Self {
        let numbers = ["temperature", "top_p", "presence_penalty", "frequency_penalty"];
        Self {
            instructions: values.text("instructions"),
            max_output_tokens: values.integer("max_output_tokens"),
            user: values.text("user"),
            top_logprobs: values.integer("top_logprobs").unwrap_or_default(),
            numbers: numbers.map(|name| (name, values.number(name).unwrap_or_default() as f32)),
            format: shown(format),
            tools: tools.map(|tools| tools.offered.iter().map(shown_tool).collect()).unwrap_or_default(),
            tool_choice: tools
                .map_or_else(|| "none".into(), |_| values.choice("tool_choice").unwrap_or_else(|| "auto".into())),
            parallel: values.flag("parallel_tool_calls"),
            scored,
        }
    }
}

impl ResponseWriter {
    pub(super) fn new(
        repeated: Repeated,
        calling: Option<Calling>,
        model: &str,
        prompt_tokens: usize,
        id: u128,
    ) -> Self {
        let calls = calling.as_ref().map(|calling| calling.reader(id, 0));
        Self {
            id: format!("resp_{id:032x}"),
            output: OutputItems::new(id, calls),
            calling,
            created: now(),
            model: model.to_owned(),
            prompt_tokens,
            repeated,
            events: 0,
            tokens: 0,
        }
    }

    /// Takes an event: what it changes by its text, and the log-probabilities of a token that belongs to it.
    fn take(&mut self, mut event: Event, names: &TokenNames) -> Vec<Change> {
        self.tokens += usize::from(event.token.is_some());
        let mut added = Vec::new();
        if let (Some(token), Some(logprobs)) = (event.token, event.logprobs.take())
            && self.repeated.scored
            && event.finish != Some(Finish::End)
        {
            added = entries_of(names, &[(token, Some(logprobs))]);
        }
        let mark = self.calling.as_ref().map(|calling| calling.mark(event.token)).unwrap_or_default();
        self.output.push(&(event.text + mark), added)
    }

    /// The events before the first of the text.
    fn beginning(&mut self) -> String {
        let mut out = String::new();
        for kind in ["response.created", "response.in_progress"] {
            let response = self.resource("in_progress", &[], Json::Null, Json::Null);
            out += &self.event(kind, vec![("response", response)]);
        }
        let changes = self.output.begin();
        out + &self.events(changes)
    }

    fn events(&mut self, changes: Vec<Change>) -> String {
        changes.into_iter().map(|(kind, more)| self.event(kind, more)).collect()
    }

    fn event(&mut self, kind: &str, more: Vec<(&str, Json)>) -> String {
        let mut value = vec![("type".to_owned(), kind.into()), ("sequence_number".to_owned(), self.events.into())];
        value.extend(more.into_iter().map(|(name, one)| (name.to_owned(), one)));
        self.events += 1;
        format!("event: {kind}\n{}", Json::Object(value).event())
    }

    /// The response with all of its items.
    fn finished(&self, finish: Finish) -> Json {
        // An answer does not tell what the cache held.
        let [of_input, of_output] = ["cached_tokens", "reasoning_tokens"].map(|name| Json::object([(name, 0.into())]));
        let usage = Json::object([
            ("input_tokens", self.prompt_tokens.into()),
            ("input_tokens_details", of_input),
            ("output_tokens", self.tokens.into()),
            ("output_tokens_details", of_output),
            ("total_tokens", (self.prompt_tokens + self.tokens).into()),
        ]);
        self.resource(status(finish), self.output.done(), Json::Null, usage)
    }

    /// The response as it is now, with what it was asked for.
    fn resource(&self, status: &str, output: &[Json], error: Json, usage: Json) -> Json {
        let completed = if status == "completed" { Json::Integer(now()) } else { Json::Null };
        let details = match status {
            "incomplete" => Json::object([("reason", "max_output_tokens".into())]),
            _ => Json::Null,
        };
        let repeated = &self.repeated;
        let [temperature, top_p, presence_penalty, frequency_penalty] =
            repeated.numbers.map(|(name, number)| (name, Json::Float(number)));
        Json::object([
            ("id", self.id.as_str().into()),
            ("object", "response".into()),
            ("created_at", Json::Integer(self.created)),
            ("completed_at", completed),
            ("status", status.into()),
            ("error", error),
            ("incomplete_details", details),
            ("instructions", repeated.instructions.as_deref().into()),
            ("max_output_tokens", repeated.max_output_tokens.map_or(Json::Null, Json::Signed)),
            ("model", self.model.as_str().into()),
            ("output", Json::List(output.to_vec())),
            ("previous_response_id", Json::Null),
            ("reasoning", Json::Null),
            ("text", Json::object([("format", repeated.format.clone())])),
            ("tools", Json::List(repeated.tools.clone())),
            ("tool_choice", Json::Given(repeated.tool_choice.clone())),
            ("parallel_tool_calls", Json::Bool(repeated.parallel)),
            ("max_tool_calls", Json::Null),
            temperature,
            top_p,
            presence_penalty,
            frequency_penalty,
            ("top_logprobs", Json::Signed(repeated.top_logprobs)),
            ("truncation", "disabled".into()),
            ("store", Json::Bool(false)),
            ("background", Json::Bool(false)),
            ("service_tier", "default".into()),
            ("metadata", Json::object([])),
            ("user", repeated.user.as_deref().into()),
            ("safety_identifier", Json::Null),
            ("prompt_cache_key", Json::Null),
            ("usage", usage),
        ])
    }
}

impl Writing for ResponseWriter {
    fn id(&self) -> &str {
        &self.id
    }

    fn tokens(&self) -> usize {
        self.tokens
    }

    fn parts(&mut self, _: usize, event: Event, names: &TokenNames) -> String {
        let mut out = if self.events == 0 { self.beginning() } else { String::new() };
        let finish = event.finish;
        let changes = self.take(event, names);
        out += &self.events(changes);
        if let Some(finish) = finish {
            let changes = self.output.end(status(finish));
            out += &self.events(changes);
            let response = self.finished(finish);
            out += &self.event(&format!("response.{}", status(finish)), vec![("response", response)]);
        }
        out
    }

    fn counts(&self) -> String {
        String::new()
    }

    fn whole(&mut self, texts: Vec<Vec<Event>>, names: &TokenNames) -> Result<String, ApiError> {
        self.output.begin();
        let mut finish = None;
        for event in texts.into_iter().flatten() {
            finish = event.finish;
            self.take(event, names);
        }
        let finish = finish.unwrap_or(Finish::Cancelled);
        self.output.end(status(finish));
        Ok(self.finished(finish).text())
    }

    fn failure(&mut self, error: &ApiError) -> String {
        let [code, message] = [("code", Json::from(error.code)), ("message", error.sentence.as_str().into())];
        let whole = Json::object([
            ("type", error.kind.into()),
            code.clone(),
            message.clone(),
            ("param", error.param.as_deref().into()),
        ]);
        let failed = self.resource("failed", &[], Json::object([code, message]), Json::Null);
        self.event("error", vec![("error", whole)]) + &self.event("response.failed", vec![("response", failed)]) + DONE
    }
}

fn status(finish: Finish) -> &'static str {
    if matches!(finish, Finish::End | Finish::Stop) { "completed" } else { "incomplete" }
}

/// A function as responses have it.
fn shown_tool(tool: &Tool) -> Json {
    Json::object([
        ("type", "function".into()),
        ("name", tool.name.as_str().into()),
        ("description", tool.description.as_deref().into()),
        ("parameters", tool.parameters.clone().map_or(Json::Null, |parameters| Json::Given(parameters.into()))),
        ("strict", Json::Bool(tool.strict)),
    ])
}

/// A format as responses have it: without its schema, as Open Responses wants.
fn shown(format: Option<&Table>) -> Json {
    let entry = |name| format.and_then(|format| format.get(name));
    let text = |name| entry(name).and_then(Value::as_text);
    let kind = text("type").unwrap_or("text");
    if kind != "json_schema" {
        return Json::object([("type", kind.into())]);
    }
    Json::object([
        ("type", kind.into()),
        ("name", text("name").unwrap_or_default().into()),
        ("description", text("description").into()),
        ("schema", Json::Null),
        ("strict", Json::Bool(entry("strict") == Some(&Value::Bool(true)))),
    ])
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use nn_core::format::{Value, parse_json};

    use super::super::fields::Checker;
    use super::*;

    #[test]
    fn a_stream_that_fails_says_so() {
        let Ok(Value::Table(body)) = parse_json(br#"{"input": "x", "temperature": 0.7}"#) else { panic!("no table") };
        let values = Checker::new("responses", "/v1/responses").check(&body).unwrap();
        let mut writer = ResponseWriter::new(Repeated::new(&values, None, None, false), None, "small", 3, 5);
        writer.beginning();
        let found = writer.failure(&ApiError::new("timeout", &[("seconds", &3)]));
        let parts: Vec<&str> = found.split("\n\n").collect();
        let error = r#"{"type":"error","sequence_number":4,"error":{"type":"timeout_error","code":"timeout","message":"the request took more than 3 s","param":null}}"#;
        assert_eq!((parts[0], parts[2]), (format!("event: error\ndata: {error}").as_str(), "data: [DONE]"));
        assert!(
            parts[1].starts_with("event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":5,")
        );
        assert!(parts[1].contains(r#""status":"failed","error":{"code":"timeout","message":"the request took"#));
        assert!(parts[1].contains(r#""temperature":0.7,"top_p":1,"#) && parts[1].contains(r#""output":[],"#));
    }
}
