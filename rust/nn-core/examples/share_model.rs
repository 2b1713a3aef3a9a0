//! One model, several threads: one trains it, and others have it write between the steps.
//!
//! Whoever trains changes the model, so the threads share an `Arc<Mutex<Trainer>>`. A model that nobody changes needs no
//! mutex: any number of threads may generate from one `Arc<MoETransformer>` at the same time.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nn_core::Result;
use nn_core::generate::{Sampling, generate};
use nn_core::model::{MoEConfig, MoETransformer};
use nn_core::train::{Batch, TrainConfig, Trainer};
use nn_ffi::{Context, Device};

const STEPS: usize = 60;

fn main() -> Result<()> {
    let ctx = Context::new(Device::Cpu)?;
    let sizes = MoEConfig { vocab_size: 64, hidden_size: 32, num_layers: 2, ffn_size: 64, ..MoEConfig::default() };
    let options = TrainConfig {
        steps: STEPS,
        warmup_steps: Some(5),
        learning_rate: 0.01,
        sequence_length: 16,
        ..TrainConfig::default()
    };
    let trainer = Trainer::new(MoETransformer::random(&ctx, sizes, 0)?, options, true)?;
    let trainer = Arc::new(Mutex::new(trainer));

    let learning = thread::spawn({
        let trainer = Arc::clone(&trainer);
        move || learn(&trainer)
    });
    let asking: Vec<_> = (0..3)
        .map(|first| {
            let trainer = Arc::clone(&trainer);
            thread::spawn(move || (0..4).try_for_each(|_| ask(&trainer, first).map(|_| ())))
        })
        .collect();

    let finished = |thread: thread::JoinHandle<Result<()>>| thread.join().expect("no thread panics");
    asking.into_iter().try_for_each(finished)?;
    finished(learning)?;
    println!("after 1, 2, 3 comes {:?}", ask(&trainer, 1)?);
    Ok(())
}

/// Trains on sequences that count up. Others get the trainer between two steps.
fn learn(trainer: &Mutex<Trainer>) -> Result<()> {
    let (rows, length) = (8, 16);
    let count = |shift: i32| (0..rows as i32).flat_map(move |row| (0..16).map(move |i| (17 * row + i + shift) % 64));
    let batch = Batch { rows, length, inputs: count(0).collect(), targets: count(1).collect(), document_ends: None };
    for _ in 0..STEPS {
        trainer.lock().unwrap_or_else(PoisonError::into_inner).train_step(&batch)?;
    }
    Ok(())
}

/// What the model, as far as it has come, writes after three numbers. It does not change before the answer is there.
fn ask(trainer: &Mutex<Trainer>, first: i32) -> Result<Vec<i32>> {
    let trainer = trainer.lock().unwrap_or_else(PoisonError::into_inner);
    generate(trainer.model(), &[first, first + 1, first + 2], 5, &Sampling::default(), None)?.collect()
}

#[test]
fn it_runs() -> Result<()> {
    main()
}
