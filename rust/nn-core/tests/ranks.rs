//! Ranks that train together, each in a thread: to the bits and bytes of one rank alone.

mod tiny;

use std::sync::Barrier;
use std::sync::atomic::Ordering;

use nn_core::format::Table;
use nn_core::model::{MoEConfig, MoETransformer, Precision};
use nn_core::train::{
    Batch, Event, MomentsKind, Rank, ReduceDtype, Sources, TrainConfig, Trainer, TrainingRun, list_checkpoints,
};
use nn_core::{Error, Result};
use tiny::{Files, Workshop, job, left, number_of, peer_text};

/// Enough parameters for four grains, so that of five ranks one has none.
fn model() -> MoEConfig {
    MoEConfig { ffn_size: 200, ..tiny::model() }
}

/// Six micro-batches an update, the last one shorter, of five replicas.
fn options() -> TrainConfig {
    TrainConfig { batch_size: 11, replicas: 5, steps: 6, save_every: 2, eval_every: 3, ..tiny::options() }
}

fn start(workshop: &Workshop, rank: Rank<'_>, name: &str, options: TrainConfig) -> TrainingRun {
    workshop.begin(rank, name, model(), options).unwrap()
}

fn resume(workshop: &Workshop, rank: Rank<'_>, name: &str, data: &str) -> Result<TrainingRun> {
    let sources = Sources::new(workshop.path(data), Some(workshop.path("held-out.tokens")));
    TrainingRun::resume(&workshop.path(name), rank, &sources, &Table::new())
}

/// Nothing of an unfinished checkpoint.
fn has_no_leftovers(workshop: &Workshop, name: &str) -> bool {
    let mut entries = std::fs::read_dir(workshop.path(name).join("checkpoints")).unwrap();
    entries.all(|entry| !entry.unwrap().file_name().to_string_lossy().starts_with(".partial"))
}

#[test]
fn any_number_of_ranks_leaves_what_one_leaves() {
    for (precision, moments, reduce_dtype) in [
        (Precision::F32, MomentsKind::F32, ReduceDtype::F32),
        (Precision::BF16, MomentsKind::BF16, ReduceDtype::F32),
        (Precision::F32, MomentsKind::F32, ReduceDtype::BF16),
        (Precision::F16, MomentsKind::F8, ReduceDtype::F16),
    ] {
        let (workshop, options) = (Workshop::new(true), TrainConfig { precision, moments, reduce_dtype, ..options() });
        for ranks in [1, 2, 3, 5] {
            let name = format!("run {ranks}");
            job(ranks, |rank| start(&workshop, rank, &name, options.clone()).run(|_| Ok(())).unwrap());
            let (files, metrics) = left(&workshop, &name);
            let (wanted, numbers) = left(&workshop, "run 1");
            assert_eq!((files.len(), metrics), (wanted.len(), numbers), "{ranks} ranks, {precision}");
            for (file, wanted) in files.iter().zip(&wanted) {
                let path = file.0.display();
                assert!(file == wanted, "{path}: {ranks} ranks, {precision}, {moments:?}, {reduce_dtype}");
            }
        }
    }
}

#[test]
fn another_number_of_ranks_goes_on_to_the_same_bytes() {
    let workshop = Workshop::new(true);
    let options = TrainConfig { precision: Precision::BF16, moments: MomentsKind::F8, ..options() };
    job(1, |rank| start(&workshop, rank, "whole", options.clone()).run(|_| Ok(())).unwrap());
    for (ranks, stop_at) in [(3, 1), (5, 2), (1, 4), (2, 6)] {
        job(ranks, |rank| {
            let mut run = if stop_at == 1 {
                start(&workshop, rank, "parts", options.clone())
            } else {
                resume(&workshop, rank, "parts", "data.tokens").unwrap()
            };
            let (stop, last) = (run.stop_flag(), number_of(rank) + 1 == ranks);
            let done = run.run(|event| {
                if let Event::Step(progress) = event {
                    // One rank is told; all of them stop.
                    stop.store(last && progress.step == stop_at, Ordering::Relaxed);
                }
                Ok(())
            });
            assert_eq!(done.unwrap().unwrap().step, stop_at);
        });
    }
    let ((files, metrics), (wanted, numbers)) = (left(&workshop, "parts"), left(&workshop, "whole"));
    assert_eq!(metrics, numbers);
    let of_last = |files: &Files| -> Files {
        files.iter().filter(|(path, _)| path.starts_with("checkpoints/step-00000006")).cloned().collect()
    };
    assert!(of_last(&files) == of_last(&wanted) && of_last(&files).len() == 4);
}

#[test]
fn a_rank_that_fails_ends_the_others() {
    let workshop = Workshop::new(true);
    let errors = job(3, |rank| {
        let report = |event: Event<'_>| match event {
            Event::Step(progress) if progress.step == 3 && number_of(rank) == 1 => Err(Error::value("enough")),
            _ => Ok(()),
        };
        start(&workshop, rank, "run", options()).run(report).unwrap_err()
    });
    assert_eq!(errors[1].to_string(), "enough");
    for error in [&errors[0], &errors[2]] {
        assert!(peer_text(error).contains("rank 1: enough") && error.exit_code() == 4, "{error}");
    }
    assert!(has_no_leftovers(&workshop, "run"));
    let found = list_checkpoints(&workshop.path("run").join("checkpoints")).unwrap();
    assert!(found.len() == 1 && found[0].ends_with("step-00000002"));
    let joined = Barrier::new(2); // else joining may be what fails
    let errors = job(2, |rank| {
        joined.wait();
        let data = ["data.tokens", "nowhere.tokens"][number_of(rank)];
        resume(&workshop, rank, "run", data).and_then(|mut run| run.run(|_| Ok(()))).unwrap_err()
    });
    assert!(errors[1].to_string().contains("nowhere.tokens"), "{}", errors[1]);
    assert!(
        peer_text(&errors[0]).contains("rank 1: ") && peer_text(&errors[0]).contains("nowhere.tokens"),
        "{}",
        errors[0]
    );
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_nothing() {
    let workshop = Workshop::new(true);
    let name = |ranks| format!("run {ranks}");
    for ranks in [1, 3] {
        let errors = job(ranks, |rank| {
            let mut run = start(&workshop, rank, &name(ranks), options());
            let in_the_way = workshop.path(&name(ranks)).join("checkpoints/step-00000004");
            run.run(|event| {
                if matches!(event, Event::Step(progress) if progress.step == 3) && number_of(rank) == 0 {
                    std::fs::create_dir_all(&in_the_way).unwrap();
                }
                Ok(())
            })
            .unwrap_err()
        });
        assert!(errors[0].to_string().ends_with("step-00000004 exists already"), "{}", errors[0]);
        assert!(errors[1..].iter().all(|error| peer_text(error).contains("exists already")), "{errors:?}");
        assert!(has_no_leftovers(&workshop, &name(ranks)));
    }
}

#[test]
fn all_ranks_find_divergence() {
    let workshop = Workshop::new(true);
    let found = |ranks: usize, max_loss: Option<f64>| {
        let name = format!("run {ranks} {}", max_loss.is_some());
        let errors = job(ranks, |rank| {
            let mut run = start(&workshop, rank, &name, TrainConfig { max_loss, ..options() });
            if max_loss.is_none() {
                let model = run.trainer().model();
                model.parameters().set("model.norm.weight", &[f32::INFINITY; 24]).unwrap();
            }
            run.run(|_| Ok(())).unwrap_err()
        });
        assert!(errors.iter().all(|error| matches!(error, Error::Diverged(_))), "{errors:?}");
        errors.iter().map(Error::to_string).collect::<Vec<_>>()
    };
    for max_loss in [None, Some(0.1)] {
        let alone = found(1, max_loss);
        assert_eq!(found(4, max_loss), vec![alone[0].clone(); 4]);
    }
}

#[test]
fn ranks_that_do_not_fit_together_are_refused() {
    let made = |rank: Rank<'_>, options: TrainConfig| {
        let model = MoETransformer::random(rank.context(), tiny::model(), 1).unwrap();
        Trainer::with_comm(model, options, true, rank.comm())
    };
    for error in job(3, |rank| made(rank, TrainConfig { replicas: 2, ..options() }).unwrap_err()) {
        assert_eq!(error.to_string(), "3 ranks share out replicas: replicas must be at least 3, and is 2");
    }
    for error in job(2, |rank| made(rank, TrainConfig { seed: number_of(rank) as i64, ..options() }).unwrap_err()) {
        assert!(peer_text(&error).contains("the configuration of rank 1 is not that of rank 0"), "{error}");
    }
    let joined = Barrier::new(2); // else joining may be what fails
    let of_wrong_batch = |rank: Rank<'_>| {
        let mut trainer = made(rank, options()).unwrap();
        joined.wait();
        trainer.train_step(&tiny::batch(11, 13, 1)).unwrap_err()
    };
    for error in job(2, of_wrong_batch) {
        assert!(error.to_string().starts_with("a batch of 11; of this rank it must have its rows, "), "{error}");
    }
    let rows = job(3, |rank| made(rank, options()).unwrap().rows().collect::<Vec<_>>());
    assert_eq!(rows, [vec![0, 1, 10], vec![2, 3, 4, 5], vec![6, 7, 8, 9]]);
}

/// A trainer of this job behind some steps.
fn trained(rank: Rank<'_>, options: TrainConfig, steps: u64) -> Trainer {
    let model = MoETransformer::random_with(rank, model(), 3, true, options.precision).unwrap();
    let mut trainer = Trainer::with_comm(model, options, true, rank.comm()).unwrap();
    for step in 0..steps {
        step_of(&mut trainer, step);
    }
    trainer
}

/// A step of this rank's part of a batch of eleven.
fn step_of(trainer: &mut Trainer, seed: u64) {
    let all = tiny::batch(11, 13, seed);
    let of = |ids: &[i32]| trainer.rows().flat_map(|row| ids[13 * row..][..13].to_vec()).collect();
    let (inputs, targets) = (of(&all.inputs), of(&all.targets));
    let batch = Batch { rows: trainer.rows().count(), length: 13, inputs, targets, document_ends: None };
    trainer.train_step(&batch).unwrap();
}

#[test]
fn a_rank_has_the_f32_parameters_that_it_updates() {
    let options = TrainConfig { precision: Precision::BF16, ..options() };
    let alone = job(1, |rank| tiny::bits(trained(rank, options.clone(), 4).model().parameters()));
    let found = job(3, |rank| {
        let mut trainer = trained(rank, options.clone(), 3);
        let size = trainer.model().layout().size();
        let own: usize = trainer.device_moments().own().iter().map(ExactSizeIterator::len).sum();
        let model = trainer.model();
        for refused in [model.parameters().to_vec().map(|_| ()), model.round_weights()] {
            let wanted =
                "this rank has a part of the f32 parameters alone; gather_parameters of its trainer brings all";
            assert_eq!(refused.unwrap_err().to_string(), wanted);
        }
        let used = model.context().bytes_used().unwrap();
        trainer.gather_parameters().unwrap();
        tiny::bits(trainer.model().parameters());
        trainer.model().round_weights().unwrap();
        let more = trainer.model().context().bytes_used().unwrap() - used;
        // Behind the next step, which is replayed, they are old.
        step_of(&mut trainer, 3);
        assert_eq!(trainer.eager_reason(), None);
        assert!(trainer.model().parameters().to_vec().is_err());
        trainer.gather_parameters().unwrap();
        (own, size, more, tiny::bits(trainer.model().parameters()))
    });
    assert_eq!(found.iter().map(|rank| rank.0).sum::<usize>(), found[0].1);
    for (own, size, more, bits) in &found {
        assert!(bits == &alone[0] && own < size && *more == 4 * size, "{own} of {size}, {more} bytes");
    }
    let elsewhere = job(2, |rank| {
        let model = MoETransformer::random_with(rank, model(), 3, true, options.precision).unwrap();
        Trainer::new(model, options.clone(), true).unwrap_err().to_string()
    });
    assert_eq!(elsewhere, ["the ranks that share out this model's parameters must be those that train it"; 2]);
}

/// A model that was made whole has the f32 parameters of the other ranks until the first step, and those that are gathered
/// until the next.
#[test]
fn old_f32_parameters_are_refused() {
    let options = TrainConfig { precision: Precision::BF16, ..options() };
    let alone = job(1, |rank| tiny::bits(trained(rank, options.clone(), 2).model().parameters()));
    let found = job(2, |rank| {
        let model = MoETransformer::random_in(rank.context(), model(), 3, true, options.precision).unwrap();
        let mut trainer = Trainer::with_comm(model, options.clone(), true, rank.comm()).unwrap();
        tiny::bits(trainer.model().parameters());
        trainer.model().round_weights().unwrap();
        for step in 0..2 {
            step_of(&mut trainer, step);
            let model = trainer.model();
            assert!(model.parameters().to_vec().is_err() && model.round_weights().is_err());
            let before = model.context().bytes_used().unwrap();
            trainer.gather_parameters().unwrap();
            assert_eq!(trainer.model().context().bytes_used().unwrap(), before);
            trainer.model().round_weights().unwrap();
        }
        // A step that is refused changes none of them.
        let (rows, length) = (trainer.rows().count(), 13);
        let batch = Batch {
            rows,
            length,
            inputs: vec![1; rows * length],
            targets: vec![-100; rows * length],
            document_ends: None,
        };
        assert_eq!(trainer.train_step(&batch).unwrap_err().to_string(), "no target counts: all are -100");
        tiny::bits(trainer.model().parameters())
    });
    assert!(found.iter().all(|bits| bits == &alone[0]));
}

/// Other bits than those of sums in f32, and fewer bytes: of each parameter three of four ranks send a sum.
#[test]
fn sums_in_16_bits_are_half_the_bytes() {
    let run = |reduce_dtype| {
        let found = job(4, |rank| {
            let mut trainer = trained(rank, TrainConfig { reduce_dtype, ..options() }, 1);
            let before = trainer.bytes_sent().unwrap();
            step_of(&mut trainer, 1);
            let sent = trainer.bytes_sent().unwrap() - before;
            (sent, tiny::bits(trainer.model().parameters()))
        });
        (found.iter().map(|rank| rank.0).sum::<u64>(), found[0].1.clone())
    };
    let ((exact, wanted), (rounded, other)) = (run(ReduceDtype::F32), run(ReduceDtype::BF16));
    assert!(wanted != other);
    // Of five replicas on four ranks one sum more waits for its neighbour, on the rank with two.
    assert!(exact - rounded >= 3 * 2 * wanted.len() as u64, "{exact} and {rounded} bytes");
}
