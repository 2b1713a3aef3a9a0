//! What a request for texts asks for, and how its answer is written, whether whole or as events.
//!
//! What an answer says depends on the request alone. So texts of one answer take turns in its stream: event t of each comes
//! before event t + 1 of any, whichever the engine had first; and nothing in it tells what the cache held.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use nn_core::infer::{Event, Finish, GenerateOptions, GrammarConstraint, Sampling};

use super::api::ApiError;
use super::calling::{Calling, Calls};
use super::embeddings::Encoding;
use super::fields::{Usage, Values};
use super::logprobs::{Scored, TokenNames, of_chat, of_completion};
use super::responses::Repeated;
use super::wire::{DONE, Json};

/// A route by what its answers look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Completion,
    Chat,
}

/// A text that is to be written.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) prompt: Vec<i32>,
    pub(super) options: GenerateOptions,
    /// What it begins with.
    pub(super) echo: String,
    pub(super) constraint: Option<GrammarConstraint>,
}

/// What is written of texts.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    /// Completions, of texts or of a conversation.
    Completions,
    /// A response, which repeats what it was asked for.
    Response(Box<Repeated>),
    /// Their vectors.
    Vectors(Encoding),
}

/// The texts of a request, not submitted yet.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) form: Form,
    /// The name that the answer bears.
    pub(super) model: String,
    pub(super) texts: Vec<Text>,
    /// Of all prompts, each once, however many texts continue it.
    pub(super) prompt_tokens: usize,
    pub(super) stream: bool,
    pub(super) usage: Usage,
    pub(super) user: Option<String>,
    /// Whether log-probabilities were asked for.
    pub(super) scored: bool,
    /// What is written of them.
    pub(super) reply: Reply,
    /// Where tools may be called.
    pub(super) calling: Option<Calling>,
}

/// Writes an answer in the form of some route.
pub(super) trait Writing: std::fmt::Debug + Send {
    /// Empty where answers have none.
    fn id(&self) -> &str;
    /// Tokens that were written so far.
    fn tokens(&self) -> usize;
    /// What an event of a text adds to the stream.
    fn parts(&mut self, index: usize, event: Event, names: &TokenNames) -> String;
    /// The last of the stream before its end, where it counts tokens.
    fn counts(&self) -> String;
    /// A whole answer, of all events of each text.
    fn whole(&mut self, texts: Vec<Vec<Event>>, names: &TokenNames) -> Result<String, ApiError>;
    /// The end of a stream that failed.
    fn failure(&mut self, error: &ApiError) -> String;
}

/// Writes the answer to a request for completions.
#[derive(Debug)]
pub(super) struct Writer {
    id: String,
    form: Form,
    created: u64,
    model: String,
    prompt_tokens: usize,
    usage: Usage,
    scored: bool,
    calling: Option<Calling>,
    texts: Vec<Written>,
}

/// What has been written of a text.
#[derive(Debug, Default)]
struct Written {
    prompt: Vec<i32>,
    echo: String,
    begun: bool,
    tokens: usize,
    /// Where the next token's text begins, in characters.
    offset: usize,
    calls: Option<Calls>,
}

impl Writer {
    pub(super) fn new(asked: &Asked, id: u128) -> Self {
        let prefix = if asked.form == Form::Chat { "chatcmpl" } else { "cmpl" };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let written = |(index, text): (usize, &Text)| Written {
            prompt: text.prompt.clone(),
            echo: text.echo.clone(),
            calls: asked.calling.as_ref().map(|calling| calling.reader(id, index)),
            ..Written::default()
        };
        Self {
            id: format!("{prefix}-{id:032x}"),
            form: asked.form,
            created: now.as_secs(),
            model: asked.model.clone(),
            prompt_tokens: asked.prompt_tokens,
            usage: asked.usage,
            scored: asked.scored,
            calling: asked.calling.clone(),
            texts: asked.texts.iter().enumerate().map(written).collect(),
        }
    }

    /// Counts the token of an event.
    fn count(&mut self, index: usize, event: &Event) {
        self.texts[index].tokens += usize::from(event.token.is_some());
    }

    /// The tokens of an event that belong to the text, if their log-probabilities were asked for.
    fn scored(&self, index: usize, event: &mut Event) -> Vec<Scored> {
        if !self.scored {
            return Vec::new();
        }
        let prompt = event.prompt_logprobs.take().unwrap_or_default();
        let mut scored: Vec<Scored> = self.texts[index].prompt.iter().copied().zip(prompt).collect();
        if let (Some(token), Some(logprobs)) = (event.token, event.logprobs.take())
            && event.finish != Some(Finish::End)
        {
            scored.push((token, Some(logprobs)));
        }
        scored
    }

    fn logprobs(&mut self, index: usize, names: &TokenNames, scored: &[Scored]) -> Json {
        match self.form {
            _ if !self.scored => Json::Null,
            Form::Completion => of_completion(names, scored, &mut self.texts[index].offset),
            Form::Chat => of_chat(names, scored),
        }
    }

    /// A piece of text as the form has it.
    fn added(&self, text: Json) -> Json {
        if self.form == Form::Chat { Json::object([("content", text)]) } else { text }
    }

    /// What a token adds to the text that is read for calls.
    fn mark(&self, event: &Event) -> &'static str {
        self.calling.as_ref().map(|calling| calling.mark(event.token)).unwrap_or_default()
    }

    /// The reason of a text's end, in OpenAI's words.
    fn reason(&self, index: usize, finish: Finish) -> &'static str {
        match finish {
            Finish::End | Finish::Stop if self.texts[index].calls.as_ref().is_some_and(Calls::any) => "tool_calls",
            Finish::End => Finish::Stop.name(),
            other => other.name(),
        }
    }

    fn piece(&self, index: usize, added: Json, logprobs: Json, finish: Option<&str>) -> Json {
        let name = if self.form == Form::Chat { "delta" } else { "text" };
        choice(index, name, added, logprobs, finish)
    }

    fn chunk(&self, choices: Vec<Json>) -> Json {
        let kind = if self.form == Form::Chat { "chat.completion.chunk" } else { "text_completion" };
        let usage = match self.usage {
            Usage::Nowhere => None,
            Usage::AtTheEnd => Some(Json::Null),
            Usage::Everywhere => Some(self.used()),
        };
        self.head(kind, choices, usage)
    }

    fn head(&self, kind: &str, choices: Vec<Json>, usage: Option<Json>) -> Json {
        let created = Json::Integer(self.created);
        let Json::Object(mut head) = Json::object([
            ("id", self.id.as_str().into()),
            ("object", kind.into()),
            ("created", created),
            ("model", self.model.as_str().into()),
            ("choices", Json::List(choices)),
        ]) else {
            return Json::Null;
        };
        head.extend(usage.map(|usage| ("usage".to_owned(), usage)));
        Json::Object(head)
    }

    fn used(&self) -> Json {
        let written = self.tokens();
        Json::object([
            ("prompt_tokens", self.prompt_tokens.into()),
            ("completion_tokens", written.into()),
            ("total_tokens", (self.prompt_tokens + written).into()),
        ])
    }
}

impl Writing for Writer {
    fn id(&self) -> &str {
        &self.id
    }

    fn tokens(&self) -> usize {
        self.texts.iter().map(|text| text.tokens).sum()
    }

    fn parts(&mut self, index: usize, mut event: Event, names: &TokenNames) -> String {
        self.count(index, &event);
        let mut parts = Vec::new();
        let mut text = std::mem::take(&mut event.text) + self.mark(&event);
        if !std::mem::replace(&mut self.texts[index].begun, true) {
            if self.form == Form::Chat {
                let content = if self.calling.is_some() { Json::Null } else { "".into() };
                let delta = Json::object([("role", "assistant".into()), ("content", content)]);
                parts.push(self.piece(index, delta, Json::Null, None));
            }
            text.insert_str(0, &std::mem::take(&mut self.texts[index].echo));
        }
        let scored = self.scored(index, &mut event);
        if !text.is_empty() || !scored.is_empty() {
            let mut logprobs = if scored.is_empty() { Json::Null } else { self.logprobs(index, names, &scored) };
            let mut all = match &mut self.texts[index].calls {
                Some(calls) => calls.deltas(&text),
                None => vec![self.added(Json::Text(text))],
            };
            if all.is_empty() && !scored.is_empty() {
                all.push(self.added("".into()));
            }
            // They come with the first.
            parts.extend(all.into_iter().map(|added| {
                let logprobs = std::mem::replace(&mut logprobs, Json::Null);
                self.piece(index, added, logprobs, None)
            }));
        }
        if let Some(finish) = event.finish {
            let rest = self.texts[index].calls.as_mut().map(Calls::last_deltas).unwrap_or_default();
            parts.extend(rest.into_iter().map(|added| self.piece(index, added, Json::Null, None)));
            let nothing = if self.form == Form::Chat { Json::object([]) } else { "".into() };
            parts.push(self.piece(index, nothing, Json::Null, Some(self.reason(index, finish))));
        }
        parts.into_iter().map(|part| self.chunk(vec![part]).event()).collect()
    }

    fn counts(&self) -> String {
        if self.usage == Usage::Nowhere {
            return String::new();
        }
        let Json::Object(mut chunk) = self.chunk(Vec::new()) else { return String::new() };
        if let Some((_, usage)) = chunk.last_mut() {
            *usage = self.used();
        }
        Json::Object(chunk).event()
    }

    fn whole(&mut self, texts: Vec<Vec<Event>>, names: &TokenNames) -> Result<String, ApiError> {
        let mut choices = Vec::new();
        for (index, events) in texts.into_iter().enumerate() {
            let mut text = std::mem::take(&mut self.texts[index].echo);
            let (mut scored, mut finish) = (Vec::new(), None);
            for mut event in events {
                self.count(index, &event);
                text += &event.text;
                text += self.mark(&event);
                finish = event.finish;
                scored.extend(self.scored(index, &mut event));
            }
            let logprobs = self.logprobs(index, names, &scored);
            let (name, added) = if let Some(calls) = &mut self.texts[index].calls {
                ("message", calls.message(&text))
            } else if self.form == Form::Chat {
                let role = ("role", "assistant".into());
                ("message", Json::object([role, ("content", Json::Text(text)), ("refusal", Json::Null)]))
            } else {
                ("text", Json::Text(text))
            };
            let finish = finish.map(|finish| self.reason(index, finish));
            choices.push(choice(index, name, added, logprobs, finish));
        }
        let kind = if self.form == Form::Chat { "chat.completion" } else { "text_completion" };
        Ok(self.head(kind, choices, Some(self.used())).text())
    }

    fn failure(&mut self, error: &ApiError) -> String {
        format!("data: {}\n\n{DONE}", error.body())
    }
}

/// A choice, whose text or message or delta is called `name`.
fn choice(index: usize, name: &str, added: Json, logprobs: Json, finish: Option<&str>) -> Json {
    Json::object([("index", index.into()), (name, added), ("logprobs", logprobs), ("finish_reason", finish.into())])
}

/// How each of the `n` texts of a prompt is drawn.
pub(super) fn samplings(values: &Values) -> Vec<Sampling> {
    let number = |name| values.number(name).unwrap_or_default();
    let top_k = values.integer("top_k").filter(|k| *k > 0).map(|k| i32::try_from(k).unwrap_or(i32::MAX));
    let bias = values.bias("logit_bias").unwrap_or_default();
    let logit_bias: BTreeMap<i32, f64> =
        bias.into_iter().filter_map(|(token, bias)| Some((i32::try_from(token).ok()?, bias))).collect();
    let seed = values.integer("seed").unwrap_or_default();
    let sampling = |number_of: i64| Sampling {
        temperature: number("temperature"),
        top_k,
        top_p: values.number("top_p"),
        min_p: values.number("min_p"),
        seed: seed.wrapping_add(number_of),
        repetition_penalty: number("repetition_penalty"),
        frequency_penalty: number("frequency_penalty"),
        presence_penalty: number("presence_penalty"),
        logit_bias: logit_bias.clone(),
    };
    (0..values.integer("n").unwrap_or(1)).map(sampling).collect()
}

/// Refuses more texts at once than a server ever takes, before any of them is looked into.
pub(super) fn check_choices(choices: usize, places: usize) -> Result<(), ApiError> {
    if choices > places {
        return Err(ApiError::new("too_many_choices", &[("choices", &choices), ("places", &places)]));
    }
    Ok(())
}

/// Refuses a bias of a token that is not in the vocabulary.
pub(super) fn check_bias(values: &Values, vocab: usize) -> Result<(), ApiError> {
    let bias = values.bias("logit_bias").unwrap_or_default();
    match bias.into_iter().find(|(token, _)| *token >= vocab as i64) {
        None => Ok(()),
        Some((token, _)) => {
            Err(ApiError::named("unknown_token", &format!("logit_bias.{token}"), &[("most", &(vocab - 1))]))
        }
    }
}

/// Refuses a prompt that is empty or longer than the context.
pub(super) fn check_length(tokens: usize, context: usize, param: &str) -> Result<(), ApiError> {
    if tokens == 0 {
        return Err(ApiError::named("empty_prompt", param, &[]));
    }
    if tokens > context {
        return Err(ApiError::of("context_length_exceeded", param, &[("tokens", &tokens), ("context", &context)]));
    }
    Ok(())
}
