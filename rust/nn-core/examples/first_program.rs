//! The first program of docs/rust.md: a kernel, a model that learns to count, and what it says next.

use std::error::Error;

use nn_core::generate::{Sampling, generate};
use nn_core::model::{MoEConfig, MoETransformer};
use nn_core::train::{Batch, TrainConfig, Trainer};
use nn_ffi::{Context, Device, kernels};

fn main() -> Result<(), Box<dyn Error>> {
    let ctx = Context::new(Device::Cpu)?;

    // Every kernel is a function of tensors; what it writes is a tensor, too.
    let x = ctx.tensor(&[1.0f32, 0.0, 0.0, 0.0, 1.0, 0.0], &[2, 3])?;
    kernels::softmax(&x, &x)?;
    println!("{:.3?}", x.to_vec::<f32>()?);

    let config = MoEConfig {
        vocab_size: 64,
        hidden_size: 32,
        num_layers: 2,
        num_heads: 4,
        head_dim: 8,
        num_experts: 4,
        experts_per_token: 2,
        ffn_size: 64,
        context: 128,
        ..MoEConfig::default()
    };
    let options = TrainConfig {
        steps: 60,
        warmup_steps: Some(5),
        learning_rate: 0.01,
        sequence_length: 16,
        ..TrainConfig::default()
    };
    let capture = true; // records the calls of a step once, and replays them: the same bits, sooner
    let mut trainer = Trainer::new(MoETransformer::random(&ctx, config, 0)?, options, capture)?;

    // 8 sequences of 16 tokens that count up, and for each the tokens that come next.
    let (rows, length) = (8, 16);
    let count = |shift: i32| (0..rows as i32).flat_map(move |row| (0..16).map(move |i| (17 * row + i + shift) % 64));
    let batch = Batch { rows, length, inputs: count(0).collect(), targets: count(1).collect(), document_ends: None };
    let mut loss = 0.0;
    for _ in 0..trainer.config().steps {
        loss = trainer.train_step(&batch)?.loss()?;
    }

    let greedy = Sampling::default();
    let tokens = generate(trainer.model(), &[1, 2, 3], 5, &greedy, None)?.collect::<Result<Vec<_>, _>>()?;
    println!("loss {loss}, then {}", tokens.iter().map(i32::to_string).collect::<Vec<_>>().join(" "));
    Ok(())
}
