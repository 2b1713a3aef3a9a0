//! Bodies as what they ask for: texts of /v1/completions, /v1/chat/completions and /v1/responses, vectors of /v1/embeddings, ids
//! of /tokenize, texts of /detokenize.

use nn_core::Error;
use nn_core::format::{Table, Value};
use nn_core::infer::{GenerateOptions, Grammar, LanguageModel, PLAIN_STOPS, Sampling};
use nn_core::tokenizer::{Encoding, Rendering, TextTokenizer};

use super::answers::{Asked, Form, Reply, Text, check_bias, check_choices, check_length, samplings};
use super::api::{API, ApiError, cut};
use super::calling::{Calling, control_tokens};
use super::constraints::Formats;
use super::embeddings::Encoding as VectorEncoding;
use super::fields::{Checker, GivenInput, GivenPrompt, Usage, Values, refused};
use super::items::input_messages;
use super::messages::{place_of_tools, plain_messages};
use super::names::{Chosen, Names};
use super::responses::Repeated;
use super::tool_calls::{CallForm, call_form};
use super::tools::Tools;
use super::wire::Json;

/// Checks bodies for a model and its adapters by their names, of at most `places` texts each.
#[derive(Debug)]
pub(super) struct Requests {
    model: LanguageModel,
    names: Names,
    places: usize,
    formats: Formats,
    completions: Checker,
    chat: Checker,
    responses: Checker,
    embeddings: Checker,
    tokenize: Checker,
    detokenize: Checker,
}

/// A conversation as the model reads it.
struct Conversation {
    prompt: Vec<i32>,
    /// What ends an answer: the request's strings, and the next turn where the model has no template.
    stop: Vec<String>,
    /// How the model calls tools.
    calls: Option<&'static CallForm>,
}

impl Requests {
    pub(super) fn new(model: LanguageModel, names: Names, places: usize) -> Self {
        Self {
            formats: Formats::new(model.clone()),
            model,
            names,
            places,
            completions: Checker::new("completions", "/v1/completions"),
            chat: Checker::new("chat", "/v1/chat/completions"),
            responses: Checker::new("responses", "/v1/responses"),
            embeddings: Checker::new("embeddings", "/v1/embeddings"),
            tokenize: Checker::new("tokenize", "/tokenize"),
            detokenize: Checker::new("detokenize", "/detokenize"),
        }
    }

    /// The texts that continue prompts.
    pub(super) fn completions(&self, body: &Table) -> Result<Asked, ApiError> {
        let values = self.completions.check(body)?;
        let Chosen { name, adapter } = self.chosen(&values)?;
        let usage = stream_usage(&values)?;
        let given = values.prompts("prompt").unwrap_or_default();
        let samplings = samplings(&values);
        check_choices(given.len() * samplings.len(), self.places)?;
        let end_ids = self.end_ids(&values)?;
        check_bias(&values, self.model.config().vocab_size)?;
        let grammar = self.formats.of(values.object("response_format").as_ref())?;
        let logprobs = values.integer("logprobs").map(|count| count as usize);
        let prompts = self.all_prompt_ids(&given, "prompt")?;
        let most = values.integer("max_tokens").unwrap_or_default() as usize;
        let (stop, echoed) = (values.texts("stop").unwrap_or_default(), values.flag("echo"));
        let prompt_tokens = prompts.iter().map(Vec::len).sum();
        let mut texts = Vec::new();
        for (given, prompt) in given.iter().zip(prompts) {
            let echo = if echoed { self.echo(given, &prompt)? } else { String::new() };
            let options = GenerateOptions {
                max_new_tokens: Some(most.min(self.model.room(prompt.len()))),
                stop: stop.clone(),
                end_ids: Some(end_ids.clone()),
                logprobs,
                prompt_logprobs: logprobs.filter(|_| echoed),
                adapter: adapter.clone(),
                ..GenerateOptions::default()
            };
            texts.extend(drawn(&samplings, &prompt, &options, &echo, grammar.as_ref()));
        }
        Ok(asked(Form::Completion, name, texts, prompt_tokens, usage, &values, logprobs.is_some()))
    }

    /// The answers to a conversation.
    pub(super) fn chat(&self, body: &Table) -> Result<Asked, ApiError> {
        let values = self.chat.check(body)?;
        let Chosen { name, adapter } = self.chosen(&values)?;
        let usage = stream_usage(&values)?;
        let samplings = samplings(&values);
        check_choices(samplings.len(), self.places)?;
        let end_ids = self.end_ids(&values)?;
        check_bias(&values, self.model.config().vocab_size)?;
        let format = values.object("response_format");
        let tools = Tools::requested(&values, "response_format", format.as_ref(), false)?;
        let messages = plain_messages(&values.messages("messages").unwrap_or_default())?;
        let place = place_of_tools(&messages);
        let Conversation { prompt, stop, calls } =
            self.conversation(&messages, &values, "messages", tools.as_ref(), place)?;
        let room = self.model.room(prompt.len());
        let length = asked_tokens(&values)?.map_or(room, |most| room.min(most));
        let logprobs = alternatives(&values)?;
        let mut grammar = self.formats.of(format.as_ref())?;
        let mut calling = None;
        if let (Some(tools), Some(form)) = (&tools, calls) {
            (grammar, calling) = self.calling(tools, form, "messages")?;
        }
        let prompt_tokens = prompt.len();
        let options = GenerateOptions {
            max_new_tokens: Some(length),
            stop,
            end_ids: Some(end_ids),
            logprobs,
            adapter,
            ..GenerateOptions::default()
        };
        let texts = drawn(&samplings, &prompt, &options, "", grammar.as_ref()).collect();
        Ok(Asked { calling, ..asked(Form::Chat, name, texts, prompt_tokens, usage, &values, logprobs.is_some()) })
    }

    /// The response to a conversation.
    pub(super) fn responses(&self, body: &Table) -> Result<Asked, ApiError> {
        let values = self.responses.check(body)?;
        let Chosen { name, adapter } = self.chosen(&values)?;
        let end_ids = self.end_ids(&values)?;
        check_bias(&values, self.model.config().vocab_size)?;
        let input = values.input("input").unwrap_or(GivenInput::Items(Vec::new()));
        let format = text_format(&values)?;
        let tools = Tools::requested(&values, "text.format", format.as_ref(), true)?;
        let (messages, about_tools) = input_messages(&input, &values.text("instructions").unwrap_or_default())?;
        let Conversation { prompt, stop, calls } =
            self.conversation(&messages, &values, "input", tools.as_ref(), about_tools)?;
        let room = self.model.room(prompt.len());
        let most = values.integer("max_output_tokens").and_then(|most| usize::try_from(most).ok());
        let top = values.integer("top_logprobs");
        let scored = values.texts("include").is_some_and(|include| !include.is_empty());
        if top.is_some() && !scored {
            return Err(ApiError::named("needs_field", "top_logprobs", &[("other", &"include")]));
        }
        let logprobs = scored.then(|| top.unwrap_or(0) as usize);
        let mut grammar = self.formats.of_text(format.as_ref())?;
        let mut calling = None;
        if let (Some(tools), Some(form)) = (&tools, calls) {
            (grammar, calling) = self.calling(tools, form, "input")?;
        }
        let prompt_tokens = prompt.len();
        let options = GenerateOptions {
            max_new_tokens: Some(most.map_or(room, |most| room.min(most))),
            stop,
            end_ids: Some(end_ids),
            logprobs,
            adapter,
            ..GenerateOptions::default()
        };
        let texts = drawn(&samplings(&values), &prompt, &options, "", grammar.as_ref()).collect();
        let reply = Reply::Response(Box::new(Repeated::new(&values, format.as_ref(), tools.as_ref(), scored)));
        Ok(Asked { reply, calling, ..asked(Form::Chat, name, texts, prompt_tokens, Usage::Nowhere, &values, scored) })
    }

    /// The vectors of texts.
    pub(super) fn embeddings(&self, body: &Table) -> Result<Asked, ApiError> {
        let values = self.embeddings.check(body)?;
        let Chosen { name, adapter } = self.chosen(&values)?;
        let given = values.prompts("input").unwrap_or_default();
        check_choices(given.len(), self.places)?;
        let ids = self.all_prompt_ids(&given, "input")?;
        let (prompt_tokens, user) = (ids.iter().map(Vec::len).sum(), values.text("user"));
        let text = |prompt| Text {
            prompt,
            options: GenerateOptions { embed: true, adapter: adapter.clone(), ..GenerateOptions::default() },
            echo: String::new(),
            constraint: None,
        };
        let encoding = values.text("encoding_format").filter(|format| format == "base64");
        Ok(Asked {
            form: Form::Completion,
            model: name,
            texts: ids.into_iter().map(text).collect(),
            prompt_tokens,
            stream: false,
            usage: Usage::Nowhere,
            user,
            scored: false,
            reply: Reply::Vectors(encoding.map_or(VectorEncoding::Numbers, |_| VectorEncoding::Base64)),
            calling: None,
        })
    }

    /// Messages as the model reads them, whose field has that name. `place` is where they first have something of tools.
    fn conversation(
        &self,
        messages: &[Table],
        values: &Values,
        name: &str,
        tools: Option<&Tools>,
        place: Option<String>,
    ) -> Result<Conversation, ApiError> {
        let tokenizer = self.tokenizer(name)?;
        let template = self.model.chat_template().map_err(|error| template_failed(&error, name))?;
        let calls = call_form(template.text());
        let place = if tools.is_some() { Some("tools".to_owned()) } else { place };
        if let Some(place) = place.filter(|_| calls.is_none()) {
            return Err(ApiError::named("no_tools", &place, &[]));
        }
        let mut how = Rendering::default();
        if let Some(tools) = tools {
            how.variables.set("tools", tools.shown());
        }
        let prompt = template.ids(tokenizer, messages, &how).map_err(|error| template_failed(&error, name))?;
        check_length(prompt.len(), self.model.context(), name)?;
        let mut stop = values.texts("stop").unwrap_or_default();
        stop.extend(PLAIN_STOPS.map(str::to_owned).into_iter().filter(|_| template.is_plain()));
        Ok(Conversation { prompt, stop, calls })
    }

    /// The grammar of texts with calls, and how they are read; `name` is the field of the conversation.
    fn calling(
        &self,
        tools: &Tools,
        form: &'static CallForm,
        name: &str,
    ) -> Result<(Option<Grammar>, Option<Calling>), ApiError> {
        let marks = control_tokens(form, self.tokenizer(name)?).map_err(|error| failed(&error))?;
        let grammar = self.formats.of_calls(tools, form, &marks)?;
        Ok((grammar, Some(Calling::new(tools, form, &marks))))
    }

    /// What the tokenizer_config.json of a folder says: names and ids of special tokens, the chat template (null for a
    /// model without), the class of transformers that such a tokenizer has. `eos_token` is the end that the template
    /// knows, else the first of the ids that end a text.
    pub(super) fn tokenizer_info(&self) -> Result<Json, ApiError> {
        let tokenizer = self.tokenizer("/tokenizer_info")?;
        let template = self.model.chat_template().map_err(|error| failed(&error))?;
        let id = |id: i32| Json::Signed(id.into());
        let name = |id: Option<i32>| Json::from(id.map(|id| tokenizer.piece(id).unwrap_or_default()));
        let ends: Vec<i32> = tokenizer.end_ids().iter().copied().collect();
        let end_ids = match ends[..] {
            [] => Json::Null,
            [one] => id(one),
            _ => Json::List(ends.iter().copied().map(id).collect()),
        };
        let end = if template.end().is_empty() { name(ends.first().copied()) } else { template.end().into() };
        let (begin, pad) = (tokenizer.begin_id(), tokenizer.pad_id());
        Ok(Json::object([
            ("tokenizer_class", tokenizer.transformers_class().into()),
            ("vocab_size", tokenizer.vocab_size().into()),
            ("model_max_length", self.model.context().into()),
            ("add_bos_token", Json::Bool(tokenizer.adds_begin() && begin.is_some())),
            ("add_eos_token", Json::Bool(false)),
            ("bos_token", name(begin)),
            ("eos_token", end),
            ("pad_token", name(pad)),
            ("bos_token_id", begin.map_or(Json::Null, id)),
            ("eos_token_id", end_ids),
            ("pad_token_id", pad.map_or(Json::Null, id)),
            ("chat_template", (!template.is_plain()).then(|| template.text()).into()),
        ]))
    }

    /// The ids of a text, with the room of the model's context.
    pub(super) fn tokenize(&self, body: &Table) -> Result<Json, ApiError> {
        let values = self.tokenize.check(body)?;
        self.chosen(&values)?;
        let tokenizer = self.tokenizer("prompt")?;
        let begin = tokenizer.adds_begin() && values.flag("add_special_tokens");
        let text = values.text("prompt").unwrap_or_default();
        let ids = tokenizer.encode(&text, Encoding { begin, special: false }).map_err(|error| failed(&error))?;
        let list = ids.iter().map(|id| Json::Signed((*id).into())).collect();
        let mut found = vec![
            ("count".to_owned(), ids.len().into()),
            ("max_model_len".to_owned(), self.model.context().into()),
            ("tokens".to_owned(), Json::List(list)),
        ];
        if values.flag("return_token_strs") {
            let names = ids.iter().map(|id| tokenizer.piece(*id).unwrap_or_default().into()).collect();
            found.push(("token_strs".to_owned(), Json::List(names)));
        }
        Ok(Json::Object(found))
    }

    /// The text of ids.
    pub(super) fn detokenize(&self, body: &Table) -> Result<Json, ApiError> {
        let values = self.detokenize.check(body)?;
        self.chosen(&values)?;
        let tokenizer = self.tokenizer("tokens")?;
        let ids = self.checked_ids(&values.ids("tokens").unwrap_or_default(), "tokens")?;
        Ok(Json::object([("prompt", Json::Text(decode(tokenizer, &ids)?))]))
    }

    /// What a request asks for by its model. An error for one that is not there.
    fn chosen(&self, values: &Values) -> Result<Chosen, ApiError> {
        self.names.find(values.text("model").as_deref())
    }

    fn tokenizer(&self, name: &str) -> Result<&TextTokenizer, ApiError> {
        self.model.tokenizer().ok_or_else(|| ApiError::named("no_tokenizer", name, &[]))
    }

    /// The ids that end a text.
    fn end_ids(&self, values: &Values) -> Result<Vec<i32>, ApiError> {
        if values.texts("stop").is_some_and(|stop| !stop.is_empty()) {
            self.tokenizer("stop")?;
        }
        let tokenizer = self.model.tokenizer().filter(|_| !values.flag("ignore_eos"));
        Ok(tokenizer.map(|tokenizer| tokenizer.end_ids().iter().copied().collect()).unwrap_or_default())
    }

    /// The ids of prompts in a field of this name; an error has their number where there are several.
    fn all_prompt_ids(&self, prompts: &[GivenPrompt], name: &str) -> Result<Vec<Vec<i32>>, ApiError> {
        let of = |number: usize| if prompts.len() == 1 { name.to_owned() } else { format!("{name}[{number}]") };
        prompts.iter().enumerate().map(|(number, prompt)| self.prompt_ids(prompt, &of(number))).collect()
    }

    fn prompt_ids(&self, prompt: &GivenPrompt, name: &str) -> Result<Vec<i32>, ApiError> {
        let context = self.model.context();
        match prompt {
            GivenPrompt::Text(text) => {
                let tokenizer = self.tokenizer(name)?;
                let how = Encoding { begin: tokenizer.adds_begin(), special: false };
                let ids = tokenizer.encode(text, how).map_err(|error| failed(&error))?;
                check_length(ids.len(), context, name)?;
                self.checked_ids(&ids.into_iter().map(i128::from).collect::<Vec<_>>(), name)
            }
            GivenPrompt::Ids(ids) => {
                check_length(ids.len(), context, name)?;
                self.checked_ids(ids, name)
            }
        }
    }

    /// Refuses an id that is outside the vocabulary.
    fn checked_ids(&self, ids: &[i128], name: &str) -> Result<Vec<i32>, ApiError> {
        let vocab = self.model.config().vocab_size;
        let one = |(at, id): (usize, &i128)| {
            let known = i32::try_from(*id).ok().filter(|id| usize::try_from(*id).is_ok_and(|id| id < vocab));
            known.ok_or_else(|| {
                let must = API.word("token_id").replace("{most}", &(vocab - 1).to_string());
                ApiError::wrong(&format!("{name}[{at}]"), &Value::Integer(*id), &must)
            })
        };
        ids.iter().enumerate().map(one).collect()
    }

    fn echo(&self, given: &GivenPrompt, prompt: &[i32]) -> Result<String, ApiError> {
        match given {
            GivenPrompt::Text(text) => Ok(text.clone()),
            GivenPrompt::Ids(_) => decode(self.tokenizer("echo")?, prompt),
        }
    }
}

fn asked(
    form: Form,
    model: String,
    texts: Vec<Text>,
    prompt_tokens: usize,
    usage: Usage,
    values: &Values,
    scored: bool,
) -> Asked {
    let (stream, user) = (values.flag("stream"), values.text("user"));
    Asked { form, model, texts, prompt_tokens, stream, usage, user, scored, calling: None, reply: Reply::Completions }
}

/// What a request that was not wrong failed with.
pub(super) fn failed(error: &Error) -> ApiError {
    super::log::message("error", &format!("a request failed: {error}"));
    ApiError::new("internal_error", &[])
}

/// That the chat template failed, or the server.
fn template_failed(error: &Error, name: &str) -> ApiError {
    match error {
        Error::Format { .. } => ApiError::of("template_failed", name, &[("why", error)]),
        _ => failed(error),
    }
}

/// The text of ids; those that the model has beyond its tokenizer have none.
fn decode(tokenizer: &TextTokenizer, ids: &[i32]) -> Result<String, ApiError> {
    let known: Vec<i32> = ids.iter().copied().filter(|id| (*id as usize) < tokenizer.vocab_size()).collect();
    tokenizer.decode(&known).map_err(|error| failed(&error))
}

/// The texts that continue a prompt, one drawn by each sampling.
fn drawn<'a>(
    samplings: &'a [Sampling],
    prompt: &'a [i32],
    options: &'a GenerateOptions,
    echo: &'a str,
    grammar: Option<&'a Grammar>,
) -> impl Iterator<Item = Text> + 'a {
    samplings.iter().map(move |sampling| Text {
        prompt: prompt.to_vec(),
        options: GenerateOptions { sampling: sampling.clone(), ..options.clone() },
        echo: echo.to_owned(),
        constraint: grammar.map(Grammar::constraint),
    })
}

/// Where a stream is to count its tokens.
fn stream_usage(values: &Values) -> Result<Usage, ApiError> {
    match values.usage("stream_options") {
        Some(_) if !values.flag("stream") => {
            Err(ApiError::named("needs_field", "stream_options", &[("other", &"stream")]))
        }
        usage => Ok(usage.unwrap_or(Usage::Nowhere)),
    }
}

/// The `format` of a `text`, if there is one; whoever builds the grammar looks into it.
fn text_format(values: &Values) -> Result<Option<Table>, ApiError> {
    let Some(text) = values.object("text") else { return Ok(None) };
    for (key, value) in text.iter() {
        let name = cut(&format!("text.{key}"));
        match (key, value) {
            ("format" | "verbosity", Value::None) | ("format", Value::Table(_)) => {}
            ("format", _) => return Err(ApiError::wrong(&name, value, API.word("format"))),
            ("verbosity", _) => return Err(refused(&name, value, API.word("short"))),
            _ => return Err(ApiError::unknown(&name, "text")),
        }
    }
    Ok(text.get("format").and_then(Value::as_table).cloned())
}

/// How many likely tokens are to come with each one's log-probability; `None` for no log-probabilities.
fn alternatives(values: &Values) -> Result<Option<usize>, ApiError> {
    let top = values.integer("top_logprobs");
    if values.flag("logprobs") {
        return Ok(Some(top.unwrap_or(0) as usize));
    }
    match top {
        Some(_) => Err(ApiError::named("needs_field", "top_logprobs", &[("other", &"logprobs")])),
        None => Ok(None),
    }
}

/// The most tokens, by either of the names.
fn asked_tokens(values: &Values) -> Result<Option<usize>, ApiError> {
    let [newer, older] = ["max_completion_tokens", "max_tokens"].map(|name| values.integer(name));
    if newer.is_some() && older.is_some() {
        return Err(ApiError::named("both_fields", "max_completion_tokens", &[("other", &"max_tokens")]));
    }
    Ok(newer.or(older).map(|most| usize::try_from(most).unwrap_or(usize::MAX)))
}
