//! What a training step and a decoded token cost.
//!
//! `cargo bench -p nn-core`; `nncuda-rs bench` measures the same beside the other languages.

use divan::Bencher;
use divan::counter::ItemsCount;
use nn_core::generate::{Sampling, generate};
use nn_core::model::{MoEConfig, MoETransformer};
use nn_core::train::{Batch, TrainConfig, Trainer};
use nn_ffi::{Context, Device};

fn main() {
    divan::main();
}

fn context() -> Context {
    Context::new(Device::Cpu).expect("there is a CPU")
}

/// A model of two small layers, of which the calls cost the most, or a preset.
fn config(name: &str) -> MoEConfig {
    match name {
        "tiny" => MoEConfig { vocab_size: 64, hidden_size: 32, num_layers: 2, ffn_size: 48, ..MoEConfig::default() },
        preset => MoEConfig::preset(preset).expect("there is such a preset"),
    }
}

/// One update; the calls are captured, as in a run.
#[divan::bench(args = ["tiny", "small"], sample_count = 10, sample_size = 1)]
fn step(bencher: Bencher<'_, '_>, name: &str) {
    let (ctx, rows, length) = (context(), 2, 64);
    let model = MoETransformer::random(&ctx, config(name), 0).expect("there is room");
    let options = TrainConfig { sequence_length: length, ..TrainConfig::default() };
    let mut trainer = Trainer::new(model, options, true).expect("the options are good");
    let ids: Vec<i32> = (0..rows * length).map(|at| (at * 7 % 61) as i32).collect();
    let batch = Batch { rows, length, inputs: ids.clone(), targets: ids, document_ends: None };
    for _ in 0..2 {
        trainer.train_step(&batch).expect("the batch is good");
    }
    bencher
        .counter(ItemsCount::new(rows * length))
        .bench_local(|| trainer.train_step(&batch).and_then(|result| result.loss()).expect("the batch is good"));
}

/// Sixty-four tokens of one sequence, the prompt included.
#[divan::bench(args = ["tiny", "small"], sample_count = 5, sample_size = 1)]
fn decode(bencher: Bencher<'_, '_>, name: &str) {
    let ctx = context();
    let model = MoETransformer::random(&ctx, config(name), 0).expect("there is room");
    bencher.counter(ItemsCount::new(64_usize)).bench_local(|| {
        let tokens = generate(&model, &[1, 2, 3], 64, &Sampling::default(), None).expect("the prompt is good");
        tokens.filter(Result::is_ok).count()
    });
}
