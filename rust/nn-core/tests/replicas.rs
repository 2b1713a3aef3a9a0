//! Replicas: micro-batches whose gradients are added in one fixed tree.

mod tiny;

use nn_core::format::Table;
use nn_core::model::{Gradients, MoETransformer, Precision};
use nn_core::train::{Batch, ReduceDtype, TrainConfig};
use nn_ffi::{DType, kernels};

/// Adds vectors in the tree over replicas of bindings.h, section comm; `round` is applied to each node below its root.
fn tree_sum(parts: &[Vec<f32>], round: &dyn Fn(Vec<f32>) -> Vec<f32>) -> Vec<f32> {
    if let [one] = parts {
        return one.clone();
    }
    let (left, right) = parts.split_at(parts.len().next_power_of_two() / 2);
    let [left, right] = [left, right].map(|part| round(tree_sum(part, round)));
    left.into_iter().zip(right).map(|(left, right)| left + right).collect()
}

/// The gradient of one replica's micro-batches.
fn gradient_of(model: &MoETransformer, batch: &Batch, options: &TrainConfig, replica: usize) -> Vec<f32> {
    let (ctx, length) = (model.context(), batch.length);
    let (one, loss_factor) = (ctx.tensor(&[1f32], &[1]).unwrap(), ctx.empty(&[1], DType::F32).unwrap());
    let tokens = batch.targets.iter().filter(|target| **target != -100).count();
    kernels::weighted_mean(&one, None, &loss_factor, tokens as i64).unwrap();
    let micro = options.micro_batch_size.unwrap();
    for (number, start) in (0..batch.rows).step_by(micro).enumerate().filter(|(at, _)| at % options.replicas == replica)
    {
        let rows = micro.min(batch.rows - start);
        let part = |ids: &[i32]| ctx.tensor(&ids[start * length..(start + rows) * length], &[rows, length]).unwrap();
        let (weight, aux_factor) = (ctx.tensor(&[rows as i32], &[1]).unwrap(), ctx.empty(&[1], DType::F32).unwrap());
        kernels::weighted_mean(&one, Some(&weight), &aux_factor, batch.rows as i64).unwrap();
        model
            .forward_backward(&Gradients {
                ids: &part(&batch.inputs),
                targets: &part(&batch.targets),
                document_ends: None,
                loss_factor: &loss_factor,
                aux_factor: &aux_factor,
                losses: &ctx.empty(&[model.loss_pieces(rows * length)], DType::F32).unwrap(),
                aux: &ctx.zeros(&[1], DType::F32).unwrap(),
                accumulate: number != replica,
            })
            .unwrap();
    }
    model.gradients().unwrap().to_vec().unwrap()
}

#[test]
fn gradients_of_replicas_are_added_in_the_tree() {
    let ctx = tiny::context();
    for (replicas, rows, micro) in [(1, 7, 2), (2, 2, 1), (3, 7, 2), (5, 5, 1), (5, 13, 1), (8, 8, 1), (8, 17, 2)] {
        for precision in [Precision::F32, Precision::BF16, Precision::F16] {
            if precision != Precision::F32 && replicas != 3 {
                continue;
            }
            let mut options =
                TrainConfig { replicas, batch_size: rows, micro_batch_size: Some(micro), precision, ..tiny::options() };
            if precision == Precision::F16 {
                options.loss_scale = 1.0;
            }
            let (mut captured, mut plain) = (
                tiny::trainer(&ctx, tiny::model(), options.clone(), true),
                tiny::trainer(&ctx, tiny::model(), options.clone(), false),
            );
            for step in 0..3 {
                let batch = tiny::batch(rows, 9, step);
                let part = |replica| gradient_of(plain.model(), &batch, &options, replica);
                let wanted = tree_sum(&(0..replicas).map(part).collect::<Vec<_>>(), &|sum| sum);
                for trainer in [&mut captured, &mut plain] {
                    trainer.train_step(&batch).unwrap();
                    let found = trainer.model().gradients().unwrap().to_vec().unwrap();
                    let same = found.iter().zip(&wanted).all(|(found, wanted)| found.to_bits() == wanted.to_bits());
                    assert!(same, "{replicas} replicas, {rows} rows, {precision}, step {step}");
                }
            }
            assert_eq!(captured.eager_reason(), None);
            assert_eq!(tiny::state(&captured), tiny::state(&plain));
        }
    }
}

#[test]
fn sums_below_the_whole_are_rounded() {
    let (ctx, batch) = (tiny::context(), tiny::batch(13, 9, 1));
    for (replicas, precision, reduce_dtype) in [
        (2, Precision::F32, ReduceDtype::BF16),
        (5, Precision::F32, ReduceDtype::BF16),
        (4, Precision::BF16, ReduceDtype::BF16),
        (3, Precision::F16, ReduceDtype::F16),
    ] {
        let mut options = TrainConfig {
            replicas,
            batch_size: 13,
            micro_batch_size: Some(2),
            precision,
            reduce_dtype,
            ..tiny::options()
        };
        if precision == Precision::F16 {
            options.loss_scale = 1.0;
        }
        let round = |sum: Vec<f32>| {
            let sum = ctx.tensor(&sum, &[sum.len()]).unwrap();
            let narrow = ctx.empty(sum.shape(), reduce_dtype.dtype()).unwrap();
            kernels::cast(&sum, &narrow).unwrap();
            kernels::cast(&narrow, &sum).unwrap();
            sum.to_vec::<f32>().unwrap()
        };
        let mut trainer = tiny::trainer(&ctx, tiny::model(), options.clone(), true);
        let parts: Vec<_> =
            (0..replicas).map(|replica| gradient_of(trainer.model(), &batch, &options, replica)).collect();
        let wanted = tree_sum(&parts, &round);
        assert!(wanted != tree_sum(&parts, &|sum| sum));
        trainer.train_step(&batch).unwrap();
        let found = trainer.model().gradients().unwrap().to_vec().unwrap();
        let same = found.iter().zip(&wanted).all(|(found, wanted)| found.to_bits() == wanted.to_bits());
        assert!(same, "{replicas} replicas, {precision}, {reduce_dtype}");
    }
}

#[test]
fn another_number_of_replicas_is_another_sum() {
    let (ctx, batch) = (tiny::context(), tiny::batch(8, 9, 1));
    let state = |replicas| {
        let options = TrainConfig { replicas, batch_size: 8, micro_batch_size: Some(1), ..tiny::options() };
        let mut trainer = tiny::trainer(&ctx, tiny::model(), options, true);
        trainer.train_step(&batch).unwrap();
        tiny::state(&trainer)
    };
    let [one, three, eight] = [1, 3, 8].map(state);
    assert!(one != three && three != eight && eight != one);
}

#[test]
fn each_replica_has_a_micro_batch() {
    let options = |replicas| TrainConfig { replicas, batch_size: 8, micro_batch_size: Some(4), ..tiny::options() };
    let error = options(8).validate().unwrap_err();
    let wanted = "replicas is 8; an update of batch_size 8 in micro-batches of 4 has 2, so it must be 1 to 2";
    assert_eq!(error.to_string(), wanted);
    let error = options(0).validate().unwrap_err();
    assert_eq!(error.to_string(), "replicas is 0; it must be a whole number, from 1 to 2147483647");
    let error =
        tiny::trainer(&tiny::context(), tiny::model(), options(2), true).train_step(&tiny::batch(3, 9, 1)).unwrap_err();
    let wanted = "replicas is 2; an update of batch_size 3 in micro-batches of 4 has 1, so it must be 1 to 1";
    assert_eq!(error.to_string(), wanted);
}

#[test]
fn what_sums_are_rounded_to_is_checked() {
    let with = |reduce_dtype, precision, replicas| TrainConfig { reduce_dtype, precision, replicas, ..tiny::options() };
    for (precision, name) in [(Precision::F32, "f32"), (Precision::BF16, "bf16")] {
        for replicas in [1, 2] {
            let error = with(ReduceDtype::F16, precision, replicas).validate().unwrap_err();
            let wanted = format!(
                "reduce_dtype is f16, but the precision is {name}; gradients fit into f16 only with the loss scale of \
                 precision f16"
            );
            assert_eq!(error.to_string(), wanted);
        }
    }
    let error = with(ReduceDtype::BF16, Precision::F16, 1).validate().unwrap_err();
    assert_eq!(error.to_string(), "reduce_dtype is bf16, but replicas is 1; gradients are rounded between replicas");
    let given = Table::from([("replicas", 2i32.into()), ("reduce_dtype", "f64".into()), ("batch_size", 2i32.into())]);
    let error = TrainConfig::from_table(&given).unwrap_err();
    assert_eq!(error.to_string(), "reduce_dtype is 'f64'; it must be one of f32, bf16, f16");
    with(ReduceDtype::F16, Precision::F16, 2).validate().unwrap();
    with(ReduceDtype::BF16, Precision::F32, 2).validate().unwrap();
}
