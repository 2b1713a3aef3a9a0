//! Ranks that share the experts out, each in a thread: to the bits and bytes of one rank alone.

mod tiny;

use std::sync::atomic::Ordering;

use nn_core::format::Table;
use nn_core::model::{MoEConfig, MoETransformer, Precision};
use nn_core::train::{
    Checkpoint, Event, MomentsKind, Rank, ReduceDtype, Sources, TrainConfig, Trainer, TrainingRun, TrainingState,
    save_checkpoint,
};
use nn_core::{Error, Result};
use tiny::{Files, Workshop, job, left, number_of, peer_text};

/// Enough parameters for four grains. Some slots are dropped.
fn model() -> MoEConfig {
    MoEConfig { ffn_size: 200, ..tiny::model() }
}

/// Six micro-batches an update, the last one shorter, of five replicas: of four ranks some are guests in a round.
fn options() -> TrainConfig {
    TrainConfig { batch_size: 11, replicas: 5, steps: 4, save_every: 2, eval_every: 3, ..tiny::options() }
}

/// The rank of a job whose groups have so many.
fn shared(rank: Rank<'_>, expert_parallel: usize) -> Rank<'_> {
    rank.with_expert_parallel(expert_parallel)
}

fn trainer(rank: Rank<'_>, config: MoEConfig, options: TrainConfig, capture: bool) -> Result<Trainer> {
    let model = MoETransformer::random_with(rank, config, options.seed, true, options.precision)?;
    Trainer::with_comm(model, options, capture, rank.comm())
}

/// Ranks, and how many of them share the experts out.
type Jobs = &'static [(usize, usize)];

/// As many replicas as ranks or more, several micro-batches of each or one, in each precision, with and without what is
/// found again.
fn cases() -> [(MoEConfig, TrainConfig, Jobs); 4] {
    let wide = MoEConfig { capacity_factor: None, num_experts: 8, experts_per_token: 3, ffn_size: 90, ..tiny::model() };
    [
        (model(), options(), &[(2, 2), (4, 2), (4, 4)]),
        (
            wide,
            TrainConfig {
                batch_size: 4,
                micro_batch_size: Some(1),
                replicas: 4,
                precision: Precision::BF16,
                moments: MomentsKind::BF16,
                activation_checkpointing: 1,
                ..options()
            },
            &[(4, 2), (4, 4)],
        ),
        (
            model(),
            TrainConfig {
                batch_size: 17,
                replicas: 4,
                precision: Precision::F16,
                moments: MomentsKind::F8,
                activation_checkpointing: 2,
                recompute_experts: true,
                ..options()
            },
            &[(2, 2), (4, 2)],
        ),
        (
            MoEConfig { capacity_factor: None, ..model() },
            TrainConfig { replicas: 6, precision: Precision::BF16, reduce_dtype: ReduceDtype::BF16, ..options() },
            &[(3, 1), (4, 4), (6, 2)],
        ),
    ]
}

#[test]
fn ranks_that_share_experts_leave_what_one_leaves() {
    for (model, options, jobs) in cases() {
        let (workshop, precision) = (Workshop::new(true), options.precision);
        let run = |ranks: usize, expert_parallel: usize| {
            let name = format!("run {ranks} {expert_parallel}");
            job(ranks, |rank| {
                let rank = shared(rank, expert_parallel);
                let mut run = workshop.begin(rank, &name, model.clone(), options.clone()).unwrap();
                run.run(|_| Ok(())).unwrap();
                assert_eq!(run.trainer().eager_reason(), None, "{name}");
            });
            left(&workshop, &name)
        };
        let (wanted, numbers) = run(1, 1);
        for &(ranks, expert_parallel) in jobs {
            let (files, metrics) = run(ranks, expert_parallel);
            assert_eq!(
                (files.len(), metrics),
                (wanted.len(), numbers.clone()),
                "{ranks} {expert_parallel} {precision}"
            );
            for (file, wanted) in files.iter().zip(&wanted) {
                assert!(file == wanted, "{}: {ranks} ranks, {expert_parallel}, {precision}", file.0.display());
            }
        }
    }
}

/// The state of a run after some steps of random batches.
fn state(trainer: &Trainer) -> TrainingState {
    TrainingState {
        step: trainer.step(),
        data_position: 0,
        data_windows: 1,
        seconds: 0.0,
        train: trainer.config().clone(),
        held_out_loss: None,
        loss_scaling: trainer.loss_scaling().unwrap(),
        base: None,
    }
}

#[test]
fn steps_call_by_call_have_the_same_bits() {
    let workshop = Workshop::new(false);
    let saved = |ranks: usize, expert_parallel: usize| {
        let root = workshop.path(&format!("of {ranks}"));
        let told = job(ranks, |rank| {
            let mut trainer = trainer(shared(rank, expert_parallel), model(), options(), false).unwrap();
            let told: Vec<_> = (0..2)
                .map(|step| {
                    let all = tiny::batch(11, 13, step);
                    let of = |ids: &[i32]| trainer.rows().flat_map(|row| ids[13 * row..][..13].to_vec()).collect();
                    let (inputs, targets) = (of(&all.inputs), of(&all.targets));
                    let batch = nn_core::train::Batch {
                        rows: trainer.rows().count(),
                        length: 13,
                        inputs,
                        targets,
                        document_ends: None,
                    };
                    let result = trainer.train_step(&batch).unwrap();
                    (result.loss().unwrap().to_bits(), result.expert_counts().unwrap())
                })
                .collect();
            assert_eq!(trainer.eager_reason(), Some("capture is off"));
            let ids = rank.context().tensor(&[1, 2, 3], &[1, 3]).unwrap();
            assert_eq!(trainer.model().evaluate(&ids, &ids).is_ok(), ranks == 1); // the others would not come
            save_checkpoint(&root, &trainer, &state(&trainer), None).unwrap();
            told
        });
        (told[0].clone(), std::fs::read(root.join("step-00000002/model.safetensors")).unwrap())
    };
    let wanted = saved(1, 1);
    assert!(saved(4, 2) == wanted);
}

#[test]
fn other_ranks_and_groups_go_on_to_the_same_bytes() {
    let workshop = Workshop::new(true);
    let options = TrainConfig { precision: Precision::BF16, moments: MomentsKind::F8, steps: 5, ..options() };
    let start = |rank: Rank<'_>, name: &str| workshop.begin(rank, name, model(), options.clone()).unwrap();
    job(1, |rank| start(rank, "whole").run(|_| Ok(())).unwrap());
    for (ranks, expert_parallel, stop_at) in [(4, 2, 1), (4, 4, 2), (2, 1, 3), (2, 2, 4), (1, 1, 5)] {
        job(ranks, |rank| {
            let rank = shared(rank, expert_parallel);
            let mut run = if stop_at == 1 {
                start(rank, "parts")
            } else {
                let sources = Sources::new(workshop.path("data.tokens"), Some(workshop.path("held-out.tokens")));
                TrainingRun::resume(&workshop.path("parts"), rank, &sources, &Table::new()).unwrap()
            };
            let stop = run.stop_flag();
            let done = run.run(|event| {
                if let Event::Step(progress) = event {
                    stop.store(progress.step == stop_at, Ordering::Relaxed);
                }
                Ok(())
            });
            assert_eq!(done.unwrap().unwrap().step, stop_at);
        });
    }
    let ((files, metrics), (wanted, numbers)) = (left(&workshop, "parts"), left(&workshop, "whole"));
    assert_eq!(metrics, numbers);
    let of_last = |files: &Files| -> Files {
        files.iter().filter(|(path, _)| path.starts_with("checkpoints/step-00000005")).cloned().collect()
    };
    assert!(of_last(&files) == of_last(&wanted) && of_last(&files).len() == 4);
}

#[test]
fn a_rank_has_memory_for_its_experts() {
    let options = TrainConfig { batch_size: 8, micro_batch_size: Some(1), replicas: 8, ..options() };
    let config = MoEConfig { ffn_size: 2000, ..model() };
    let used = |expert_parallel| {
        let used = job(4, |rank| {
            let trainer = trainer(shared(rank, expert_parallel), config.clone(), options.clone(), true).unwrap();
            trainer.model().context().bytes_used().unwrap()
        });
        used.into_iter().max().unwrap()
    };
    // Of the arenas the own experts, what they come to beside them, and quarters of sums.
    let (whole, parts) = (used(1), used(4));
    assert!(4 * parts < 3 * whole, "{parts} of {whole} bytes");
}

#[test]
fn what_takes_all_experts_is_refused() {
    let errors = job(4, |rank| {
        let mut trainer = trainer(shared(rank, 2), model(), options(), true).unwrap();
        let gathered = trainer.gather_parameters();
        let model = trainer.model();
        let ids = model.context().tensor(&[1, 2, 3], &[1, 3]).unwrap();
        // A layer whose parameters the rank does not update.
        let layer = if number_of(rank) < 2 { 1 } else { 0 };
        let name = |position| format!("model.layers.{layer}.block_sparse_moe.experts.{}.w2.weight", 2 * position);
        let (own, other) = (name(number_of(rank) % 2), name(1 - number_of(rank) % 2));
        model.weights().get(&own).unwrap();
        let refused = [
            model.parameters().get(&other).map(|_| ()),
            model.parameters().to_vec().map(|_| ()),
            model.gradients().and_then(|gradients| gradients.get(&other)).map(|_| ()),
            model.forward(&ids).map(|_| ()),
            model.evaluate(&ids, &ids).map(|_| ()),
            model.cache(1, 8).map(|_| ()),
            model.round_weights(),
            gathered,
        ];
        refused.map(|result| result.unwrap_err().to_string())
    });
    for (rank, errors) in errors.into_iter().enumerate() {
        let experts = ["0 to 1", "2 to 3"][rank % 2];
        let wanted = format!("this rank holds experts {experts} of 4 alone; save_checkpoint of its trainer writes all");
        assert_eq!(errors.to_vec(), vec![wanted; 8]);
    }
}

#[test]
fn groups_that_do_not_fit_are_refused() {
    let error = |ranks, expert_parallel, config: &MoEConfig| {
        let made =
            |rank: Rank<'_>| trainer(shared(rank, expert_parallel), config.clone(), options(), true).unwrap_err();
        job(ranks, made)[0].to_string()
    };
    let six = MoEConfig { num_experts: 6, ..model() };
    assert_eq!(error(4, 3, &six), "expert_parallel is 3; it must divide the 4 ranks and the 6 experts");
    assert_eq!(error(4, 4, &six), "expert_parallel is 4; it must divide the 4 ranks and the 6 experts");
    assert_eq!(error(2, 0, &six), "expert_parallel is 0; it must divide the 2 ranks and the 6 experts");
    assert_eq!(error(1, 2, &six), "expert_parallel is 2; it must divide the 1 ranks and the 6 experts");
    let few = TrainConfig { replicas: 3, ..options() };
    for error in job(4, |rank| trainer(shared(rank, 2), model(), few.clone(), true).unwrap_err()) {
        assert_eq!(error.to_string(), "4 ranks share out replicas: replicas must be at least 4, and is 3");
    }
    let errors = job(2, |rank| trainer(shared(rank, 1 + number_of(rank)), model(), options(), true).unwrap_err());
    for error in errors {
        assert!(peer_text(&error).contains("the expert parallel of rank 1 (2) is not that of rank 0 (1)"), "{error}");
    }
    let errors = job(2, |rank| {
        let model = MoETransformer::random_with(shared(rank, 2), model(), 1, true, Precision::F32);
        Trainer::new(model.unwrap(), options(), true).unwrap_err().to_string()
    });
    assert_eq!(errors, ["the ranks that share out this model's experts must be those that train it"; 2]);
}

#[test]
fn all_ranks_find_divergence_without_a_search() {
    let workshop = Workshop::new(true);
    for (max_loss, words) in [
        (
            None,
            "the loss is nan at step 1: the place where it began is not searched for while experts are on several ranks",
        ),
        (
            Some(0.1),
            "above max_loss (0.1): the largest gradient is not searched for while experts are on several ranks",
        ),
    ] {
        let errors = job(4, |rank| {
            let (name, options) = (format!("run {}", max_loss.is_some()), TrainConfig { max_loss, ..options() });
            let mut run = workshop.begin(shared(rank, 2), &name, model(), options).unwrap();
            if max_loss.is_none() {
                let weights = run.trainer().model().weights();
                weights.set("model.norm.weight", &[f32::INFINITY; 24]).unwrap();
            }
            run.run(|_| Ok(())).unwrap_err()
        });
        for error in errors {
            assert!(matches!(error, Error::Diverged(_)), "{error:?}");
            assert!(error.to_string().to_lowercase().contains(words), "{error}");
        }
    }
}

#[test]
fn a_checkpoint_is_read_by_one_rank() {
    let workshop = Workshop::new(false);
    let root = workshop.path("saved");
    job(2, |rank| {
        let trainer = trainer(shared(rank, 2), model(), options(), true).unwrap();
        save_checkpoint(&root, &trainer, &state(&trainer), None).unwrap();
    });
    let ctx = tiny::context();
    let loaded = Checkpoint::open(&root.join("step-00000000")).unwrap().trainer(&ctx).unwrap();
    assert_eq!(tiny::state(&loaded), tiny::state(&tiny::trainer(&ctx, model(), options(), true)));
}

#[test]
fn a_rank_that_fails_ends_the_others() {
    let workshop = Workshop::new(false);
    let errors = job(4, |rank| {
        let report = |event: Event<'_>| match event {
            Event::Step(progress) if progress.step == 2 && number_of(rank) == 1 => Err(Error::value("enough")),
            _ => Ok(()),
        };
        workshop.begin(shared(rank, 2), "run", model(), options()).unwrap().run(report).unwrap_err()
    });
    assert_eq!(errors[1].to_string(), "enough");
    for error in [&errors[0], &errors[2], &errors[3]] {
        assert!(peer_text(error).contains("rank 1: enough"), "{error}");
    }
}
