//! `nncuda-rs generate`: text, or token ids, from a trained model, as they come.

mod contiguous;
pub(crate) mod output;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use nn_core::format::{present, read_json};
use nn_core::infer::{
    CacheFormat, EngineOptions, GenerateOptions, LanguageModel, Place, Prompt, Sampling, USUAL_CONTEXT,
};
use nn_core::model::{Adapter, Precision, StoredModel};
use nn_core::tokenizer::Encoding;
use nn_core::train::resolve_checkpoint;
use nn_core::{Error, Result};

use crate::failure::Failure;
use crate::flags::{DeviceFlags, precision};
use crate::paths;
pub(crate) use contiguous::checkpoint_ids;

/// Tokens that are written unless more are asked for.
const USUAL_TOKENS: usize = 128;

/// Continue PROMPT ("-" reads it from standard input) with MODEL, and write the text as it is generated.
///
/// MODEL is a GGUF file, a Hugging Face folder (Llama, Qwen, Phi and others), a checkpoint, or the folder of a run.
///
/// Several prompts run together; their texts are written in order, separated by a line "---".
///
/// With --ids, PROMPT is token ids separated by spaces or commas, which the model reads unchanged, and the output is
/// the ids that follow, on one line, separated by spaces; no id ends it early.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The model, unless given with --model, and prompts.
    #[arg(value_names = ["MODEL", "PROMPT"], num_args = 0..)]
    arguments: Vec<String>,
    /// The model; all arguments are then prompts.
    #[arg(long, value_name = "PATH")]
    model: Option<String>,
    /// A prompt; may be repeated, and all run together.
    #[arg(long = "prompt", value_name = "TEXT", allow_hyphen_values = true)]
    prompts: Vec<String>,
    /// Maximum number of tokens to write.  [default: 128, or less if the model's context leaves less]
    #[arg(long, value_name = "INTEGER")]
    max_tokens: Option<usize>,
    /// Always pick the most likely token.
    #[arg(long)]
    greedy: bool,
    #[command(flatten)]
    drawing: DrawingFlags,
    /// PROMPT and output are token ids; no tokenizer is needed.
    #[arg(long)]
    ids: bool,
    #[command(flatten)]
    engine: EngineFlags,
    #[command(flatten)]
    adapter: AdapterFlag,
    /// Run a checkpoint by the layers that train, over a contiguous cache.
    #[arg(long)]
    contiguous: bool,
    /// With --contiguous: the precision to compute in; weights and cache take half the memory in bf16 and f16.
    /// [default: f32]
    #[arg(long, value_name = "NAME", value_parser = precision())]
    precision: Option<Precision>,
    /// For a run, use the checkpoint with the lowest held-out loss instead of the last.
    #[arg(long)]
    best: bool,
    #[command(flatten)]
    device: DeviceFlags,
}

/// How tokens are drawn.
#[derive(Args, Debug)]
struct DrawingFlags {
    /// Sampling temperature; 0 is the same as --greedy.
    #[arg(long, value_name = "FLOAT", default_value = "1.0", value_parser = at_least_zero)]
    #[arg(allow_negative_numbers = true)]
    temperature: f64,
    /// Sample only from the K most likely tokens.
    #[arg(long, value_name = "INTEGER", value_parser = clap::value_parser!(i64).range(1..))]
    #[arg(allow_negative_numbers = true)]
    top_k: Option<i64>,
    /// Sample only from the most likely tokens that make up this share of the probability.
    #[arg(long, value_name = "FLOAT", value_parser = share, allow_negative_numbers = true)]
    top_p: Option<f64>,
    #[command(flatten)]
    logits: LogitFlags,
    /// The same seed gives the same text. Of several prompts, prompt i uses seed + i.
    #[arg(long, value_name = "INTEGER", default_value = "0", allow_negative_numbers = true)]
    seed: i64,
}

impl DrawingFlags {
    /// The options that they make.
    fn sampling(&self, greedy: bool) -> std::result::Result<Sampling, Failure> {
        self.logits.sampling(Sampling {
            temperature: if greedy { 0.0 } else { self.temperature },
            top_k: self.top_k.map(most_likely),
            top_p: self.top_p,
            seed: self.seed,
            ..Sampling::default()
        })
    }
}

/// A number of tokens as kernels take it, which none is larger than.
pub(crate) fn most_likely(k: i64) -> i32 {
    i32::try_from(k).unwrap_or(i32::MAX)
}

/// What is done to logits before tokens are drawn, and min_p.
#[derive(Args, Debug)]
pub(crate) struct LogitFlags {
    /// Sample only from tokens at least this many times as likely as the most likely one.
    #[arg(long, value_name = "FLOAT", value_parser = zero_to_one, allow_negative_numbers = true)]
    min_p: Option<f64>,
    /// Subtract X from the logit of a token that was written before.
    #[arg(long, value_name = "X", default_value = "0.0", allow_negative_numbers = true)]
    presence_penalty: f64,
    /// Subtract X from the logit of a token for each time that it was written.
    #[arg(long, value_name = "X", default_value = "0.0", allow_negative_numbers = true)]
    frequency_penalty: f64,
    /// Make tokens of the prompt and of what was written less likely: X above 1, such as 1.1, divides their logits.
    #[arg(long, value_name = "X", default_value = "1.0", allow_negative_numbers = true)]
    repetition_penalty: f64,
    /// Add BIAS to the logit of the token ID; may be repeated.
    #[arg(long, value_name = "ID=BIAS", value_parser = bias)]
    logit_bias: Vec<(i32, f64)>,
}

impl LogitFlags {
    /// The options that they add to others, all of which are checked.
    pub(crate) fn sampling(&self, others: Sampling) -> std::result::Result<Sampling, Failure> {
        let sampling = Sampling {
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            logit_bias: self.logit_bias.iter().copied().collect(),
            ..others
        };
        sampling.check().map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(sampling)
    }
}

/// How the inference engine runs.
#[derive(Args, Debug, PartialEq)]
#[allow(rustdoc::broken_intra_doc_links, reason = "this is the command's help, where brackets are brackets")]
pub(crate) struct EngineFlags {
    /// The context length.  [default: the model's, at most 8192]
    #[arg(long, value_name = "INTEGER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) context: Option<u32>,
    /// Format of the cached keys and values.
    #[arg(long, value_name = "NAME", default_value = "f16")]
    #[arg(value_parser = PossibleValuesParser::new(CacheFormat::NAMES).try_map(|name| name.parse::<CacheFormat>()))]
    pub(crate) cache_format: CacheFormat,
    /// On a CPU: copy the weights into memory, which is faster to read, or use the mapped file; auto: copy if memory allows.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    #[arg(value_parser = PossibleValuesParser::new(Place::NAMES).try_map(|name| name.parse::<Place>()))]
    pub(crate) weights: Place,
    /// Print tokens and bytes per second to standard error at the end.
    #[arg(long)]
    pub(crate) stats: bool,
}

impl EngineFlags {
    /// Without flags.
    const USUAL: Self = Self { context: None, cache_format: CacheFormat::F16, weights: Place::Auto, stats: false };
}

/// What is added to the weights of a model.
#[derive(Args, Debug)]
pub(crate) struct AdapterFlag {
    /// A LoRA adapter of MODEL: a folder of PEFT, or a GGUF file; the model's weights stay as they are stored.
    #[arg(long, value_name = "PATH")]
    adapter: Option<String>,
}

impl AdapterFlag {
    /// Where it is, which is a path that exists.
    pub(crate) fn path(&self) -> std::result::Result<Option<PathBuf>, Failure> {
        let path = self.adapter.as_deref().map(paths::file_or_folder).transpose();
        path.map_err(|problem| Failure::Usage(format!("--adapter: {problem}")))
    }
}

pub(crate) fn at_least_zero(text: &str) -> std::result::Result<f64, String> {
    let wrong = || format!("'{text}' is not a number, at least 0");
    text.parse().ok().filter(|number| *number >= 0.0).ok_or_else(wrong)
}

fn zero_to_one(text: &str) -> std::result::Result<f64, String> {
    let wrong = || format!("'{text}' is not a number from 0 to 1");
    text.parse().ok().filter(|number| (0.0..=1.0).contains(number)).ok_or_else(wrong)
}

fn bias(text: &str) -> std::result::Result<(i32, f64), String> {
    let pair = text.split_once('=').and_then(|(token, bias)| {
        let digits = token.bytes().all(|digit| digit.is_ascii_digit());
        Some((token.parse().ok().filter(|_| digits)?, bias.parse().ok()?))
    });
    pair.ok_or_else(|| format!("'{text}' is not ID=BIAS, such as 42=-100"))
}

pub(crate) fn share(text: &str) -> std::result::Result<f64, String> {
    let wrong = || format!("'{text}' is not a number above 0, at most 1");
    text.parse().ok().filter(|number| *number > 0.0 && *number <= 1.0).ok_or_else(wrong)
}

pub(crate) fn run(arguments: Arguments) -> std::result::Result<(), Failure> {
    let Arguments { engine, contiguous, ids, .. } = arguments;
    let (model, prompts) = model_and_prompts(arguments.model, arguments.prompts, arguments.arguments)?;
    let usage = |problem: &str| Err(Failure::Usage(problem.into()));
    let path = paths::file_or_folder(&model).map_err(|problem| Failure::Usage(format!("MODEL: {problem}")))?;
    let adapter = arguments.adapter.path()?;
    if contiguous && (engine != EngineFlags::USUAL || adapter.is_some() || prompts.len() > 1) {
        return usage(
            "--contiguous takes one prompt, and none of --context, --cache-format, --weights, --adapter and --stats",
        );
    }
    if contiguous && !is_trained(&path) {
        return usage("--contiguous is for checkpoints, folders of runs and Mixtral folders");
    }
    if !contiguous && arguments.precision.is_some() {
        return usage("--precision needs --contiguous; the inference engine computes in f32");
    }
    let sampling = arguments.drawing.sampling(arguments.greedy)?;
    let path = if path.is_dir() { resolve_checkpoint(&path, arguments.best)? } else { path };
    let prompts = prompts.into_iter().map(from_input).collect::<io::Result<Vec<String>>>()?;
    if let [prompt] = &prompts[..]
        && contiguous
    {
        let precision = arguments.precision.unwrap_or_default();
        let (most, device) = (arguments.max_tokens, &arguments.device);
        return contiguous::run(&contiguous::Job { path, prompt, ids, most, sampling, precision, device });
    }
    let start = Instant::now();
    let stored = StoredModel::open(&path)?;
    let adapter = adapter.map(|path| Adapter::open(&path, stored.config())).transpose()?;
    let (config, tokenizer) = (stored.config().clone(), if ids { None } else { stored.tokenizer()? });
    let encode = |text: &str| match &tokenizer {
        Some(tokenizer) => tokenizer.encode(text, Encoding { begin: tokenizer.adds_begin(), special: false }),
        None => Err(no_tokenizer(&path)),
    };
    let given = prompts.iter().map(|prompt| prompt_ids(prompt, ids, config.vocab_size, encode));
    let given = given.collect::<std::result::Result<Vec<Vec<i32>>, Failure>>()?;
    let length = given.iter().map(Vec::len).max().unwrap_or(0);
    let asked = engine.context.map(|context| context as usize);
    let reach = asked.unwrap_or(config.context.min(USUAL_CONTEXT).max(config.extended_context));
    let most = arguments.max_tokens.unwrap_or_else(|| USUAL_TOKENS.min((reach + 1).saturating_sub(length)));
    // As over a contiguous cache: the rotary embedding is stretched where a text needs it.
    let stretched = config.extended_context > config.context;
    let needed = config.context.max((length + most).saturating_sub(1)).min(config.extended_context);
    let options = EngineOptions {
        context: asked.or_else(|| stretched.then_some(needed)),
        cache_format: engine.cache_format,
        max_batch: given.len().min(EngineOptions::default().max_batch),
        weights: engine.weights,
        adapter: adapter.map(Arc::new),
        ..EngineOptions::default()
    };
    let model = LanguageModel::new(stored, &arguments.device.open()?, &options)?;
    let loaded = start.elapsed();
    let options = GenerateOptions {
        max_new_tokens: Some(most),
        sampling,
        end_ids: ids.then(Vec::new),
        ..GenerateOptions::default()
    };
    let count = given.len();
    let first = output::write(model.generate_all(given.into_iter().map(Prompt::Ids), &options)?, count, ids)?;
    if engine.stats {
        output::write_statistics(&model, loaded, first)?;
    }
    Ok(())
}

/// A prompt, or what the standard input has in its place.
fn from_input(prompt: String) -> io::Result<String> {
    if prompt != "-" {
        return Ok(prompt);
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

/// Whether a path may be a model that `MoETransformer` is.
fn is_trained(path: &Path) -> bool {
    if path.is_file() {
        return false;
    }
    // What is wrong is for the reader to say.
    let Ok(folder) = resolve_checkpoint(path, false) else { return true };
    let kind = || read_json(&folder.join("config.json"));
    present(&folder.join("training.json"))
        || kind().map_or(true, |config| config.get("model_type").is_some_and(|kind| kind.as_text() == Some("mixtral")))
}

/// Model and prompts, from flags and arguments.
fn model_and_prompts(
    model: Option<String>,
    mut prompts: Vec<String>,
    arguments: Vec<String>,
) -> std::result::Result<(String, Vec<String>), Failure> {
    let wrong = |problem: &str| Failure::Usage(problem.into());
    let mut arguments = arguments.into_iter();
    let model = model.or_else(|| arguments.next());
    let model = model.ok_or_else(|| wrong("there is no MODEL: name one as the first argument or with --model"))?;
    prompts.extend(arguments);
    if prompts.is_empty() {
        return Err(wrong("there is no PROMPT: give one as an argument or with --prompt"));
    }
    Ok((model, prompts))
}

/// That a model has nothing to read text with.
pub(crate) fn no_tokenizer(path: &Path) -> Error {
    Error::missing(path, "holds no tokenizer, so it cannot read text; --ids takes token ids")
}

/// The ids of a prompt: those that it names, between spaces or commas, or those of its text.
pub(crate) fn prompt_ids(
    prompt: &str,
    named: bool,
    vocab: usize,
    encode: impl FnOnce(&str) -> Result<Vec<i32>>,
) -> std::result::Result<Vec<i32>, Failure> {
    if !named {
        return Ok(encode(prompt)?);
    }
    let words = prompt.split(|character: char| character == ',' || character.is_whitespace());
    let id = |(position, word): (usize, &str)| {
        if !word.bytes().all(|digit| digit.is_ascii_digit()) {
            let problem = "with --ids it must be token ids, separated by spaces or commas";
            return Err(Failure::Usage(format!("PROMPT has '{word}'; {problem}")));
        }
        let outside = || Error::value(format!("PROMPT[{position}] is {word}; it must be 0 to {}", vocab - 1));
        Ok(word.parse().ok().filter(|id: &i32| (*id as usize) < vocab).ok_or_else(outside)?)
    };
    words.filter(|word| !word.is_empty()).enumerate().map(id).collect()
}
