//! `nncuda-rs generate`: text, or token ids, from a trained model, as they come.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::Args;
use nn_core::Error;
use nn_core::generate::{DecodingStrategy, Sampling, generate, room};
use nn_core::model::Precision;
use nn_core::text::TextGenerator;
use nn_core::train::{Checkpoint, resolve_checkpoint};

use crate::elsewhere::{open_checkpoint, refuse_gguf};
use crate::failure::Failure;
use crate::flags::{DeviceFlags, precision};
use crate::paths;

const USUAL_TOKENS: usize = 128;

/// Continue PROMPT ("-" reads it from standard input) with MODEL, and write the text as it is generated.
///
/// MODEL is a checkpoint, the folder of a run, or a Mixtral folder from elsewhere that has its tokenizer.model.
///
/// With --ids, PROMPT is token ids separated by spaces or commas, which the model reads unchanged, and the output is
/// the ids that follow, on one line, separated by spaces; no id ends it early.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The model, unless given with --model, and the prompt, unless given with --prompt.
    #[arg(value_names = ["MODEL", "PROMPT"], num_args = 0..=2)]
    arguments: Vec<String>,
    /// The model; the argument is then the prompt.
    #[arg(long, value_name = "PATH")]
    model: Option<String>,
    /// The prompt.
    #[arg(long = "prompt", value_name = "TEXT", allow_hyphen_values = true)]
    prompts: Vec<String>,
    /// Maximum number of tokens to write.  [default: 128, or less if the model's context leaves less]
    #[arg(long, value_name = "INTEGER")]
    max_tokens: Option<usize>,
    /// Always pick the most likely token.
    #[arg(long)]
    greedy: bool,
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
    /// The same seed gives the same text.
    #[arg(long, value_name = "INTEGER", default_value = "0", allow_negative_numbers = true)]
    seed: i64,
    /// PROMPT and output are token ids; no tokenizer is needed.
    #[arg(long)]
    ids: bool,
    /// The precision to compute in; weights and cache take half the memory in bf16 and f16.
    #[arg(long, value_name = "NAME", default_value = "f32", value_parser = precision())]
    precision: Precision,
    /// For a run, use the checkpoint with the lowest held-out loss instead of the last.
    #[arg(long)]
    best: bool,
    #[command(flatten)]
    device: DeviceFlags,
}

fn at_least_zero(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a number, at least 0");
    text.parse().ok().filter(|number| *number >= 0.0).ok_or_else(wrong)
}

fn share(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a number above 0, at most 1");
    text.parse().ok().filter(|number| *number > 0.0 && *number <= 1.0).ok_or_else(wrong)
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let (model, mut prompt) = model_and_prompt(arguments.model, arguments.prompts, arguments.arguments)?;
    refuse_gguf(&model, "generate")?;
    let model =
        paths::folder(&model.to_string_lossy()).map_err(|problem| Failure::Usage(format!("MODEL: {problem}")))?;
    if prompt == "-" {
        prompt.clear();
        io::stdin().read_to_string(&mut prompt)?;
    }
    let temperature = if arguments.greedy { 0.0 } else { arguments.temperature };
    let strategy = DecodingStrategy::new(temperature, arguments.top_k, arguments.top_p)?;
    let sampling = Sampling { strategy, seed: arguments.seed };
    let checkpoint = open_checkpoint(&resolve_checkpoint(&model, arguments.best)?, "generate")?;
    let ids = prompt_ids(&checkpoint, &prompt, arguments.ids)?;
    let ctx = arguments.device.open()?;
    let model = checkpoint.model(&ctx, false, arguments.precision)?;
    let most = arguments.max_tokens.unwrap_or_else(|| USUAL_TOKENS.min(room(&model, ids.len())));
    let mut output = io::stdout();
    match checkpoint.tokenizer.as_ref().filter(|_| !arguments.ids) {
        None => {
            for (number, token) in generate(&model, &ids, most, &sampling, None)?.enumerate() {
                let space = if number == 0 { "" } else { " " };
                write!(output, "{space}{}", token?)?;
                output.flush()?;
            }
        }
        Some(tokenizer) => {
            let generator = TextGenerator::new(&model, tokenizer)?;
            for piece in generator.stream(&prompt, most, &sampling)? {
                output.write_all(piece?.as_bytes())?;
                output.flush()?;
            }
        }
    }
    writeln!(output)?;
    Ok(())
}

/// Model and prompt, from flags and arguments.
fn model_and_prompt(
    model: Option<String>,
    mut prompts: Vec<String>,
    arguments: Vec<String>,
) -> Result<(PathBuf, String), Failure> {
    let wrong = |problem: &str| Failure::Usage(problem.into());
    let mut arguments = arguments.into_iter();
    let model = model.or_else(|| arguments.next());
    let model = model.ok_or_else(|| wrong("there is no MODEL: name one as the first argument or with --model"))?;
    prompts.extend(arguments);
    let prompt = prompts.pop().ok_or_else(|| wrong("there is no PROMPT: give one as an argument or with --prompt"))?;
    if !prompts.is_empty() {
        let problem = "nncuda-rs takes one prompt; the Python package runs several together: nncuda generate";
        return Err(wrong(problem));
    }
    Ok((PathBuf::from(model), prompt))
}

/// The ids of a prompt: those that it names, between spaces or commas, or those of its text.
pub(crate) fn prompt_ids(checkpoint: &Checkpoint, prompt: &str, named: bool) -> Result<Vec<i32>, Failure> {
    if !named {
        let problem = "holds no tokenizer.model, so it cannot read text; --ids takes token ids";
        let tokenizer = checkpoint.tokenizer.as_ref().ok_or_else(|| Error::missing(&checkpoint.folder, problem))?;
        return Ok(tokenizer.encode(prompt, true));
    }
    let vocab = checkpoint.config.vocab_size;
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
