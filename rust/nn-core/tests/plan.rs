//! The plan of a run's memory is what is then measured.

use nn_core::model::{MoEConfig, MoETransformer, Precision};
use nn_core::plan::{DEVICES, inference_work, plan_inference, plan_steps, plan_training, training_work, ways_to_fit};
use nn_core::train::{Batch, TrainConfig, Trainer};
use nn_ffi::{Context, Device, InstructionSet, Machine};

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
            let batch = Batch { rows: train.batch_size, length, inputs: ids.clone(), targets: ids };
            let weights = MoETransformer::random_in(&ctx, model.clone(), 1, true, train.precision).unwrap();
            let mut trainer = Trainer::new(weights, train.clone(), capture).unwrap();
            for _ in 0..3 {
                trainer.train_step(&batch).unwrap();
            }
            let machine = ctx.machine().unwrap();
            let planned = plan_steps(&model, &train, machine, false, capture).unwrap();
            near(name, planned.peak, ctx.bytes_peak().unwrap());
            let sum: usize = planned.bytes.iter().sum();
            assert_eq!((sum, planned.held), (planned.peak, planned.peak));
        }
    }
}

/// Each way, taken, needs what it says.
#[test]
fn ways() {
    let machine = Machine::Cpu { threads: Some(2), isa: Some(InstructionSet::Avx512) };
    let needed = plan_training(&wide(), &options(), machine, true).unwrap().held;
    for percent in [95, 80, 60] {
        let free = needed * percent / 100;
        let (ways, _) = ways_to_fit(&wide(), &options(), machine, free, true).unwrap();
        assert_eq!(ways.len(), 3, "{percent} %");
        for way in ways {
            let mut values = options().to_table();
            for (name, value) in &way.changes {
                values.set(*name, value.clone());
            }
            let changed = TrainConfig::from_table(&values).unwrap();
            let held = plan_training(&wide(), &changed, machine, true).unwrap().held;
            assert_eq!(held, way.held);
            assert!(held <= free, "{percent} %: {:?}", way.changes);
        }
    }
    let (ways, least) = ways_to_fit(&wide(), &options(), machine, 1000, true).unwrap();
    assert!(ways.is_empty() && least.unwrap().held < needed);
}

#[test]
fn what_cannot_be_planned() {
    let machine = Machine::Cuda { capability: Some(90), multiprocessors: None };
    let long = TrainConfig { sequence_length: 300, ..options() };
    let error = plan_training(&wide(), &long, machine, true).unwrap_err();
    assert_eq!(error.to_string(), "sequence_length is 300; this model's context is 256");
    let huge = TrainConfig { batch_size: 1 << 30, ..options() };
    let error = plan_training(&wide(), &huge, machine, true).unwrap_err();
    assert_eq!(error.to_string(), "the sizes make a run of more memory than any machine has");
    for (capacity, prompt, words) in [
        (513, 1, "513 tokens are more than this model takes (512)"),
        (64, 65, "a prompt has 65 tokens; it must have 1 to 64, the tokens of a sequence"),
        (-3, 1, "context is -3; it must be a whole number, at least 1"),
    ] {
        let error = plan_inference(&wide(), Precision::F32, machine, 1, capacity, prompt).unwrap_err();
        assert_eq!(error.to_string(), words);
    }
    let planned = plan_inference(&wide(), Precision::BF16, machine, 3, 256, 200).unwrap();
    assert_eq!(planned.of("cache"), 2 * 4 * 3 * 256 * 2 * 16 * 2);
    assert!(planned.held > planned.peak);
}

/// Of seven micro-batches four are left out where a step is planned, and none where it is made.
#[test]
fn micro_batches_that_are_not_run_count() {
    let train = TrainConfig {
        batch_size: 7,
        micro_batch_size: Some(1),
        precision: Precision::F16,
        sequence_length: 64,
        ..options()
    };
    let (ctx, ids) = (Context::open(Device::Cpu, Some(2), None).unwrap(), vec![1; 7 * 64]);
    let weights = MoETransformer::random_in(&ctx, wide(), 1, true, train.precision).unwrap();
    let mut trainer = Trainer::new(weights, train.clone(), true).unwrap();
    let batch = Batch { rows: 7, length: 64, inputs: ids.clone(), targets: ids };
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
        assert_eq!(made as i128, found, "{name}");
    }
}

/// Most operations of a step are products: 6 a parameter that a token meets, but for the embedding and attention.
#[test]
fn work_and_time() {
    let (model, train) = (MoEConfig::preset("6.9b").unwrap(), TrainConfig::preset("6.9b").unwrap());
    let train = TrainConfig { activation_checkpointing: 0, ..train };
    let gpu = DEVICES.iter().find(|gpu| gpu.name == "h200").unwrap();
    let machine = Machine::Cuda { capability: Some(gpu.capability), multiprocessors: Some(gpu.multiprocessors) };
    let work = training_work(&model, &train, machine).unwrap();
    let tokens = (train.batch_size * train.sequence_length) as i128;
    let products =
        6 * tokens * (model.num_active_parameters() as i128 - (model.vocab_size * model.hidden_size) as i128);
    assert!(products < work.flops() && work.flops() < products * 6 / 5);
    let (seconds, least) = (work.seconds(gpu, Precision::BF16), work.flops() as f64 / gpu.flops_16);
    assert!(least < seconds && seconds < 3.0 * least && work.bytes() as f64 / gpu.bandwidth < seconds);
    let token = inference_work(&model, Precision::BF16, machine, 1, 4096).unwrap();
    assert!(
        token.bytes() > 2 * model.num_active_parameters() as i128 - 2 * (model.vocab_size * model.hidden_size) as i128
    );
}
