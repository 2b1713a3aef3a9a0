//! Gradients of which each rank of a job keeps those alone that it updates.

mod tiny;

use nn_core::model::{MoEConfig, MoETransformer, ParameterLayout, Precision};
use nn_core::train::{Batch, Event, MomentsKind, Rank, ReduceDtype, Sources, TrainConfig, Trainer, TrainingRun};
use nn_core::{Error, Result, format::Table};
use tiny::{Workshop, job, left, number_of};

const PARTITIONED: &str = "this rank keeps the gradients of the parameters that it updates alone";

/// Enough parameters for four grains.
fn shallow() -> MoEConfig {
    MoEConfig { ffn_size: 200, ..tiny::model() }
}

/// So many layers that three of them are less than all.
fn deep() -> MoEConfig {
    MoEConfig { num_layers: 8, ..shallow() }
}

/// One micro-batch a replica, the last one shorter.
fn options(replicas: usize) -> TrainConfig {
    TrainConfig { batch_size: 2 * replicas - 1, replicas, steps: 6, save_every: 2, eval_every: 3, ..tiny::options() }
}

fn made(rank: Rank<'_>, config: MoEConfig, options: TrainConfig, capture: bool) -> Result<Trainer> {
    let model = MoETransformer::random_with(rank, config, 3, true, options.precision)?;
    Trainer::with_comm(model, options, capture, rank.comm())
}

/// A step of this rank's part of a batch; gives its loss and the norm of its gradients.
fn step_of(trainer: &mut Trainer, seed: u64) -> [u64; 2] {
    let all = tiny::batch(trainer.config().batch_size, 13, seed);
    let of = |ids: &[i32]| trainer.rows().flat_map(|row| ids[13 * row..][..13].to_vec()).collect();
    let (inputs, targets) = (of(&all.inputs), of(&all.targets));
    let batch = Batch { rows: trainer.rows().count(), length: 13, inputs, targets, document_ends: None };
    let result = trainer.train_step(&batch).unwrap();
    [result.loss(), result.grad_norm()].map(|number| number.unwrap().to_bits())
}

#[test]
fn steps_have_the_bits_of_one_rank() {
    for (precision, moments, reduce_dtype) in [
        (Precision::F32, MomentsKind::F32, ReduceDtype::F32),
        (Precision::BF16, MomentsKind::BF16, ReduceDtype::F32),
        (Precision::BF16, MomentsKind::F32, ReduceDtype::BF16),
        (Precision::F16, MomentsKind::F8, ReduceDtype::F16),
    ] {
        for replicas in [2, 3, 5, 8] {
            let options = TrainConfig { precision, moments, reduce_dtype, ..options(replicas) };
            for capture in [true, false] {
                let trained = |rank: Rank<'_>| {
                    let rank = rank.with_partitioned_gradients(rank.comm().is_some());
                    // Of two layers, so that the last piece but one finds its buffer in use, and of eight.
                    [shallow(), deep()].map(|config| {
                        let mut trainer = made(rank, config, options.clone(), capture).unwrap();
                        assert_eq!(trainer.model().gradients().unwrap().to_vec().is_err(), rank.comm().is_some());
                        let told: Vec<_> = (0..4).map(|seed| step_of(&mut trainer, seed)).collect();
                        assert_eq!(trainer.eager_reason(), if capture { None } else { Some("capture is off") });
                        trainer.gather_parameters().unwrap();
                        (told, tiny::bits(trainer.model().parameters()))
                    })
                };
                let alone = job(1, trained);
                for (rank, found) in job(replicas, trained).into_iter().enumerate() {
                    assert!(found == alone[0], "{precision}, {reduce_dtype}, rank {rank} of {replicas}, {capture}");
                }
            }
        }
    }
}

#[test]
fn a_rank_keeps_the_sums_that_it_updates() {
    let ranks = 8;
    let found = job(ranks, |rank| {
        [true, false].map(|partitions| {
            let (ctx, rank) = (rank.context(), rank.with_partitioned_gradients(partitions));
            let before = ctx.bytes_used().unwrap();
            let model = MoETransformer::random_with(rank, deep(), 3, true, Precision::F32).unwrap();
            let bytes = ctx.bytes_used().unwrap() - before;
            let mut trainer = Trainer::with_comm(model, options(ranks), true, rank.comm()).unwrap();
            step_of(&mut trainer, 1);
            let data = trainer.model().gradients().unwrap().data();
            let own = trainer.device_moments().own().iter();
            let sums = own.map(|own| data.narrow(0, own.start, own.len()).unwrap().to_vec::<f32>().unwrap());
            (sums.flatten().map(f32::to_bits).collect::<Vec<_>>(), bytes)
        })
    });
    let layout = ParameterLayout::new(&deep()).unwrap();
    let mut pieces: Vec<_> = layout.backward_pieces().iter().map(ExactSizeIterator::len).collect();
    let (gains, largest) = (pieces.pop().unwrap(), pieces.into_iter().max().unwrap());
    for [(kept, less), (of_all, more)] in found {
        assert!(kept == of_all);
        let gradients = less + 4 * layout.size() - more;
        let most = 4 * (3 * largest + layout.size() / ranks + 2 * 32768 + gains);
        assert!((4 * 3 * largest..=most).contains(&gradients), "{gradients} bytes");
    }
}

#[test]
fn what_others_keep_is_refused() {
    job(3, |rank| {
        let rank = rank.with_partitioned_gradients(true);
        let mut trainer = made(rank, deep(), options(3), true).unwrap();
        step_of(&mut trainer, 1);
        let gradients = trainer.model().gradients().unwrap();
        for refused in [gradients.to_vec().map(|_| ()), gradients.get("lm_head.weight").map(|_| ())] {
            match refused {
                Err(error) => assert_eq!(error.to_string(), PARTITIONED),
                Ok(()) => assert_eq!(number_of(rank), 2), // which updates the head
            }
        }
        assert_eq!(gradients.get("model.norm.weight").unwrap().shape(), [24]);
        trainer.gather_parameters().unwrap(); // which are whole
        tiny::bits(trainer.model().parameters());
    });
}

#[test]
fn only_with_one_micro_batch_a_rank() {
    let errors = job(3, |rank| {
        let rank = rank.with_partitioned_gradients(true);
        let refused = |options: TrainConfig| made(rank, deep(), options, true).unwrap_err().to_string();
        let model = MoETransformer::random_with(rank, deep(), 3, true, Precision::F32).unwrap();
        let elsewhere = Trainer::new(model, options(3), true).unwrap_err().to_string();
        let inference = MoETransformer::random_with(rank, deep(), 3, false, Precision::F32).unwrap_err().to_string();
        let shared = MoEConfig { num_experts: 3, ..deep() };
        let shared = MoETransformer::random_with(rank.with_expert_parallel(3), shared, 3, true, Precision::F32);
        let more = [TrainConfig { batch_size: 8, ..options(3) }, options(4)];
        (more.map(refused), elsewhere, [inference, shared.unwrap_err().to_string()])
    });
    let several = "this model's gradients are partitioned: each rank must run one micro-batch of an update";
    let elsewhere = "the ranks that share out this model's parameters must be those that train it";
    let none = "gradients are partitioned among the ranks of a comm, which train all experts each";
    for (refused, trained_elsewhere, impossible) in errors {
        assert_eq!(refused, [several; 2]);
        assert_eq!(trained_elsewhere, elsewhere);
        assert_eq!(impossible, [none; 2]);
    }
    let alone = |rank: Rank<'_>| made(rank.with_partitioned_gradients(true), deep(), options(1), true).unwrap_err();
    assert_eq!(job(1, alone)[0].to_string(), none);
}

/// Where it can, and that is less memory: then the run leaves what one rank leaves, also when it goes on on others.
#[test]
fn a_run_partitions_by_itself() {
    let workshop = Workshop::new(true);
    let start = |rank: Rank<'_>, name: &str, config, options| workshop.begin(rank, name, config, options).unwrap();
    let partitions = |run: &TrainingRun| run.trainer().model().gradients().unwrap().to_vec().is_err();
    let sources = Sources::new(workshop.path("data.tokens"), Some(workshop.path("held-out.tokens")));
    let options = TrainConfig { precision: Precision::BF16, reduce_dtype: ReduceDtype::BF16, ..options(3) };
    job(1, |rank| start(rank, "alone", deep(), options.clone()).run(|_| Ok(())).unwrap());
    job(3, |rank| {
        let mut run = start(rank, "run", deep(), options.clone());
        assert!(partitions(&run));
        let stop = run.stop_flag();
        let stopping = |event: Event<'_>| {
            if let Event::Step(progress) = event {
                stop.store(progress.step == 3, std::sync::atomic::Ordering::Relaxed);
            }
            Ok(())
        };
        run.run(stopping).unwrap();
        drop(run);
        let mut run = TrainingRun::resume(&workshop.path("run"), rank, &sources, &Table::new()).unwrap();
        assert!(partitions(&run));
        run.run(|_| Ok(())).unwrap();
    });
    let last = |name| {
        let (files, metrics) = left(&workshop, name);
        let of_last: Vec<_> =
            files.into_iter().filter(|(path, _)| path.starts_with("checkpoints/step-00000006")).collect();
        (of_last, metrics)
    };
    assert!(last("run") == last("alone") && last("run").0.len() == 4);
    job(3, |rank| {
        let few_layers = start(rank, "few layers", shallow(), options.clone());
        let more = start(rank, "more", deep(), TrainConfig { batch_size: 7, ..options.clone() });
        let fewer_ranks = TrainConfig { replicas: 4, batch_size: 4, micro_batch_size: Some(1), ..options.clone() };
        let all = start(rank, "all", deep(), fewer_ranks);
        assert!(![few_layers, more, all].iter().any(partitions));
    });
}

/// Where it began is found as ever; the largest gradient is not, not even where one rank keeps all, in the single grain of a
/// small model.
#[test]
fn divergence() {
    let workshop = Workshop::new(true);
    let small = MoEConfig { ffn_size: 4, ..deep() };
    assert!(ParameterLayout::new(&small).unwrap().size() < 32768);
    for (name, config) in [("deep", deep()), ("small", small)] {
        let found = |ranks: usize, options: &TrainConfig| {
            let name = format!("{name} {ranks} {:?}", options.max_loss);
            let errors = job(ranks, |rank| {
                let mut run = workshop.begin(rank, &name, config.clone(), options.clone()).unwrap();
                run.run(|_| Ok(())).unwrap_err()
            });
            assert!(errors.iter().all(|error| matches!(error, Error::Diverged(_))), "{errors:?}");
            errors.iter().map(Error::to_string).collect::<Vec<_>>()
        };
        let high = TrainConfig { learning_rate: 1e30, clip_norm: None, ..options(3) };
        let alone = found(1, &high);
        assert!(alone[0].contains(" not finite, first at "), "{}", alone[0]);
        assert_eq!(found(3, &high), vec![alone[0].clone(); 3]);
        let limited = TrainConfig { max_loss: Some(0.5), ..options(3) };
        let alone = found(1, &limited).remove(0);
        let (before, place) = alone.split_once("the largest gradient is that of ").unwrap();
        let behind = place.split_once(';').unwrap().1;
        let wanted =
            format!("{before}the largest gradient is not searched for while each rank keeps some of them;{behind}");
        assert_eq!(found(3, &limited), vec![wanted; 3]);
    }
}
