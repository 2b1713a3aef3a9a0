//! Activation checkpointing and recomputed experts: the same bits.

mod tiny;

use nn_core::model::{MoEConfig, MoETransformer, Precision};
use nn_core::train::{TrainConfig, Trainer};
use nn_ffi::Context;

/// Every so many blocks, whether the experts of the others, and how many of the last keep them.
const WAYS: [(usize, bool, usize); 6] =
    [(1, false, 0), (2, false, 0), (3, false, 0), (0, true, 0), (2, true, 0), (0, true, 3)];

fn recomputing(options: &TrainConfig, (every, experts, keep): (usize, bool, usize)) -> TrainConfig {
    TrainConfig { activation_checkpointing: every, recompute_experts: experts, keep_experts: keep, ..options.clone() }
}

type Told = (f64, f64, f64, Vec<Vec<i32>>, Vec<Vec<i32>>);

/// What four steps tell, and all that they leave behind.
fn run(ctx: &Context, options: TrainConfig, capture: bool) -> (Vec<Told>, Vec<Vec<u32>>) {
    let model = MoEConfig { num_layers: 5, ..tiny::model() };
    let mut trainer = tiny::trainer(ctx, model, options, capture);
    let step = |seed| {
        let done = trainer.train_step(&tiny::batch(5, 13, seed)).unwrap();
        let (counts, choices) = (done.expert_counts().unwrap(), done.expert_choices().unwrap());
        (done.loss().unwrap(), done.aux_loss().unwrap(), done.grad_norm().unwrap(), counts, choices)
    };
    let told = (0..4).map(step).collect();
    let mut state = tiny::state(&trainer).to_vec();
    state.push(tiny::bits(trainer.model().gradients().unwrap()));
    (told, state)
}

#[test]
fn recomputation_changes_no_bit() {
    let ctx = tiny::context();
    for precision in [Precision::F32, Precision::BF16] {
        let options = TrainConfig { precision, ..tiny::options() };
        let expected = run(&ctx, options.clone(), false);
        for way in WAYS {
            for capture in [false, true] {
                assert!(run(&ctx, recomputing(&options, way), capture) == expected, "{way:?} in {precision}");
            }
        }
    }
}

#[test]
fn the_model_has_as_many_blocks() {
    let ctx = tiny::context();
    let model = MoETransformer::zeros(&ctx, tiny::model(), true, Precision::F32).unwrap();
    let error = Trainer::new(model, recomputing(&tiny::options(), (3, false, 0)), true).unwrap_err();
    assert_eq!(error.to_string(), "activation_checkpointing is 3; this model has 2 blocks");
    let model = MoETransformer::zeros(&ctx, tiny::model(), true, Precision::F32).unwrap();
    let error = Trainer::new(model, recomputing(&tiny::options(), (0, true, 3)), true).unwrap_err();
    assert_eq!(error.to_string(), "keep_experts is 3; this model has 2 blocks");
}
