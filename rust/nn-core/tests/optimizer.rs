//! Updates: the same bits captured or not and resumed or not, and what becomes of steps that fail.

#[path = "../../nn-ffi/tests/device/mod.rs"]
mod device;

use nn_core::train::{LossScalingOptions, LossScalingState, MomentsKind, Optimizer, UpdateOptions};
use nn_core::{Error, Result};
use nn_ffi::{DType, kernels};

const OPTIONS: UpdateOptions = UpdateOptions {
    max_rate: 0.05,
    min_rate: 0.001,
    warmup: 3,
    total: 40,
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    weight_decay: 0.1,
    decayed: 12,
    moments: MomentsKind::F32,
    clip_norm: Some(1.0),
    loss_scaling: None,
};

/// Fits weights to a linear map for some steps; returns the parameters and both moments as bits.
fn fit(capture: bool, steps: usize, resume_at: Option<usize>) -> Result<Vec<u32>> {
    let context = device::context();
    let (parameters, gradients) = (context.zeros(&[16], DType::F32)?, context.zeros(&[16], DType::F32)?);
    kernels::normal(&parameters, 0.0, 0.5, 3, 0, 0)?;
    let mut trainer = Optimizer::new(&parameters, &gradients, None, OPTIONS, capture)?;
    let (x, wanted, y) =
        (context.empty(&[8, 4], DType::F32)?, context.empty(&[8, 4], DType::F32)?, context.empty(&[8, 4], DType::F32)?);
    for step in 0..steps {
        if resume_at == Some(step) {
            // As a checkpoint does: all state goes to the host, and comes back into a new trainer.
            let [first, second] = trainer.moments().data();
            let moments = (first.to_vec::<f32>()?, second.to_vec::<f32>()?);
            let done = trainer.steps_done();
            trainer = Optimizer::new(&parameters, &gradients, None, OPTIONS, capture)?;
            let [first, second] = trainer.moments().data();
            first.copy_from_slice(&moments.0)?;
            second.copy_from_slice(&moments.1)?;
            trainer.restore(done, None)?;
        }
        kernels::normal(&x, 0.0, 1.0, step as i64, 0, 0)?;
        kernels::scale(&x, &wanted, -1.5)?;
        let weight = parameters.view(&[4, 4])?;
        trainer.step(&[8, 4], || {
            kernels::gemm(&x, &weight, &y, false, true)?;
            kernels::scale(&wanted, &wanted, -1.0)?;
            kernels::add(&y, &wanted, &y)?;
            Ok(kernels::gemm(&y, &x, &gradients.view(&[4, 4])?, true, false)?)
        })?;
        assert_eq!(trainer.steps_done(), step as i32 + 1);
        assert_eq!(
            trainer.is_captured(&[8, 4]),
            capture && step > resume_at.map_or(0, |at| if step < at { 0 } else { at })
        );
    }
    assert!(trainer.norm().item::<f32>()? > 0.0);
    assert!(trainer.rate().item::<f32>()? <= OPTIONS.max_rate);
    let [first, second] = trainer.moments().data();
    let all = [&parameters, first, second];
    let values: Vec<Vec<f32>> = all.iter().map(|tensor| tensor.to_vec()).collect::<nn_ffi::Result<_>>()?;
    Ok(values.concat().iter().map(|value| value.to_bits()).collect())
}

#[test]
fn training_has_the_same_bits_captured_or_not_and_resumed_or_not() -> Result<()> {
    let eager = fit(false, 20, None)?;
    assert_eq!(fit(true, 20, None)?, eager);
    assert_eq!(fit(true, 20, Some(10))?, eager);
    assert_ne!(fit(true, 19, None)?, eager);
    Ok(())
}

#[test]
fn a_step_that_fails_does_not_count() -> Result<()> {
    let context = device::context();
    let parameters = context.zeros(&[16], DType::F32)?;
    let mut trainer = Optimizer::new(&parameters, &parameters, None, OPTIONS, true)?;
    for _ in 0..4 {
        let failed = trainer.step(&[1], || Err(Error::value("no data")));
        assert!(matches!(failed, Err(Error::Value(problem)) if problem == "no data"));
    }
    assert_eq!(trainer.steps_done(), 0);
    let wrong = Optimizer::new(&parameters, &context.zeros(&[15], DType::F32)?, None, OPTIONS, true);
    assert!(wrong.expect_err("there are 15 gradients for 16 parameters").to_string().contains("of one size"));
    Ok(())
}

#[test]
fn why_a_step_runs_call_by_call_is_told() -> Result<()> {
    let context = device::context();
    let (parameters, gradients) = (context.zeros(&[16], DType::F32)?, context.zeros(&[16], DType::F32)?);
    let mut trainer = Optimizer::new(&parameters, &gradients, None, OPTIONS, true)?;
    assert_eq!(trainer.eager_reason(), None);
    let table = [
        ([8, 4], Some("the first step of batches [8, 4] runs call by call")),
        ([2, 4], Some("the first step of batches [2, 4] runs call by call")),
        ([2, 4], None),
        ([2, 4], None),
        ([8, 4], Some("the batch is [8, 4], the captured step was for [2, 4]")),
        ([8, 4], None),
    ];
    for (shape, reason) in table {
        trainer.step(&shape, || Ok(kernels::fill(&gradients, 0.5)?))?;
        assert_eq!(trainer.eager_reason(), reason);
    }
    let mut eager = Optimizer::new(&parameters, &gradients, None, OPTIONS, false)?;
    for _ in 0..2 {
        eager.step(&[8, 4], || Ok(kernels::fill(&gradients, 0.5)?))?;
        assert_eq!(eager.eager_reason(), Some("capture is off"));
    }
    Ok(())
}

#[test]
fn a_step_that_cannot_be_captured_goes_on_call_by_call() -> Result<()> {
    let context = device::context();
    let trained = |capture: bool, look: bool| -> Result<(Vec<f32>, Option<String>, usize)> {
        let (parameters, gradients) = (context.zeros(&[16], DType::F32)?, context.zeros(&[16], DType::F32)?);
        let mut trainer = Optimizer::new(&parameters, &gradients, None, OPTIONS, capture)?;
        let mut made = 0;
        for shape in [[1, 1], [1, 1], [1, 1], [2, 1]] {
            trainer.step(&shape, || {
                made += 1;
                // The host cannot look at a tensor while calls are recorded.
                if look {
                    gradients.to_vec::<f32>()?;
                }
                Ok(kernels::fill(&gradients, 0.5)?)
            })?;
        }
        Ok((parameters.to_vec()?, trainer.eager_reason().map(str::to_owned), made))
    };
    let (expected, ..) = trained(false, true)?;
    let (found, reason, made) = trained(true, true)?;
    let reason = reason.unwrap_or_default();
    assert!(reason.starts_with("the step could not be captured: ") && !reason.contains("CAPTURING"), "{reason}");
    assert_eq!((found, made), (expected.clone(), 5), "the second step was tried once more than it ran");
    assert_eq!(trained(true, false)?.0, expected);
    Ok(())
}

#[test]
fn nothing_is_updated_from_the_first_step_on_whose_gradients_are_not_finite() -> Result<()> {
    let context = device::context();
    for bad in [f32::NAN, f32::INFINITY] {
        let (parameters, gradients) = (context.zeros(&[16], DType::F32)?, context.zeros(&[16], DType::F32)?);
        let mut trainer = Optimizer::new(&parameters, &gradients, None, OPTIONS, true)?;
        let source = context.zeros(&[16], DType::F32)?;
        let step = |trainer: &mut Optimizer, value: f32| -> Result<Vec<u32>> {
            source.copy_from_slice(&[value; 16])?;
            trainer.step(&[1], || Ok(gradients.copy_from(&source)?))?;
            let [first, second] = trainer.moments().data();
            let all = [&parameters, first, second];
            let values: Vec<Vec<f32>> = all.iter().map(|tensor| tensor.to_vec()).collect::<nn_ffi::Result<_>>()?;
            Ok(values.concat().into_iter().map(f32::to_bits).collect())
        };
        for _ in 0..3 {
            step(&mut trainer, 0.5)?;
        }
        let before = step(&mut trainer, 0.25)?;
        assert_eq!((trainer.skip().item::<i32>()?, trainer.updates_done()?), (0, 4));
        for value in [bad, 0.5, 0.5] {
            assert_eq!(step(&mut trainer, value)?, before);
            assert_eq!((trainer.skip().item::<i32>()?, trainer.updates_done()?), (1, 4));
        }
        assert_eq!(trainer.steps_done(), 7);
        trainer.restore(4, None)?;
        assert_ne!(step(&mut trainer, 0.5)?, before);
        assert_eq!((trainer.skip().item::<i32>()?, trainer.updates_done()?), (0, 5));
    }
    Ok(())
}

#[test]
fn what_cannot_be_trained_is_refused() -> Result<()> {
    let context = device::context();
    let parameters = context.zeros(&[16], DType::F32)?;
    for (len, dtype) in [(15, DType::BF16), (16, DType::F32)] {
        let rounded = context.zeros(&[len], dtype)?;
        let wrong = Optimizer::new(&parameters, &parameters, Some(&rounded), OPTIONS, true);
        assert!(wrong.expect_err("a copy of another size or dtype").to_string().contains("of f16 or bf16"));
    }
    let state = LossScalingState { scale: 8.0, good_steps: 1, skipped: 2 };
    let mut plain = Optimizer::new(&parameters, &parameters, None, OPTIONS, true)?;
    assert!(plain.restore(3, Some(state)).is_err() && plain.restore(-1, None).is_err());
    assert_eq!((plain.loss_scaling()?, plain.loss_scale().is_none(), plain.skip().item::<i32>()?), (None, true, 0));
    let scaling = LossScalingOptions { scale: 4.0, growth: 2.0, backoff: 0.5, interval: 3 };
    let options = UpdateOptions { loss_scaling: Some(scaling), ..OPTIONS };
    let mut scaled = Optimizer::new(&parameters, &parameters, None, options, true)?;
    assert!(scaled.restore(3, None).is_err() && scaled.restore(1, Some(state)).is_err());
    scaled.restore(3, Some(state))?;
    assert_eq!((scaled.steps_done(), scaled.loss_scaling()?), (3, Some(state)));
    Ok(())
}
