//! Runs and checkpoints: stopped and resumed they come to the same bits, and damaged ones are refused.

mod tiny;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use nn_core::format::{Table, Value, parse_json, read_json};
use nn_core::model::Precision;
use nn_core::train::{
    Checkpoint, Event, Sources, TrainConfig, TrainingRun, best_checkpoint, list_checkpoints, read_metrics,
    resolve_checkpoint,
};
use nn_core::{Error, Result};
use nn_ffi::Context;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

struct Workshop {
    root: tempfile::TempDir,
}

impl Workshop {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        tiny::shard(&root.path().join("data.tokens"), 3000, 1);
        tiny::shard(&root.path().join("held-out.tokens"), 300, 2);
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn start(&self, ctx: &Context, name: &str) -> Result<TrainingRun> {
        self.start_with(ctx, name, tiny::options())
    }

    fn start_with(&self, ctx: &Context, name: &str, options: TrainConfig) -> Result<TrainingRun> {
        let (data, held_out) = (self.path("data.tokens"), self.path("held-out.tokens"));
        TrainingRun::start(&self.path(name), ctx, tiny::model(), options, &data, Some(&held_out), None)
    }

    fn resume(&self, ctx: &Context, name: &str) -> Result<TrainingRun> {
        let (data, held_out) = (self.path("data.tokens"), self.path("held-out.tokens"));
        TrainingRun::resume(&self.path(name), ctx, &Sources::new(data, Some(held_out)), &Table::new())
    }

    /// A whole run's last checkpoint.
    fn checkpoint(&self, ctx: &Context) -> PathBuf {
        self.start(ctx, "run").unwrap().run(|_| Ok(())).unwrap();
        resolve_checkpoint(&self.path("run"), false).unwrap()
    }
}

/// The metrics of a run without what it measures of itself.
fn metrics(run: &Path) -> Vec<Table> {
    let mut records = read_metrics(&run.join("metrics.jsonl")).unwrap();
    for record in &mut records {
        record.remove("seconds");
        record.remove("tokens_per_second");
        record.remove("bytes_peak");
    }
    records
}

#[test]
fn a_run_stopped_and_resumed_is_as_one_that_was_not() {
    let (ctx, workshop) = (tiny::context(), Workshop::new());
    let mut unbroken = workshop.start(&ctx, "unbroken").unwrap();
    unbroken.run(|_| Ok(())).unwrap();
    let mut first = workshop.start(&ctx, "broken").unwrap();
    let stop = first.stop_flag();
    let stopped = first.run(|event| {
        if let Event::Step(progress) = event {
            stop.store(progress.step == 5, Ordering::Relaxed);
        }
        Ok(())
    });
    assert_eq!(stopped.unwrap().unwrap().step, 5);
    // As if it had been killed behind step 6, in the middle of a line.
    let log = workshop.path("broken/metrics.jsonl");
    fs::write(&log, fs::read_to_string(&log).unwrap() + "{\"step\": 6, \"loss\": 1.0}\n{\"st").unwrap();
    fs::create_dir(workshop.path("broken/checkpoints/.partial-1-step-00000006")).unwrap();
    let mut second = workshop.resume(&ctx, "broken").unwrap();
    let last = second.run(|_| Ok(())).unwrap().unwrap();
    assert_eq!(last.step, 12);
    assert_eq!(tiny::state(second.trainer()), tiny::state(unbroken.trainer()));
    assert_eq!(metrics(&workshop.path("broken")), metrics(&workshop.path("unbroken")));
    let names = |run: &str| {
        let names =
            fs::read_dir(workshop.path(run).join("checkpoints")).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    assert_eq!(names("broken"), names("unbroken"));
    assert!(second.run(|_| Ok(())).unwrap().is_none());
}

#[test]
fn a_scaled_run_stopped_and_resumed_is_as_one_that_was_not() {
    let (ctx, workshop) = (tiny::context(), Workshop::new());
    let options = TrainConfig {
        steps: 16,
        precision: Precision::F16,
        loss_scale: 16_777_216.0,
        loss_scale_interval: 3,
        ..tiny::options()
    };
    let mut unbroken = workshop.start_with(&ctx, "unbroken", options.clone()).unwrap();
    unbroken.run(|_| Ok(())).unwrap();
    let mut first = workshop.start_with(&ctx, "broken", options).unwrap();
    let stop = first.stop_flag();
    let stopped = first.run(|event| {
        if let Event::Step(progress) = event {
            stop.store(progress.step == 7, Ordering::Relaxed);
        }
        Ok(())
    });
    assert_eq!(stopped.unwrap().unwrap().step, 7);
    let mut second = workshop.resume(&ctx, "broken").unwrap();
    let last = second.run(|_| Ok(())).unwrap().unwrap();
    assert_eq!(tiny::state(second.trainer()), tiny::state(unbroken.trainer()));
    let records = metrics(&workshop.path("broken"));
    assert_eq!(records, metrics(&workshop.path("unbroken")));
    let scaling = second.trainer().loss_scaling().unwrap();
    assert_eq!(scaling, unbroken.trainer().loss_scaling().unwrap());
    // A skipped step has a line, with null for what is no number.
    let is_none = |record: &&Table, name: &str| record.get(name) == Some(&Value::None);
    let skipped: Vec<_> = records.iter().filter(|record| is_none(record, "grad_norm")).collect();
    assert!((1..16).contains(&skipped.len()) && skipped.iter().all(|record| is_none(record, "learning_rate")));
    assert_eq!((last.skipped_steps, scaling.unwrap().skipped as usize), (skipped.len(), skipped.len()));
    assert_eq!(skipped[0].get("loss_scale"), Some(&Value::Float(16_777_216.0)));
}

#[test]
fn a_run_goes_on_with_other_options_and_on_its_own_data_alone() {
    let (ctx, workshop) = (tiny::context(), Workshop::new());
    let mut first = workshop.start_with(&ctx, "run", TrainConfig { steps: 4, ..tiny::options() }).unwrap();
    let (data, held_out) = (workshop.path("data.tokens"), workshop.path("held-out.tokens"));
    let sources = Sources::new(data.clone(), Some(held_out.clone()));
    sources.write(&workshop.path("run"), &first, "tests 1").unwrap();
    first.stop_flag().store(true, Ordering::Relaxed);
    assert_eq!(first.run(|_| Ok(())).unwrap().unwrap().step, 1, "a stop before the first step lets that be done");

    let noted = read_json(&workshop.path("run/run.json")).unwrap();
    let names = ["data", "held_out", "data_sha256", "held_out_sha256", "program", "library", "abi", "device"];
    assert_eq!(noted.names().collect::<Vec<_>>(), [&names[..], &["model", "train"]].concat());
    assert_eq!(noted.get("program"), Some(&"tests 1".into()));
    let digest = Sha256::digest(fs::read(&data).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(noted.get("data_sha256"), Some(&digest.as_str().into()));

    let read = Sources::read(&workshop.path("run")).unwrap();
    let resume = |sources: &Sources, changes: &[(&str, Value)]| {
        let changes = changes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        TrainingRun::resume(&workshop.path("run"), &ctx, sources, &changes)
    };
    let error = resume(&read, &[("seed", 3i32.into())]).unwrap_err();
    assert!(error.to_string().starts_with("a run goes on with the seed it has; it takes others of micro_"), "{error}");
    let error = resume(&read, &[("activation_checkpointing", 3i32.into())]).unwrap_err();
    assert_eq!(error.to_string(), "activation_checkpointing is 3; this model has 2 blocks");

    let good = fs::read(&data).unwrap();
    tiny::shard(&data, 3000, 4);
    let there = &digest[..12];
    let error = resume(&read, &[]).unwrap_err();
    let sentence =
        format!("data.tokens: holds different tokens from those this run was started on (SHA-256 {there}… there, ");
    assert!(error.to_string().contains(&sentence) && error.to_string().ends_with("… here)"), "{error}");
    assert_eq!(error.exit_code(), 3);
    fs::write(&data, &good).unwrap();
    tiny::shard(&held_out, 300, 5);
    assert!(resume(&read, &[]).unwrap_err().to_string().contains("held-out.tokens: holds different tokens"));
    resume(&sources, &[]).unwrap(); // of an older run, whose data nobody noted
    assert_eq!(Sources::new(read.data.clone(), None).held_out, None);
    tiny::shard(&held_out, 300, 2);

    let mut second = resume(&read, &[("micro_batch_size", Value::None), ("save_every", 1i32.into())]).unwrap();
    assert_eq!(second.run(|_| Ok(())).unwrap().unwrap().step, 4);
    let last = Checkpoint::open(&resolve_checkpoint(&workshop.path("run"), false).unwrap()).unwrap();
    let wanted = TrainConfig { steps: 4, micro_batch_size: None, save_every: 1, ..tiny::options() };
    assert_eq!(last.training.unwrap().train, wanted);
}

#[test]
fn gradients_that_never_fit_end_the_run() {
    let (ctx, workshop) = (tiny::context(), Workshop::new());
    let options = TrainConfig { precision: Precision::F16, loss_scale: 1.0 / 4_194_304.0, ..tiny::options() };
    let mut run = workshop.start_with(&ctx, "run", options).unwrap();
    let model = run.trainer().model();
    model.parameters().set("model.norm.weight", &[f32::NAN; 24]).unwrap();
    model.round_weights().unwrap();
    let error = run.run(|_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::Diverged(_)));
    assert!(error.to_string().starts_with("the gradients overflow at step 3 with the least loss scale"), "{error}");
}

#[test]
fn wrong_states_of_loss_scaling_are_refused() {
    let (ctx, workshop) = (tiny::context(), Workshop::new());
    let options = TrainConfig { steps: 1, warmup_steps: None, precision: Precision::F16, ..tiny::options() };
    workshop.start_with(&ctx, "run", options).unwrap().run(|_| Ok(())).unwrap();
    let folder = resolve_checkpoint(&workshop.path("run"), false).unwrap();
    let path = folder.join("training.json");
    let good = read_json(&path).unwrap();
    let scaling = good.get("loss_scaling").and_then(Value::as_table).unwrap().clone();
    let expected = Table::from([("scale", 65536.0.into()), ("good_steps", 1i32.into()), ("skipped", 0i32.into())]);
    assert_eq!(scaling, expected);
    Checkpoint::open(&folder).unwrap();
    let changed = |name: &str, value: Value| {
        let mut scaling = scaling.clone();
        scaling.set(name, value);
        Value::Table(scaling)
    };
    let cases = [
        (Value::None, "has no loss_scaling; its precision is f16"),
        (
            Table::from([("scale", 1.0.into())]).into(),
            "loss_scaling is {\"scale\":1.0}; it must have scale, good_steps",
        ),
        (1i32.into(), "loss_scaling is 1; it must have"),
        (changed("scale", "big".into()), "the scale of loss_scaling is 'big'; it must be a number, 2^-24 to 2^24"),
        (changed("scale", 0i32.into()), "the scale of loss_scaling is 0; it must"),
        (changed("skipped", 2i32.into()), "skipped of loss_scaling is 2; it must be a whole number, 0 to 1"),
        (changed("good_steps", (1i64 << 31).into()), "good_steps of loss_scaling is 2147483648; it must be"),
    ];
    for (value, sentence) in cases {
        edit(&path, "loss_scaling", value);
        let error = Checkpoint::open(&folder).unwrap_err();
        assert!(error.to_string().contains(sentence), "{error}");
    }
    edit(&path, "loss_scaling", scaling.clone());
    let mut train = good.get("train").and_then(Value::as_table).unwrap().clone();
    train.set("precision", "bf16");
    edit(&path, "train", train);
    let error = Checkpoint::open(&folder).unwrap_err();
    assert!(error.to_string().ends_with("has a loss_scaling; its precision is bf16"), "{error}");
}

#[test]
fn the_newest_and_the_best_are_kept() {
    let (ctx, workshop) = (tiny::context(), Workshop::new());
    workshop.checkpoint(&ctx);
    let root = workshop.path("run/checkpoints");
    let found = list_checkpoints(&root).unwrap();
    let best = best_checkpoint(&root).unwrap().unwrap();
    assert!(found.len() <= 3 && found.contains(&best) && found.last().unwrap().ends_with("step-00000012"));
    assert!(matches!(workshop.start(&ctx, "run"), Err(Error::Exists(_))));
    assert_eq!(resolve_checkpoint(&workshop.path("run"), true).unwrap(), best);
}

#[test]
fn a_report_that_fails_ends_the_run() {
    let (ctx, workshop) = (tiny::context(), Workshop::new());
    let error = workshop.start(&ctx, "run").unwrap().run(|_| Err(Error::value("enough"))).unwrap_err();
    assert_eq!(error.to_string(), "enough");
}

#[test]
fn a_checkpoint_holds_what_the_trainer_had() {
    let (ctx, workshop) = (tiny::context(), Workshop::new());
    let mut run = workshop.start(&ctx, "run").unwrap();
    run.run(|_| Ok(())).unwrap();
    let checkpoint = Checkpoint::open(&resolve_checkpoint(&workshop.path("run"), false).unwrap()).unwrap();
    let trainer = checkpoint.trainer(&ctx).unwrap();
    assert_eq!((tiny::state(&trainer), trainer.step()), (tiny::state(run.trainer()), 12));
    assert_eq!((&checkpoint.config, trainer.config()), (&tiny::model(), &tiny::options()));
    let model = checkpoint.model(&ctx, false, Precision::F32).unwrap();
    assert_eq!(tiny::bits(model.parameters()), tiny::bits(run.trainer().model().parameters()));
}

fn edit(path: &Path, name: &str, value: impl Into<Value>) {
    let mut table = read_json(path).unwrap();
    table.set(name, value);
    fs::write(path, Value::Table(table).to_json()).unwrap();
}

#[test]
fn damaged_checkpoints_are_refused() {
    type Damage = fn(&Path);
    let cases: [(Damage, &str); 12] = [
        (|folder| fs::remove_file(folder.join("config.json")).unwrap(), "config.json: cannot be read: No such file"),
        (|folder| fs::write(folder.join("config.json"), "{").unwrap(), "config.json: is not JSON"),
        (|folder| fs::write(folder.join("config.json"), "[]").unwrap(), "config.json: is not a JSON object"),
        (|folder| edit(&folder.join("config.json"), "model_type", "llama"), "the model_type is 'llama'"),
        (
            |folder| edit(&folder.join("config.json"), "num_hidden_layers", 1i32),
            "not part of this model: model.layers.1",
        ),
        (
            |folder| edit(&folder.join("config.json"), "num_hidden_layers", 1i64 << 60),
            "num_layers is 1152921504606846976; it must be a whole number, from 1",
        ),
        (
            |folder| edit(&folder.join("config.json"), "intermediate_size", 21i32),
            "has shape [20, 24]; config.json makes",
        ),
        (|folder| fs::remove_file(folder.join("model.safetensors")).unwrap(), "holds neither model.safetensors nor"),
        (|folder| edit(&folder.join("training.json"), "version", 2i32), "is a training state of version 2"),
        (|folder| edit(&folder.join("training.json"), "more", 2i32), "some are missing, or should not be there"),
        (|folder| edit(&folder.join("training.json"), "step", -1i32), "step is -1; it must be a whole number"),
        (|folder| edit(&folder.join("training.json"), "train", "x"), "train is not an object"),
    ];
    let (ctx, workshop) = (tiny::context(), Workshop::new());
    let good = workshop.checkpoint(&ctx);
    for (damage, sentence) in cases {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(&good).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        damage(copy.path());
        let error = Checkpoint::open(copy.path()).unwrap_err();
        assert!(error.to_string().contains(sentence), "{error}");
        assert_eq!(error.exit_code(), 3);
    }
}

#[test]
fn moments_of_another_model_are_refused() {
    let (ctx, workshop) = (tiny::context(), Workshop::new());
    let folder = workshop.checkpoint(&ctx);
    fs::copy(folder.join("model.safetensors"), folder.join("optimizer.safetensors")).unwrap();
    let error = Checkpoint::open(&folder).unwrap().trainer(&ctx).unwrap_err();
    assert!(error.to_string().contains("optimizer.safetensors: tensors missing: first_moment.model.embed"), "{error}");
    fs::remove_file(folder.join("training.json")).unwrap();
    let error = Checkpoint::open(&folder).unwrap().trainer(&ctx).unwrap_err();
    assert!(error.to_string().ends_with("it can be run, but not trained further"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_value_in_a_configuration_gives_a_checkpoint_or_an_error(
        name in "vocab_size|hidden_size|num_hidden_layers|num_key_value_heads|head_dim|num_local_experts|nncuda\
                 |sliding_window|rope_parameters|rope_theta|rms_norm_eps|max_position_embeddings",
        value in r#"-?[0-9]{1,25}|[0-9]\.[0-9]e-?[0-9]{1,3}|true|null|"[a-z]*"|\[\]|\{\}|\{"ntk_alpha":[0-9e]{1,3}\}"#,
    ) {
        let mut table = nn_core::model::config_to_mixtral(&tiny::model());
        if let Ok(value) = parse_json(value.as_bytes()) {
            table.set(name, value);
        }
        if let Ok(config) = nn_core::model::config_from_mixtral(&table) {
            let _ = config.num_parameters();
            let _ = nn_core::model::ParameterLayout::new(&config);
        }
    }
}
