//! Generation by the layers that train, over a contiguous cache.

use std::io::{self, Write};
use std::path::PathBuf;

use nn_core::generate::{Sampling, generate, room};
use nn_core::model::Precision;
use nn_core::text::TextGenerator;
use nn_core::train::Checkpoint;

use super::{USUAL_TOKENS, no_tokenizer, prompt_ids};
use crate::failure::Failure;
use crate::flags::DeviceFlags;

/// What is to be done.
pub(super) struct Job<'a> {
    /// The checkpoint.
    pub(super) path: PathBuf,
    pub(super) prompt: &'a str,
    /// Whether prompt and output are ids.
    pub(super) ids: bool,
    pub(super) most: Option<usize>,
    pub(super) sampling: Sampling,
    pub(super) precision: Precision,
    pub(super) device: &'a DeviceFlags,
}

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let checkpoint = Checkpoint::open(&job.path)?;
    let ids = checkpoint_ids(&checkpoint, job.prompt, job.ids)?;
    let ctx = job.device.open()?;
    let model = checkpoint.model(&ctx, false, job.precision)?;
    let most = job.most.unwrap_or_else(|| USUAL_TOKENS.min(room(&model, ids.len())));
    let mut output = io::stdout();
    match checkpoint.tokenizer.as_ref().filter(|_| !job.ids) {
        None => {
            for (number, token) in generate(&model, &ids, most, &job.sampling, None)?.enumerate() {
                let space = if number == 0 { "" } else { " " };
                write!(output, "{space}{}", token?)?;
                output.flush()?;
            }
        }
        Some(tokenizer) => {
            let generator = TextGenerator::new(&model, tokenizer)?;
            for piece in generator.stream(job.prompt, most, &job.sampling)? {
                super::output::speak(&piece?)?;
            }
        }
    }
    writeln!(output)?;
    Ok(())
}

/// The ids of a prompt as the model of a checkpoint reads it.
pub(crate) fn checkpoint_ids(checkpoint: &Checkpoint, prompt: &str, named: bool) -> Result<Vec<i32>, Failure> {
    prompt_ids(prompt, named, checkpoint.config.vocab_size, |text| {
        let tokenizer = checkpoint.tokenizer.as_ref().ok_or_else(|| no_tokenizer(&checkpoint.folder))?;
        Ok(tokenizer.encode(text, true))
    })
}
