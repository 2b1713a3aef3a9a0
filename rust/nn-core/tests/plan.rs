//! The plan of a run's memory is what is then measured.

mod tiny;

use std::time::{Duration, Instant};

use nn_core::model::MoETransformer;
use nn_core::model::{MoEConfig, Precision};
use nn_core::plan::{Seat, plan_growth, plan_ranks, plan_steps, plan_training, training_work, work_of_rank};
use nn_core::train::{Batch, Rank, ReduceDtype, TrainConfig, Trainer};
use nn_ffi::{Comm, Context, Device, Machine, Transport};

/// Of what is measured.
const TOLERANCE: f64 = 0.01;

fn wide() -> MoEConfig {
    MoEConfig {
        vocab_size: 512,
        hidden_size: 96,
        num_layers: 4,
        num_heads: 6,
        num_kv_heads: 2,
        head_dim: 16,
        num_experts: 4,
        experts_per_token: 2,
        ffn_size: 128,
        context: 256,
        extended_context: 512,
        ..MoEConfig::default()
    }
}

fn options() -> TrainConfig {
    TrainConfig { steps: 9, warmup_steps: Some(1), batch_size: 8, sequence_length: 128, ..TrainConfig::default() }
}

fn near(name: &str, planned: usize, measured: usize) {
    let off = (planned as f64 - measured as f64).abs() / measured as f64;
    assert!(off <= TOLERANCE, "{name}: planned {planned} bytes, measured {measured}");
}

#[test]
fn the_plan_is_what_is_measured() {
    let deep = MoEConfig { num_layers: 9, hidden_size: 64, ..wide() };
    let many = MoEConfig { num_experts: 16, experts_per_token: 4, num_layers: 2, capacity_factor: Some(1.5), ..wide() };
    let large = MoEConfig { vocab_size: 6000, num_layers: 2, ..wide() }; // three chunks of logits
    let cases = [
        ("f32", wide(), options()),
        (
            "every block, deep",
            deep,
            TrainConfig { precision: Precision::F16, activation_checkpointing: 1, ..options() },
        ),
        (
            "accumulated, many experts",
            many,
            TrainConfig { precision: Precision::BF16, micro_batch_size: Some(3), ..options() },
        ),
        (
            "every second block, large vocabulary",
            large,
            TrainConfig {
                precision: Precision::F16,
                activation_checkpointing: 2,
                recompute_experts: true,
                ..options()
            },
        ),
    ];
    for (name, model, train) in cases {
        for capture in [true, false] {
            let ctx = Context::open(Device::Cpu, Some(2), None).unwrap();
            let ids: Vec<i32> =
                (0..train.batch_size * train.sequence_length).map(|at| (at * 7919 % model.vocab_size) as i32).collect();
            let length = train.sequence_length;
            let batch =
                Batch { rows: train.batch_size, length, inputs: ids.clone(), targets: ids, document_ends: None };
            let mut trainer = tiny::trainer(&ctx, model.clone(), train.clone(), capture);
            for _ in 0..3 {
                trainer.train_step(&batch).unwrap();
            }
            let machine = ctx.machine().unwrap();
            let planned = plan_steps(&model, &train, machine, Seat::ALONE, false, capture).unwrap();
            near(name, planned.peak, ctx.bytes_peak().unwrap());
            let sum: usize = planned.bytes.iter().sum();
            assert_eq!((sum, planned.held), (planned.peak, planned.peak));
        }
    }
}

/// Of seven micro-batches four are left out where a step is planned, or fewer where replicas have one each, and of the rest
/// those that make the same calls as another; none where it is made.
#[test]
fn micro_batches_that_are_not_run_count() {
    for (replicas, rows, micro, reduce_dtype) in [
        (1, 7, 1, ReduceDtype::F32),
        (2, 7, 1, ReduceDtype::F16),
        (3, 13, 2, ReduceDtype::BF16),
        (5, 7, 1, ReduceDtype::F32),
        (6, 13, 2, ReduceDtype::F16),
    ] {
        let train = TrainConfig {
            batch_size: rows,
            micro_batch_size: Some(micro),
            replicas,
            reduce_dtype,
            precision: Precision::F16,
            sequence_length: 64,
            ..options()
        };
        let (ctx, ids) = (Context::open(Device::Cpu, Some(2), None).unwrap(), vec![1; rows * 64]);
        let mut trainer = tiny::trainer(&ctx, wide(), train.clone(), true);
        let batch = Batch { rows, length: 64, inputs: ids.clone(), targets: ids, document_ends: None };
        for _ in 0..2 {
            trainer.train_step(&batch).unwrap();
        }
        let planned = plan_training(&wide(), &train, ctx.machine().unwrap(), false).unwrap();
        near("seven micro-batches", planned.peak, ctx.bytes_peak().unwrap());
        let ((), profile) = ctx.profile(|| trainer.train_step(&batch).map(|_| ())).unwrap();
        let work = training_work(&wide(), &train, ctx.machine().unwrap()).unwrap();
        let read: serde_json::Value = serde_json::from_str(&profile.json).unwrap();
        for (name, found) in [("flops", work.flops()), ("bytes", work.bytes())] {
            let made: f64 = read["kernels"].as_array().unwrap().iter().map(|row| row[name].as_f64().unwrap()).sum();
            assert_eq!(made as i128, found, "{name} of {replicas} replicas");
        }
    }
}

/// The most bytes that a rank of a job in threads needs, and those that its last step sends.
fn measured(train: &TrainConfig, rank: usize, ranks: usize, expert_parallel: usize, partitions: bool) -> (usize, u64) {
    let ctx = Context::open(Device::Cpu, Some(1), None).unwrap();
    let name = format!("plan of {ranks} in {expert_parallel}");
    let comm = Comm::new(&ctx, Transport::Threads, &name, Some((rank, ranks)), Duration::from_secs(60)).unwrap();
    let seat = Rank::from(&comm).with_expert_parallel(expert_parallel).with_partitioned_gradients(partitions);
    let model = MoETransformer::random_with(seat, wide(), 0, true, train.precision).unwrap();
    let mut trainer = Trainer::with_comm(model, train.clone(), true, Some(&comm)).unwrap();
    let (rows, length) = (trainer.rows().count(), train.sequence_length);
    let ids: Vec<i32> = (0..rows * length).map(|at| (at * 7919 % wide().vocab_size) as i32).collect();
    let batch = Batch { rows, length, inputs: ids.clone(), targets: ids, document_ends: None };
    let mut sent = 0;
    for _ in 0..3 {
        let before = trainer.bytes_sent().unwrap();
        trainer.train_step(&batch).unwrap();
        sent = trainer.bytes_sent().unwrap() - before;
    }
    (ctx.bytes_peak().unwrap(), sent)
}

#[test]
fn ranks_need_and_send_what_is_planned() {
    let train = |batch_size, replicas, precision| TrainConfig {
        batch_size,
        micro_batch_size: Some(2),
        replicas,
        precision,
        reduce_dtype: ReduceDtype::BF16,
        sequence_length: 16,
        ..options()
    };
    let machine = Machine::Cpu { isa: None, threads: Some(1) };
    let (many, each) = (train(59, 8, Precision::BF16), |ranks, precision| train(2 * ranks - 1, ranks, precision));
    for (ranks, expert_parallel, train, partitions) in [
        (2, 1, &many, false),
        (3, 1, &many, false),
        (8, 1, &many, false),
        (4, 2, &many, false),
        (4, 4, &many, false),
        (8, 1, &each(8, Precision::BF16), true),
        (7, 1, &each(7, Precision::F32), true),
        (8, 1, &train(32, 8, Precision::F32), false), // whose plan looks at fewer micro-batches
    ] {
        let found: Vec<(usize, u64)> = std::thread::scope(|scope| {
            let measured = |rank| scope.spawn(move || measured(train, rank, ranks, expert_parallel, partitions));
            let jobs: Vec<_> = (0..ranks).map(measured).collect();
            jobs.into_iter().map(|job| job.join().unwrap()).collect()
        });
        let (mut held, mut most) = (0, 0);
        for (rank, (peak, sent)) in found.into_iter().enumerate() {
            let seat = Seat { rank, ranks, expert_parallel };
            let planned = plan_steps(&wide(), train, machine, seat, false, true).unwrap();
            near(&format!("{seat:?}"), planned.peak, peak);
            let will_send = work_of_rank(&wide(), train, machine, seat).unwrap().1;
            if expert_parallel == 1 {
                assert_eq!(will_send, sent, "{seat:?}");
            } else {
                // How many rows go to others is known when they go.
                assert!(will_send.abs_diff(sent) < sent / 10, "{seat:?}: planned {will_send} bytes, sent {sent}");
            }
            held = held.max(plan_steps(&wide(), train, machine, seat, true, true).unwrap().held);
            most = most.max(will_send);
        }
        let whole = plan_ranks(&wide(), train, machine, ranks, expert_parallel).unwrap();
        assert_eq!((whole.memory.held, whole.sent), (held, most));
        assert!(most > 0);
    }
    assert!(plan_ranks(&wide(), &many, machine, 4, 3).is_err());
    assert!(plan_ranks(&wide(), &many, machine, 9, 1).is_err());
}

/// Also where the borders of experts leave some grains with another rank of their group, which others then send.
#[test]
fn no_rank_sends_more_than_is_planned() {
    let sizes = |vocab_size, hidden_size: usize, ffn_size, num_experts, num_layers| MoEConfig {
        vocab_size,
        hidden_size,
        ffn_size,
        num_experts,
        num_layers,
        num_heads: 2,
        num_kv_heads: 2,
        head_dim: hidden_size / 2,
        ..wide()
    };
    let (twelve, four) = (sizes(426, 96, 200, 8, 2), sizes(449, 128, 64, 2, 4));
    let of_all = sizes(377, 128, 256, 4, 3);
    for (config, precision, ranks, expert_parallel, replicas) in [
        (&twelve, Precision::BF16, 12, 4, 12),
        (&four, Precision::F32, 4, 2, 4),
        (&twelve, Precision::BF16, 8, 4, 11), // ranks and groups with several sums left
        (&of_all, Precision::F32, 4, 4, 5),   // no sum of experts travels
    ] {
        let train = TrainConfig {
            batch_size: replicas,
            micro_batch_size: Some(1),
            replicas,
            precision,
            sequence_length: 16,
            ..options()
        };
        for machine in [
            Machine::Cpu { isa: None, threads: Some(1) },
            Machine::Cuda { capability: Some(90), multiprocessors: Some(132) },
        ] {
            let planned = plan_ranks(config, &train, machine, ranks, expert_parallel).unwrap();
            let seats = (0..ranks).map(|rank| Seat { rank, ranks, expert_parallel });
            let sent = seats.map(|seat| work_of_rank(config, &train, machine, seat).unwrap().1);
            assert_eq!(Some(planned.sent), sent.max(), "{ranks} ranks in {expert_parallel}, {machine:?}");
        }
    }
}

/// That which updates the most, the gains among it, does not need the most where ranks keep the gradients alone that they
/// update, and all gains'. On a GPU each has all.
#[test]
fn the_rank_that_needs_the_most_is_planned() {
    let config = MoEConfig { vocab_size: 500, ..wide() };
    let train = TrainConfig { batch_size: 4, micro_batch_size: Some(1), replicas: 4, sequence_length: 16, ..options() };
    for (machine, wanted) in [
        (Machine::Cpu { isa: None, threads: Some(1) }, 0),
        (Machine::Cuda { capability: Some(90), multiprocessors: Some(132) }, 3),
    ] {
        let plans = (0..4).map(|rank| {
            let seat = Seat { rank, ranks: 4, expert_parallel: 1 };
            plan_steps(&config, &train, machine, seat, true, true).unwrap()
        });
        let plans: Vec<_> = plans.collect();
        let planned = plan_ranks(&config, &train, machine, 4, 1).unwrap();
        assert_eq!(Some(planned.memory.held), plans.iter().map(|plan| plan.held).max());
        assert_eq!(planned.seat.rank, wanted);
    }
}

/// Each row is the plan of so many ranks; experts are shared out as far as ranks and experts allow.
#[test]
fn rows_of_growing_jobs() {
    let config = MoEConfig { num_experts: 6, ..wide() };
    let train = TrainConfig { batch_size: 6, micro_batch_size: Some(1), replicas: 6, sequence_length: 16, ..options() };
    let machine = Machine::Cpu { threads: Some(1), isa: None };
    let most = plan_ranks(&config, &train, machine, 6, 3).unwrap();
    let rows = plan_growth(&config, &train, machine, most.clone()).unwrap();
    let counts: Vec<_> = rows.iter().map(|row| (row.seat.ranks, row.seat.expert_parallel)).collect();
    assert_eq!(counts, [(1, 1), (2, 2), (4, 2), (6, 3)]);
    let four = plan_ranks(&config, &train, machine, 4, 2).unwrap();
    for (row, expected) in [(&rows[2], &four), (&rows[3], &most)] {
        assert_eq!((row.memory, &row.work, row.sent), (expected.memory, &expected.work, expected.sent));
    }
    assert_eq!(rows[0].sent, 0);
}

/// However many a rank runs, a few micro-batches say what it needs.
#[test]
fn many_replicas_are_planned_at_once() {
    let train = TrainConfig {
        batch_size: 4000,
        micro_batch_size: Some(1),
        replicas: 2000,
        reduce_dtype: ReduceDtype::BF16,
        sequence_length: 16,
        ..options()
    };
    let (machine, began) = (Machine::Cpu { threads: Some(1), isa: None }, Instant::now());
    for expert_parallel in [1, 2] {
        let plan = plan_ranks(&wide(), &train, machine, 4, expert_parallel).unwrap();
        let half = TrainConfig { batch_size: 2000, replicas: 1000, ..train.clone() };
        let half = plan_ranks(&wide(), &half, machine, 4, expert_parallel).unwrap();
        assert!(plan.work.flops() > 19 * half.work.flops() / 10 && plan.memory.held > half.memory.held);
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}
