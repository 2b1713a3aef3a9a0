//! Trains a small model on a token shard: `train-rust TRAIN.tokens HELD-OUT.tokens RUN [STEPS]`.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

use nn_core::model::MoEConfig;
use nn_core::train::{Event, TrainConfig, TrainingRun, open_shards};
use nn_ffi::{Context, Device};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let (data, held_out, folder, steps) = match arguments.as_slice() {
        [data, held_out, folder] => (data, held_out, folder, 200),
        [data, held_out, folder, steps] => (data, held_out, folder, steps.display().to_string().parse()?),
        _ => return Err("usage: train-rust TRAIN.tokens HELD-OUT.tokens RUN [STEPS]".into()),
    };
    train(data, held_out, folder, steps)
}

fn train(data: &Path, held_out: &Path, folder: &Path, steps: usize) -> Result<(), Box<dyn Error>> {
    let vocabulary = open_shards(data)?[0].vocab_size();
    let model = MoEConfig {
        vocab_size: usize::try_from(vocabulary)?,
        hidden_size: 64,
        num_layers: 2,
        num_heads: 4,
        head_dim: 16,
        num_experts: 4,
        experts_per_token: 2,
        ffn_size: 96,
        context: 64,
        extended_context: 256,
        ..MoEConfig::default()
    };
    let options = TrainConfig {
        steps,
        sequence_length: 64,
        learning_rate: 3e-3,
        warmup_steps: Some(steps / 10),
        eval_every: steps.div_ceil(4),
        ..TrainConfig::default()
    };

    let ctx = Context::new(Device::Cpu)?;
    let mut run = TrainingRun::start(folder, &ctx, model, options, data, Some(held_out), None)?;
    run.run(|event| {
        if let Event::Step(progress) = event
            && progress.step % 20 == 0
        {
            println!("step {}: loss {:.3}, {:.0} tokens/s", progress.step, progress.loss, progress.tokens_per_second);
        }
        Ok(())
    })?;
    // The evaluation that evaluate.py makes again.
    println!("held-out loss {:.4}, checkpoints in {}", run.evaluate(0)?, run.checkpoints().display());
    Ok(())
}
