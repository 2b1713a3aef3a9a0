//! Runs and checkpoints, as far as the parity tests do not hold them for all languages.

mod tiny;

use std::sync::atomic::Ordering;

use nn_core::Error;
use nn_core::format::{Table, Value, parse_json};
use nn_core::model::Precision;
use nn_core::train::{Checkpoint, Sources, TrainConfig, TrainingRun, resolve_checkpoint};
use proptest::prelude::*;
use tiny::Workshop;

#[test]
fn a_run_whose_data_nobody_noted_goes_on_with_other_options() {
    let (ctx, workshop) = (tiny::context(), Workshop::new(true));
    let mut first = workshop.start(&ctx, "run", TrainConfig { steps: 4, ..tiny::options() });
    first.stop_flag().store(true, Ordering::Relaxed);
    assert_eq!(first.run(|_| Ok(())).unwrap().unwrap().step, 1, "a stop before the first step lets that be done");
    tiny::shard(&workshop.path("data.tokens"), 3000, 4);
    let sources = Sources::new(workshop.path("data.tokens"), None);
    let changes = Table::from([("micro_batch_size", Value::None), ("save_every", 1i32.into())]);
    let mut second = TrainingRun::resume(&workshop.path("run"), &ctx, &sources, &changes).unwrap();
    assert_eq!(second.run(|_| Ok(())).unwrap().unwrap().step, 4);
    let last = Checkpoint::open(&resolve_checkpoint(&workshop.path("run"), false).unwrap()).unwrap();
    let wanted = TrainConfig { steps: 4, micro_batch_size: None, save_every: 1, ..tiny::options() };
    assert_eq!(last.training.unwrap().train, wanted);
}

#[test]
fn gradients_that_never_fit_end_the_run() {
    let (ctx, workshop) = (tiny::context(), Workshop::new(true));
    let options = TrainConfig { precision: Precision::F16, loss_scale: 1.0 / 4_194_304.0, ..tiny::options() };
    let mut run = workshop.start(&ctx, "run", options);
    let model = run.trainer().model();
    model.parameters().set("model.norm.weight", &[f32::NAN; 24]).unwrap();
    model.round_weights().unwrap();
    let error = run.run(|_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::Diverged(_)));
    assert!(error.to_string().starts_with("the gradients overflow at step 3 with the least loss scale"), "{error}");
}

#[test]
fn a_report_that_fails_ends_the_run() {
    let (ctx, workshop) = (tiny::context(), Workshop::new(true));
    let error = workshop.start(&ctx, "run", tiny::options()).run(|_| Err(Error::value("enough"))).unwrap_err();
    assert_eq!(error.to_string(), "enough");
}

#[test]
fn a_checkpoint_holds_what_the_trainer_had() {
    let (ctx, workshop) = (tiny::context(), Workshop::new(true));
    let mut run = workshop.start(&ctx, "run", tiny::options());
    run.run(|_| Ok(())).unwrap();
    let checkpoint = Checkpoint::open(&resolve_checkpoint(&workshop.path("run"), false).unwrap()).unwrap();
    let trainer = checkpoint.trainer(&ctx).unwrap();
    assert_eq!((tiny::state(&trainer), trainer.step()), (tiny::state(run.trainer()), 12));
    assert_eq!((&checkpoint.config, trainer.config()), (&tiny::model(), &tiny::options()));
    let model = checkpoint.model(&ctx, false, Precision::F32).unwrap();
    assert_eq!(tiny::bits(model.parameters()), tiny::bits(run.trainer().model().parameters()));
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
