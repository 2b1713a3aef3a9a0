//! Training: what must not change the bits, and what is refused.

mod tiny;

use nn_core::Error;
use nn_core::model::{MoETransformer, Precision};
use nn_core::train::{TrainConfig, Trainer};

/// Some steps, of two shapes in turns.
fn train(trainer: &mut Trainer) -> Vec<[u64; 4]> {
    let step = |seed: u64| {
        let (rows, length) = if seed % 7 == 6 { (3, 9) } else { (5, 13) };
        let result = trainer.train_step(&tiny::batch(rows, length, seed)).unwrap();
        let measures = [result.loss(), result.aux_loss(), result.grad_norm(), result.learning_rate()];
        measures.map(|measure| measure.unwrap().to_bits())
    };
    (0..10).map(step).collect()
}

#[test]
fn neither_capture_nor_threads_change_a_bit() {
    let ctx = tiny::context();
    ctx.set_threads(3).unwrap();
    let mut first = tiny::trainer(&ctx, tiny::model(), tiny::options(), true);
    let measures = train(&mut first);
    for (capture, threads) in [(false, 3), (true, 1)] {
        ctx.set_threads(threads).unwrap();
        let mut second = tiny::trainer(&ctx, tiny::model(), tiny::options(), capture);
        assert_eq!(train(&mut second), measures);
        assert_eq!(tiny::state(&second), tiny::state(&first));
    }
    assert_eq!(first.step(), 10);
}

#[test]
fn the_routing_of_a_step_is_told() {
    let ctx = tiny::context();
    let mut trainer = tiny::trainer(&ctx, tiny::model(), tiny::options(), true);
    for step in 0..4 {
        let result = trainer.train_step(&tiny::batch(5, 13, step)).unwrap();
        // The last micro-batch has one sequence of 13 tokens, each with two experts.
        let (counts, choices) = (result.expert_counts().unwrap(), result.expert_choices().unwrap());
        assert_eq!((counts.len(), choices.len()), (2, 2));
        for (counts, choices) in counts.iter().zip(&choices) {
            let chosen = |expert: i32| choices.iter().filter(|choice| **choice == expert).count() as i32;
            assert_eq!(*counts, (0..4).map(chosen).collect::<Vec<_>>());
            assert_eq!(choices.len(), 26);
        }
    }
}

#[test]
fn wrong_batches_are_refused_and_change_nothing() {
    let ctx = tiny::context();
    let mut trainer = tiny::trainer(&ctx, tiny::model(), tiny::options(), true);
    train(&mut trainer);
    let before = tiny::state(&trainer);
    let mut wrong = |change: &dyn Fn(&mut nn_core::train::Batch)| {
        let mut batch = tiny::batch(5, 13, 1);
        change(&mut batch);
        trainer.train_step(&batch).expect_err("the batch is wrong")
    };
    let error = wrong(&|batch| batch.inputs[16] = 48);
    assert!(matches!(error, Error::OutOfRange(_)) && error.exit_code() == 3);
    assert_eq!(error.to_string(), "input_ids[1, 3] is 48; it must be 0 to 47");
    let error = wrong(&|batch| batch.targets[0] = -1);
    assert_eq!(error.to_string(), "targets[0, 0] is -1; it must be 0 to 47, or -100");
    let error = wrong(&|batch| batch.targets.fill(-100));
    assert_eq!(error.to_string(), "no target counts: all are -100");
    let error = wrong(&|batch| batch.rows = 4);
    assert!(error.to_string().contains("a batch of 4 sequences has 13 of each a sequence"), "{error}");
    assert_eq!((tiny::state(&trainer), trainer.step()), (before, 10));
}

#[test]
fn wrong_options_are_refused() {
    let ctx = tiny::context();
    let model = |training| MoETransformer::zeros(&ctx, tiny::model(), training, Precision::F32).unwrap();
    let long = TrainConfig { sequence_length: 33, ..tiny::options() };
    let error = Trainer::new(model(true), long, true).unwrap_err();
    assert_eq!(error.to_string(), "sequence_length is 33; this model's context is 32");
    let error = Trainer::new(model(false), tiny::options(), true).unwrap_err();
    assert_eq!(error.to_string(), "this model was made for inference: it has no gradients");
    let mut config = tiny::model();
    config.head_dim = 9;
    assert!(MoETransformer::zeros(&ctx, config, true, Precision::F32).is_err());
}
