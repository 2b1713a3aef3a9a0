//! Models and trainers that several threads share: each thread gets the bits that it would get alone.

mod tiny;

use std::sync::{Arc, Mutex};
use std::thread;

use nn_core::generate::{Sampling, generate};
use nn_core::model::MoETransformer;
use nn_core::replay::Replay;
use nn_core::train::{Checkpoint, Moments, Optimizer, Trainer, TrainingRun};

/// Whether threads may pass a type on and share it, which the compiler answers.
const fn shared<T: Send + Sync + 'static>() {}

const _: () = {
    shared::<MoETransformer>();
    shared::<Trainer>();
    shared::<Optimizer>();
    shared::<Moments>();
    shared::<Replay>();
    shared::<Sampling>();
    shared::<TrainingRun>();
    shared::<Checkpoint>();
    shared::<nn_core::tokenizer::Tokenizer>();
    shared::<nn_core::Error>();
};

fn tokens(model: &MoETransformer, seed: i64) -> Vec<i32> {
    let sampling = Sampling { temperature: 0.9, seed, ..Sampling::default() };
    // Prompts of several lengths, one of them beyond the context, which makes tables of its own.
    let prompt: Vec<i32> = tiny::ids(1 + 9 * seed as usize, 1).into_iter().map(|id| id as i32).collect();
    generate(model, &prompt, 20, &sampling, None).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn threads_generate_from_one_model_at_the_same_time() {
    let model = Arc::new(MoETransformer::random(&tiny::context(), tiny::model(), 3).unwrap());
    let alone: Vec<_> = (0..5).map(|seed| tokens(&model, seed)).collect();
    for _ in 0..3 {
        let threads: Vec<_> = (0..5)
            .map(|seed| {
                let model = Arc::clone(&model);
                thread::spawn(move || tokens(&model, seed))
            })
            .collect();
        let together: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(together, alone);
    }
}

#[test]
fn a_trainer_that_others_ask_between_its_steps_trains_to_the_same_bits() {
    let ctx = tiny::context();
    let trainer = || tiny::trainer(&ctx, tiny::model(), tiny::options(), true);
    let mut alone = trainer();
    for step in 0..12 {
        alone.train_step(&tiny::batch(5, 13, step)).unwrap();
    }
    let shared = Mutex::new(trainer());
    // Another model on the same context computes meanwhile, also while a step is captured.
    let beside = MoETransformer::random(&ctx, tiny::model(), 4).unwrap();
    let of_beside = tokens(&beside, 2);
    thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..12 {
                shared.lock().unwrap().train_step(&tiny::batch(5, 13, step)).unwrap();
            }
        });
        scope.spawn(|| (0..4).for_each(|seed| drop(tokens(shared.lock().unwrap().model(), seed))));
        scope.spawn(|| (0..4).for_each(|_| assert_eq!(tokens(&beside, 2), of_beside)));
    });
    let shared = shared.into_inner().unwrap();
    assert_eq!(tiny::state(&shared), tiny::state(&alone));
    assert_eq!(shared.eager_reason(), None);
}
