//! Activation checkpointing and recomputed experts: the same bits, in less memory.

mod tiny;

use nn_core::model::{MoEConfig, MoETransformer, Precision};
use nn_core::train::{TrainConfig, Trainer};
use nn_ffi::Context;

/// Every so many blocks, and whether the experts of the others.
const WAYS: [(usize, bool); 5] = [(1, false), (2, false), (3, false), (0, true), (2, true)];

fn trainer(ctx: &Context, model: MoEConfig, options: TrainConfig, capture: bool) -> Trainer {
    let model = MoETransformer::random_in(ctx, model, 2, true, options.precision).unwrap();
    Trainer::new(model, options, capture).unwrap()
}

fn recomputing(options: &TrainConfig, (every, experts): (usize, bool)) -> TrainConfig {
    TrainConfig { activation_checkpointing: every, recompute_experts: experts, ..options.clone() }
}

type Told = (f64, f64, f64, Vec<Vec<i32>>, Vec<Vec<i32>>);

/// What four steps tell, and all that they leave behind.
fn run(ctx: &Context, options: TrainConfig, capture: bool) -> (Vec<Told>, Vec<Vec<u32>>) {
    let model = MoEConfig { num_layers: 5, ..tiny::model() };
    let mut trainer = trainer(ctx, model, options, capture);
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

/// Most bytes in use in the third step of a model of 8 blocks.
fn peak(model: &MoEConfig, options: TrainConfig) -> usize {
    let ctx = tiny::context();
    let mut trainer = trainer(&ctx, model.clone(), options, false);
    let mut steps = |count| {
        for _ in 0..count {
            trainer.train_step(&tiny::batch(4, 32, 1)).unwrap();
        }
    };
    steps(2);
    ctx.synchronize().unwrap();
    ctx.trim().unwrap();
    ctx.reset_peak().unwrap();
    steps(1);
    ctx.bytes_peak().unwrap()
}

#[test]
fn memory_falls_by_what_is_not_kept() {
    let model = MoEConfig { num_layers: 8, hidden_size: 32, ffn_size: 64, capacity_factor: None, ..tiny::model() };
    for (precision, width) in [(Precision::F32, 4), (Precision::BF16, 2)] {
        let options =
            TrainConfig { precision, batch_size: 4, micro_batch_size: None, sequence_length: 32, ..tiny::options() };
        let (tokens, slots) = (4 * 32, 4 * 32 * model.experts_per_token);
        let heads = (2 * model.num_heads + 2 * model.num_kv_heads) * model.head_dim;
        // What a block keeps beside its input in the precision's width; routing and deviations come on top of it.
        let inside = width * slots * (model.hidden_size + 3 * model.ffn_size);
        let block = inside + width * (tokens * (3 * model.hidden_size + heads) + slots * model.hidden_size);
        let everything = peak(&model, options.clone());
        // One of the recomputed blocks is there again at the peak.
        for (way, fallen) in [
            ((1, false), 7 * block),
            ((2, false), 3 * block),
            ((0, true), 7 * inside),
            ((2, true), 3 * (block + inside)),
        ] {
            let least = peak(&model, recomputing(&options, way));
            assert!(least + fallen <= everything, "{way:?}: {least} + {fallen} > {everything} in {precision}");
        }
    }
}

#[test]
fn the_model_has_as_many_blocks() {
    let ctx = tiny::context();
    let model = MoETransformer::zeros(&ctx, tiny::model(), true, Precision::F32).unwrap();
    let error = Trainer::new(model, recomputing(&tiny::options(), (3, false)), true).unwrap_err();
    assert_eq!(error.to_string(), "activation_checkpointing is 3; this model has 2 blocks");
}
