//! A run that diverges says where that began, writes no further checkpoint, and continues from the last good one.

mod tiny;

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use nn_core::Error;
use nn_core::format::{Table, Value};
use nn_core::model::Precision;
use nn_core::train::{Event, Sources, TrainConfig, TrainingRun, list_checkpoints, read_metrics};
use nn_ffi::Context;
use tiny::Workshop;

const ADVICE: &str = "; the last checkpoint is from before that. A lower learning rate or a longer warm-up usually \
helps";

fn resume(workshop: &Workshop, ctx: &Context, changes: &Table) -> TrainingRun {
    let sources = Sources::new(workshop.path("data.tokens"), None);
    TrainingRun::resume(&workshop.path("run"), ctx, &sources, changes).unwrap()
}

fn checkpoints(workshop: &Workshop, name: &str) -> Vec<PathBuf> {
    list_checkpoints(&workshop.path(name).join("checkpoints")).unwrap()
}

fn message(run: &mut TrainingRun) -> String {
    let error = run.run(|_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::Diverged(_)) && error.exit_code() == 1, "{error}");
    error.to_string()
}

/// Plants a value in a parameter of a run, at one place.
fn plant(run: &TrainingRun, name: &str, at: usize, value: f32) {
    let model = run.trainer().model();
    let mut values: Vec<f32> = model.parameters().get(name).unwrap().to_vec().unwrap();
    values[at] = value;
    model.parameters().set(name, &values).unwrap();
    model.round_weights().unwrap();
}

#[test]
fn a_weight_that_is_no_number_is_named_and_the_folder_goes_on() {
    let ctx = tiny::context();
    for precision in [Precision::F32, Precision::BF16] {
        let workshop = Workshop::new(false);
        // Without hashes: they tell of a planted value before there is a step.
        let options = TrainConfig { precision, hash_every: 0, ..tiny::options() };
        let mut first = workshop.start(&ctx, "run", options.clone());
        let stop = first.stop_flag();
        first
            .run(|event| {
                if let Event::Step(progress) = event {
                    stop.store(progress.step == 5, Ordering::Relaxed);
                }
                Ok(())
            })
            .unwrap();
        let good = checkpoints(&workshop, "run");
        // The search does not depend on when the run reports: what the bad step met is what is there.
        for (log_every, save_every) in [(12, 7), (5, 0), (1, 4)] {
            let changes = Table::from([("log_every", log_every.into()), ("save_every", save_every.into())]);
            let mut run = resume(&workshop, &ctx, &changes);
            plant(&run, "model.layers.1.block_sparse_moe.gate.weight", 2 * 24 + 5, f32::NAN);
            let place = "model.layers.1.block_sparse_moe.gate.weight is not finite, first at [2, 5] (nan)";
            assert_eq!(message(&mut run), format!("the loss is NaN at step 6: {place}{ADVICE}"));
            assert_eq!(checkpoints(&workshop, "run"), good);
        }
        let records = read_metrics(&workshop.path("run/metrics.jsonl")).unwrap();
        let of_loss: Vec<_> = records.iter().map(|record| record.get("loss") == Some(&Value::None)).collect();
        assert_eq!(of_loss, [false, false, false, false, false, true], "null stands for what is no number");
        let mut unbroken = workshop.start(&ctx, "unbroken", options);
        unbroken.run(|_| Ok(())).unwrap();
        let mut second = resume(&workshop, &ctx, &Table::new());
        assert_eq!(second.run(|_| Ok(())).unwrap().unwrap().step, 12);
        assert_eq!(tiny::state(second.trainer()), tiny::state(unbroken.trainer()));
    }
}

#[test]
fn the_output_is_named_where_finite_weights_overflow() {
    let (ctx, workshop) = (tiny::context(), Workshop::new(false));
    let begins = |name: &str, at: usize, value: f32, place: &str| {
        let run = format!("{}-{at}", name.replace('.', "-"));
        let mut run = workshop.start(&ctx, &run, tiny::options());
        plant(&run, name, at, value);
        let said = message(&mut run);
        assert!(said.starts_with("the loss is NaN at step 1: ") && said.ends_with(ADVICE), "{said}");
        assert!(said.contains(&format!(": {place} is not finite, first at [")), "{said}");
        said
    };
    begins("model.layers.0.self_attn.v_proj.weight", 3, f32::MAX, "c of cuda_gemm in model.layers.0.self_attn");
    begins("model.layers.1.self_attn.o_proj.weight", 3, f32::MAX, "c of cuda_gemm in model.layers.1.self_attn");
    let said = begins("model.norm.weight", 7, f32::MAX, "y of cuda_rmsnorm in model.norm");
    assert!(said.contains(", 7] (inf)") || said.contains(", 7] (-inf)"), "{said}");
    let said = begins("lm_head.weight", 9 * 24 + 1, f32::MAX, "c of cuda_gemm in lm_head");
    assert!(said.contains(", 9] ("), "{said}");
    let of_experts = "model.layers.0.block_sparse_moe.experts.2.w2.weight";
    begins(of_experts, 1, f32::MAX, "c of cuda_grouped_gemm in model.layers.0.block_sparse_moe");
}

#[test]
fn a_rate_that_is_too_high_ends_the_run_whenever_it_reports() {
    let (ctx, workshop) = (tiny::context(), Workshop::new(false));
    let options = TrainConfig {
        learning_rate: 1e30,
        weight_decay: 1e30,
        warmup_steps: Some(0),
        save_every: 1,
        eval_every: 0,
        ..tiny::options()
    };
    let often = message(&mut workshop.start(&ctx, "often", options.clone()));
    let seldom = TrainConfig { log_every: 12, save_every: 0, ..options };
    assert_eq!(message(&mut workshop.start(&ctx, "seldom", seldom)), often);
    assert!(often.contains(" at step 2: ") && often.contains(" not finite, first at "), "{often}");
    assert_eq!((checkpoints(&workshop, "often").len(), checkpoints(&workshop, "seldom").len()), (1, 0));
}

#[test]
fn a_loss_above_the_limit_ends_the_run() {
    let (ctx, workshop) = (tiny::context(), Workshop::new(false));
    let limited = TrainConfig { max_loss: Some(0.5), ..tiny::options() };
    let said = message(&mut workshop.start(&ctx, "limited", limited.clone()));
    let records = read_metrics(&workshop.path("limited/metrics.jsonl")).unwrap();
    let loss = records[0].get("loss").and_then(Value::as_number).unwrap();
    let rest = said
        .strip_prefix(&format!("the loss is {:?} at step 1, above max_loss (0.5): ", (loss * 1000.0).round() / 1000.0))
        .unwrap();
    let norm = rest.strip_prefix("the largest gradient is that of ").unwrap().strip_suffix(ADVICE).unwrap();
    let norm = norm.split_once(" (norm ").unwrap().1.trim_end_matches(')');
    let all = records[0].get("grad_norm").and_then(Value::as_number).unwrap();
    assert!((0.0..=all * 1.05).contains(&norm.parse().unwrap()), "{norm} of {all}");
    // The reported gradients do not contain the scale of the losses.
    let scaled = TrainConfig { precision: Precision::F16, loss_scale: 1024.0, ..limited };
    let scaled = message(&mut workshop.start(&ctx, "scaled", scaled));
    assert!(scaled.contains(rest.split_once(" (norm ").unwrap().0), "{scaled} beside {said}");
    let norm: f64 = scaled.split_once(" (norm ").unwrap().1.split_once(')').unwrap().0.parse().unwrap();
    assert!((0.0..=all * 1.05).contains(&norm), "{norm} of {all}");
    let usual = tiny::options().loss_limit(48);
    assert!((usual - 10.0 * 48f64.ln()).abs() < 1e-12);
}

#[test]
fn a_trainer_keeps_the_weights_that_a_bad_step_met() {
    let ctx = tiny::context();
    for capture in [true, false] {
        let mut trainer = tiny::trainer(&ctx, tiny::model(), tiny::options(), capture);
        for step in 0..3 {
            trainer.train_step(&tiny::batch(5, 13, step)).unwrap();
        }
        assert_eq!(trainer.diverged_at().unwrap(), None);
        trainer.model().parameters().set("model.norm.weight", &[f32::INFINITY; 24]).unwrap();
        let before = tiny::state(&trainer);
        for step in 3..6 {
            let result = trainer.train_step(&tiny::batch(5, 13, step)).unwrap();
            assert!(result.skipped().unwrap() && result.learning_rate().unwrap().is_nan());
            assert_eq!(trainer.diverged_at().unwrap(), Some(4));
        }
        assert_eq!((tiny::state(&trainer), trainer.step()), (before, 6));
        assert_eq!(trainer.eager_reason(), if capture { None } else { Some("capture is off") });
    }
}

#[test]
fn a_restored_trainer_updates_again_whatever_was_before() {
    let ctx = tiny::context();
    let mut trainer = tiny::trainer(&ctx, tiny::model(), tiny::options(), true);
    let batch = tiny::batch(5, 13, 0);
    for gain in [f32::INFINITY, 1.0] {
        trainer.model().parameters().set("model.norm.weight", &[gain; 24]).unwrap();
        assert!(trainer.train_step(&batch).unwrap().skipped().unwrap());
    }
    trainer.restore(0, None).unwrap();
    for _ in 0..2 {
        assert!(!trainer.train_step(&batch).unwrap().skipped().unwrap());
    }
}
