//! Training in bf16 and f16: captured steps have the bits of their calls, and wrong states are refused.

mod tiny;

use nn_core::model::{MoETransformer, Precision};
use nn_core::train::{Batch, LossScalingState, TrainConfig, Trainer};

const SIXTEEN: [Precision; 3] = [Precision::BF16, Precision::F16, Precision::FP8];

fn options(precision: Precision) -> TrainConfig {
    TrainConfig { steps: 200, precision, ..tiny::options() }
}

fn scaled(loss_scale: f64) -> TrainConfig {
    TrainConfig { loss_scale, ..options(Precision::F16) }
}

/// The bits of all that a trainer keeps, the weights that the model computes with included.
fn state(trainer: &Trainer) -> Vec<Vec<u32>> {
    let mut state = tiny::state(trainer).to_vec();
    state.push(tiny::bits(trainer.model().weights()));
    state
}

/// The bits of what a step tells; of a loss that is not a number, whether it is one.
fn told(trainer: &mut Trainer, batch: &Batch) -> [u64; 6] {
    let result = trainer.train_step(batch).unwrap();
    let numbers = [result.loss(), result.aux_loss(), result.grad_norm(), result.learning_rate()];
    let [loss, aux, norm, rate] = numbers.map(|number| Some(number.unwrap()).filter(|number| number.is_finite()));
    let bits = |number: Option<f64>| number.map_or(u64::MAX, f64::to_bits);
    let skipped = result.skipped_steps().unwrap() as u64;
    [bits(loss), bits(aux), bits(norm), bits(rate), bits(result.loss_scale().unwrap()), skipped]
}

#[test]
fn a_captured_step_has_the_bits_of_its_calls() {
    // Also when shapes change and steps are skipped.
    let ctx = tiny::context();
    for precision in SIXTEEN {
        let mut options = options(precision);
        if precision == Precision::F16 {
            (options.loss_scale, options.loss_scale_interval) = (16_777_216.0, 2);
        }
        let run = |capture| {
            let mut trainer = tiny::trainer(&ctx, tiny::model(), options.clone(), capture);
            let step = |seed: u64| {
                let (rows, length) = if seed == 4 { (3, 9) } else { (5, 13) };
                told(&mut trainer, &tiny::batch(rows, length, seed))
            };
            let told: Vec<_> = (0..12).map(step).collect();
            (told, state(&trainer))
        };
        let (told, state) = run(false);
        assert_eq!(run(true), (told.clone(), state));
        let skipped = told[11][5];
        assert!(precision != Precision::F16 && skipped == 0 || (1..12).contains(&skipped), "{skipped} skipped");
    }
}

#[test]
fn the_trainer_has_the_precision_of_its_model() {
    let ctx = tiny::context();
    let model = MoETransformer::zeros(&ctx, tiny::model(), true, Precision::F32).unwrap();
    let error = Trainer::new(model, options(Precision::BF16), true).unwrap_err();
    assert_eq!(error.to_string(), "precision is bf16; this model computes in f32");
    let state = LossScalingState { scale: 1.0, good_steps: 0, skipped: 0 };
    let error = tiny::trainer(&ctx, tiny::model(), options(Precision::BF16), true).restore(3, Some(state)).unwrap_err();
    assert_eq!(error.to_string(), "a loss-scaling state is required with scaled losses, and allowed with no others");
    assert!(tiny::trainer(&ctx, tiny::model(), scaled(1.0), true).restore(3, None).is_err());
}
