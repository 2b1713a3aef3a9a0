//! `LanguageModel`: a stored model that takes text and gives text, for one prompt or many at once.

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use nn_ffi::Context;
use serde::Serialize;

use super::constraint::Constraint;
use super::engine::{Engine, EngineOptions, check_ids};
use super::events::{Generation, Outbox};
use super::low_rank::number_of;
use super::sampling::Sampling;
use super::scheduler::{Limits, Occupancy, Request, Scheduler, Statistics, check_embedded};
use super::scores::{TokenLogprobs, check_alternatives};
use super::text::StopStrings;
use super::worker::{self, Command};
use crate::error::{Error, Result};
use crate::model::{LlamaConfig, StoredModel};
use crate::tokenizer::{ChatTemplate, Encoding, Rendering, TextTokenizer};

/// What ends an answer of a model without a template: where it would begin the next turn.
pub const PLAIN_STOPS: [&str; 2] = ["\nUser:", "\nAssistant:"];

/// A text, or the ids of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Encoded with the id that begins a text, where the tokenizer adds one.
    Text(String),
    /// Read as they are.
    Ids(Vec<i32>),
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<i32>> for Prompt {
    fn from(ids: Vec<i32>) -> Self {
        Self::Ids(ids)
    }
}

impl From<&[i32]> for Prompt {
    fn from(ids: &[i32]) -> Self {
        Self::Ids(ids.to_vec())
    }
}

/// How a prompt is continued.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// Most tokens to write; by default as many as there is room for in the context. With more than that the oldest text is
    /// dropped.
    pub max_new_tokens: Option<usize>,
    /// How the next token is chosen; by default it is the most likely one.
    pub sampling: Sampling,
    /// Strings before which the text ends.
    pub stop: Vec<String>,
    /// Ids that end the text; by default those of the tokenizer.
    pub end_ids: Option<Vec<i32>>,
    /// How many alternatives, 0 to 20, come with the log-probability of each token, as the model gave them, before any option
    /// of `sampling`; `None`: no log-probabilities.
    pub logprobs: Option<usize>,
    /// The same of the prompt's tokens. The prompt is run as a whole then, even for no new token.
    pub prompt_logprobs: Option<usize>,
    /// Whether the prompt's vector is wanted ([`LanguageModel::embed`]) in place of tokens, of which there must be none.
    pub embed: bool,
    /// The name of one of the model's adapters ([`EngineOptions::adapters`]).
    pub adapter: Option<String>,
}

/// A model, its tokenizer and a cache on a device.
///
/// It is a handle: clones are the same model, and any number of threads may use it. A thread of its own runs the engine, in
/// which the prompts of all are decoded together; a prompt's tokens are the same bits whatever else is generated. It ends with
/// the last handle, which generations have, too.
///
/// ```no_run
/// use nn_core::infer::{EngineOptions, GenerateOptions, LanguageModel};
/// use nn_ffi::{Context, Device};
///
/// # fn main() -> nn_core::Result<()> {
/// let ctx = Context::new(Device::Cpu)?;
/// let model = LanguageModel::load("model.gguf".as_ref(), &ctx, &EngineOptions::default())?;
/// let options = GenerateOptions { max_new_tokens: Some(40), ..GenerateOptions::default() };
/// for event in model.generate("The sea is", &options)? {
///     print!("{}", event?.text);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LanguageModel(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    stored: StoredModel,
    ctx: Context,
    tokenizer: Option<Arc<TextTokenizer>>,
    /// Read when the first conversation asks for it.
    template: OnceLock<ChatTemplate>,
    context: usize,
    adapters: Vec<String>,
    limits: Limits,
    /// `None` once the last handle is being dropped.
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The thread has nothing to do any more, since generations are gone before their handles, and nobody to ask for more.
        drop(self.commands.take());
        // A waker may have dropped the last handle on the thread itself, which ends then without anyone waiting.
        let own = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| !own(thread)) {
            // That it panicked was told to whoever asked it for something.
            let _ = thread.join();
        }
    }
}

impl LanguageModel {
    /// Opens a GGUF file, a Hugging Face folder (Llama, Qwen, Phi and others), a checkpoint or a run of this library.
    ///
    /// # Errors
    ///
    /// [`Error::Format`] for a file that is none of these or wrong, [`Error::Value`] for an option that does not fit the model,
    /// [`Error::Device`] when the device fails.
    pub fn load(path: &Path, ctx: &Context, options: &EngineOptions) -> Result<Self> {
        Self::new(StoredModel::open(path)?, ctx, options)
    }

    /// An opened model on a context.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn new(stored: StoredModel, ctx: &Context, options: &EngineOptions) -> Result<Self> {
        let tokenizer = stored.tokenizer()?.map(Arc::new);
        let engine = Engine::new(&stored, ctx, options)?;
        let (context, limits) = (engine.context(), Limits::of(engine.cache()));
        let adapters = engine.adapters().to_vec();
        let scheduler = Scheduler::new(engine, options.ahead)?;
        let (commands, given) = channel();
        let own = tokenizer.clone();
        let thread = thread::Builder::new()
            .name("nncuda-engine".to_owned())
            .spawn(move || worker::run(scheduler, own.as_ref(), &given))
            .map_err(|error| Error::OutOfMemory(format!("no thread can be made for the engine: {error}")))?;
        let (ctx, commands, thread) = (ctx.clone(), Some(commands), Some(thread));
        let template = OnceLock::new();
        Ok(Self(Arc::new(Handle { stored, ctx, tokenizer, template, context, adapters, limits, commands, thread })))
    }

    /// The opened file or folder.
    pub fn stored(&self) -> &StoredModel {
        &self.0.stored
    }

    /// Sizes and options of the model.
    pub fn config(&self) -> &LlamaConfig {
        self.0.stored.config()
    }

    /// The device.
    pub fn ctx(&self) -> &Context {
        &self.0.ctx
    }

    /// The tokenizer, if the files have one.
    pub fn tokenizer(&self) -> Option<&TextTokenizer> {
        self.0.tokenizer.as_deref()
    }

    /// How many tokens of a sequence attend to one another.
    pub fn context(&self) -> usize {
        self.0.context
    }

    /// The names of the adapters that a prompt may name.
    pub fn adapters(&self) -> &[String] {
        &self.0.adapters
    }

    /// The ids of a prompt as the model reads it: a text with the id that begins one, ids as they are.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for a text without a tokenizer, [`Error::OutOfRange`] for an id outside the vocabulary.
    pub fn encode(&self, prompt: &Prompt) -> Result<Vec<i32>> {
        let ids = match prompt {
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Text(text) => {
                let tokenizer = self.text_tokenizer()?;
                tokenizer.encode(text, Encoding { begin: tokenizer.adds_begin(), special: false })?
            }
        };
        check_ids(&ids, self.config().vocab_size, "ids")?;
        Ok(ids)
    }

    /// How many tokens can be written after a prompt of so many before its beginning drops out of sight.
    pub fn room(&self, prompt: usize) -> usize {
        // The last token drawn is never run.
        (self.0.context + 1).saturating_sub(prompt)
    }

    /// Continues a prompt, and gives every token as it is generated.
    ///
    /// # Errors
    ///
    /// [`Error::Value`], [`Error::OutOfRange`] or [`Error::CacheFull`], before anything runs, for what cannot be done at all.
    pub fn generate(&self, prompt: impl Into<Prompt>, options: &GenerateOptions) -> Result<Generation> {
        self.generate_each(vec![(prompt.into(), options.clone())])
    }

    /// Continues a prompt with tokens that a constraint allows. What the constraint fails with is the last that comes.
    ///
    /// # Errors
    ///
    /// As [`generate`](Self::generate).
    pub fn generate_constrained(
        &self,
        prompt: impl Into<Prompt>,
        options: &GenerateOptions,
        constraint: Box<dyn Constraint>,
    ) -> Result<Generation> {
        let (mut request, stops) = self.request(&prompt.into(), options.clone())?;
        request.constraint = Some(constraint);
        self.begin(vec![(request, stops)])
    }

    /// Continues several prompts together; prompt i draws with seed + i. There may be more of them than are decoded together:
    /// the others wait.
    ///
    /// # Errors
    ///
    /// As [`generate`](Self::generate).
    pub fn generate_all(
        &self,
        prompts: impl IntoIterator<Item = impl Into<Prompt>>,
        options: &GenerateOptions,
    ) -> Result<Generation> {
        let each = |(number, prompt): (usize, _)| {
            let mut options = options.clone();
            options.sampling.seed = options.sampling.seed.wrapping_add(number as i64);
            (Into::into(prompt), options)
        };
        self.generate_each(prompts.into_iter().enumerate().map(each).collect())
    }

    /// Continues several prompts together, each by options of its own.
    ///
    /// # Errors
    ///
    /// As [`generate`](Self::generate).
    pub fn generate_each(&self, prompts: Vec<(Prompt, GenerateOptions)>) -> Result<Generation> {
        self.begin(prompts.into_iter().map(|(prompt, options)| self.request(&prompt, options)).collect::<Result<_>>()?)
    }

    fn request(&self, prompt: &Prompt, options: GenerateOptions) -> Result<(Request, StopStrings)> {
        let (prompt, vocab) = (self.encode(prompt)?, self.config().vocab_size);
        options.sampling.check()?;
        options.sampling.check_ids(vocab)?;
        check_alternatives("logprobs", options.logprobs)?;
        check_alternatives("prompt_logprobs", options.prompt_logprobs)?;
        number_of(&self.0.adapters, options.adapter.as_deref())?;
        if !options.stop.is_empty() && self.0.tokenizer.is_none() {
            return Err(Error::value("stop strings need a tokenizer, which this model lacks"));
        }
        let end_ids = match options.end_ids {
            Some(ids) => {
                check_ids(&ids, vocab, "end_ids")?;
                ids
            }
            None => self.0.tokenizer.iter().flat_map(|tokenizer| tokenizer.end_ids()).copied().collect(),
        };
        let embed = options.embed;
        let room = || if embed { 0 } else { self.room(prompt.len()) };
        let max_new_tokens = options.max_new_tokens.unwrap_or_else(room);
        self.0.limits.check(prompt.len(), max_new_tokens)?;
        let GenerateOptions { sampling, logprobs, prompt_logprobs, adapter, .. } = options;
        let constraint = None;
        let request = Request {
            prompt,
            max_new_tokens,
            sampling,
            end_ids,
            logprobs,
            prompt_logprobs,
            embed,
            constraint,
            adapter,
        };
        check_embedded(&request)?;
        Ok((request, StopStrings::new(options.stop)?))
    }

    fn begin(&self, requests: Vec<(Request, StopStrings)>) -> Result<Generation> {
        let (outbox, generation) = Outbox::pair(self);
        self.ask(Command::Generate(requests, outbox))?;
        Ok(generation)
    }

    /// The continuation of a prompt as a whole.
    ///
    /// # Errors
    ///
    /// As [`generate`](Self::generate), [`Error::Value`] without a tokenizer, and [`Error::Step`] when the device fails.
    pub fn complete(&self, prompt: impl Into<Prompt>, options: &GenerateOptions) -> Result<String> {
        self.text_tokenizer()?;
        self.generate(prompt, options)?.map(|event| event.map(|event| event.text)).collect()
    }

    /// The chat template of the model, or a plain one.
    ///
    /// # Errors
    ///
    /// [`Error::Format`] when the files have one that is none, [`Error::Value`] without a tokenizer.
    pub fn chat_template(&self) -> Result<&ChatTemplate> {
        if let Some(template) = self.0.template.get() {
            return Ok(template);
        }
        let read = self.0.stored.chat_template(self.text_tokenizer()?)?;
        Ok(self.0.template.get_or_init(|| read))
    }

    /// The ids of a conversation up to where the answer begins.
    ///
    /// # Errors
    ///
    /// As [`chat_template`](Self::chat_template), and what [`ChatTemplate::ids`] says.
    pub fn chat_ids<M: Serialize>(&self, messages: &[M]) -> Result<Vec<i32>> {
        let ids = self.chat_template()?.ids(self.text_tokenizer()?, messages, &Rendering::default())?;
        check_ids(&ids, self.config().vocab_size, "ids")?;
        Ok(ids)
    }

    /// The answer to a conversation, in the form that the model's chat template gives it. Each message has `role` ("system",
    /// "user", "assistant") and `content`. The part of the conversation that is still in the cache is not computed again.
    /// A model without a template sees each turn on a line of its own, after its role, and the answer ends where it would
    /// begin the next, unless there are other stop strings.
    ///
    /// # Errors
    ///
    /// As [`chat_ids`](Self::chat_ids) and [`generate`](Self::generate).
    pub fn chat<M: Serialize>(&self, messages: &[M], options: &GenerateOptions) -> Result<Generation> {
        let mut options = options.clone();
        if options.stop.is_empty() && self.chat_template()?.is_plain() {
            options.stop = PLAIN_STOPS.map(str::to_owned).to_vec();
        }
        self.generate(self.chat_ids(messages)?, &options)
    }

    /// The logits after each token of one text, f32 `[tokens, vocab]`: row t predicts the token after t.
    ///
    /// # Errors
    ///
    /// As [`Engine::logits`], and [`Error::Value`] for a text without a tokenizer.
    pub fn logits(&self, prompt: impl Into<Prompt>, adapter: Option<&str>) -> Result<Vec<f32>> {
        let (ids, adapter) = (self.encode(&prompt.into())?, adapter.map(str::to_owned));
        self.answer(|reply| Command::Logits(ids, adapter, reply))?
    }

    /// The log-probability of each token of one text after those before it, with so many of the likeliest tokens in its place, at
    /// most 20; none for the first. The bits are those of `prompt_logprobs`.
    ///
    /// # Errors
    ///
    /// As [`Engine::logprobs`], and [`Error::Value`] for a text without a tokenizer.
    pub fn logprobs(
        &self,
        prompt: impl Into<Prompt>,
        alternatives: usize,
        adapter: Option<&str>,
    ) -> Result<Vec<Option<TokenLogprobs>>> {
        let (ids, adapter) = (self.encode(&prompt.into())?, adapter.map(str::to_owned));
        self.answer(|reply| Command::Logprobs(ids, alternatives, adapter, reply))?
    }

    /// The vector of one prompt, f32 `[hidden_size]`; see [`embed_all`](Self::embed_all).
    ///
    /// # Errors
    ///
    /// As that.
    pub fn embed(&self, prompt: impl Into<Prompt>) -> Result<Vec<f32>> {
        self.embed_all([prompt])?.pop().ok_or_else(ended)
    }

    /// The vector of each prompt, f32 `[hidden_size]`: the mean of the hidden states after the final norm, of all of its tokens,
    /// brought to length 1. So the cosine of two prompts is the dot product of their vectors.
    ///
    /// The prompts run together, beside what else is generated; none of them is taken from the cache. A vector's bits depend on
    /// its prompt alone.
    ///
    /// # Errors
    ///
    /// As [`generate`](Self::generate), and [`Error::Step`] when the device fails.
    pub fn embed_all(&self, prompts: impl IntoIterator<Item = impl Into<Prompt>>) -> Result<Vec<Vec<f32>>> {
        let options = GenerateOptions { embed: true, ..GenerateOptions::default() };
        let mut vectors = Vec::new();
        for event in self.generate_all(prompts, &options)? {
            let event = event?;
            vectors.resize(vectors.len().max(event.prompt + 1), Vec::new());
            // Nobody else has the generation, who could cancel it.
            vectors[event.prompt] = event.embedding.unwrap_or_default();
        }
        Ok(vectors)
    }

    /// What was done so far, of all handles together, and bytes of the weights and of the cache.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when the engine's thread has ended.
    pub fn statistics(&self) -> Result<(Statistics, usize, usize)> {
        self.answer(Command::Statistics)
    }

    /// What is under way now, of all handles together.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when the engine's thread has ended.
    pub fn occupancy(&self) -> Result<Occupancy> {
        self.answer(Command::Occupancy)
    }

    fn text_tokenizer(&self) -> Result<&TextTokenizer> {
        self.tokenizer().ok_or_else(|| {
            let path = self.0.stored.path().display();
            Error::value(format!("{path} has no tokenizer, so it accepts and returns ids only"))
        })
    }

    fn ask(&self, command: Command) -> Result<()> {
        let sent = self.0.commands.as_ref().map(|commands| commands.send(command));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(ended()) }
    }

    fn answer<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T> {
        let (reply, answer) = channel();
        self.ask(command(reply))?;
        answer.recv().map_err(|_| ended())
    }
}

/// What there is to say to those who wait for a thread that has panicked.
pub(super) fn ended() -> Error {
    Error::value("the engine's thread has ended, after a fault of this program; load the model again")
}
