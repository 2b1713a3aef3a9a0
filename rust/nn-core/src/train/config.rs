//! Options of training.

use nn_ffi::MomentsKind;

use crate::error::{Error, Result};
use crate::format::Table;
use crate::model::Precision;
use crate::options::{Bounds, check_bounds, check_counts, options, rule_of, whole_rule};

/// The least loss scale that the library takes.
pub(super) const LEAST_LOSS_SCALE: f64 = 1.0 / 16_777_216.0;
/// The largest.
pub(super) const LARGEST_LOSS_SCALE: f64 = 16_777_216.0;

/// Options of loss scaling, which f16 alone has.
const OF_SCALING: [&str; 4] = ["loss_scale", "loss_scale_growth", "loss_scale_backoff", "loss_scale_interval"];
/// Other options that checkpoints did not have from the beginning. Files have them, and those above, where they are not
/// at their defaults, so a run that uses none of them is the same file as ever, which programs from before them open too.
const ADDED: [&str; 5] = ["max_loss", "activation_checkpointing", "recompute_experts", "precision", "moments"];

/// What each number must be; tests/bounds.json has the reasons.
const BOUNDS: [Bounds; 11] = [
    ("learning_rate", 0.0, 1e30, "a number, from 0 to 1e+30"),
    ("min_rate_share", 0.0, 1.0, "a number, from 0 to 1"),
    ("beta1", 0.0, 0.999_999, "a number, from 0 to 0.999999"),
    ("beta2", 0.0, 0.999_999, "a number, from 0 to 0.999999"),
    ("eps", 1e-30, 1.0, "a number, from 1e-30 to 1"),
    ("weight_decay", 0.0, 1e30, "a number, from 0 to 1e+30"),
    ("clip_norm", 1e-30, 1e30, "a number, from 1e-30 to 1e+30, or none"),
    ("max_loss", 1e-30, 1e38, "a number, from 1e-30 to 1e+38, or none"),
    ("loss_scale", LEAST_LOSS_SCALE, LARGEST_LOSS_SCALE, "a number, from 5.96046e-08 to 1.67772e+07"),
    ("loss_scale_growth", 1.0, LARGEST_LOSS_SCALE, "a number, from 1 to 1.67772e+07"),
    ("loss_scale_backoff", LEAST_LOSS_SCALE, 1.0, "a number, from 5.96046e-08 to 1"),
];
/// Options that count from 1 on.
const FROM_ONE: [&str; 7] = [
    "steps",
    "batch_size",
    "micro_batch_size",
    "sequence_length",
    "log_every",
    "keep_checkpoints",
    "loss_scale_interval",
];
/// Options that count from 0 on.
const FROM_NONE: [&str; 5] = ["warmup_steps", "activation_checkpointing", "eval_every", "eval_batches", "save_every"];

options! {
    /// Everything that decides the bits of a training run, beside the model and the data; and when it reports.
    "training" struct TrainConfig {
        steps: usize = 10000, "total number of updates; the schedule ends here";
        batch_size: usize = 8, "sequences per update";
        micro_batch_size: Option<usize> = None,
            "sequences that run at once; the gradients of the micro-batches of an update are added up";
        sequence_length: usize = 256, "tokens per sequence";
        learning_rate: f64 = 3e-4, "highest rate, reached after the warm-up";
        min_rate_share: f64 = 0.1, "the cosine ends at this share of it";
        warmup_steps: usize = 2000, "steps of linear warm-up";
        beta1: f64 = 0.9, "AdamW parameter";
        beta2: f64 = 0.95, "AdamW parameter";
        eps: f64 = 1e-8, "AdamW parameter";
        weight_decay: f64 = 0.1, "decoupled, on matrices only";
        clip_norm: Option<f64> = Some(1.0), "largest global norm of the gradients; None never clips";
        max_loss: Option<f64> = None,
            "a reported loss above it ends the run as diverged; none is 10 ln(vocab_size)";
        activation_checkpointing: usize = 0,
            "to save memory, every n-th block keeps only its input and recomputes the rest in backward, with the same \
            bits: 1 is every block, 0 none";
        recompute_experts: bool = false, "the same, in the other blocks, for the inside of their experts";
        precision: Precision = Precision::F32,
            "what the model computes in: f32, bf16, or f16, whose losses are scaled; weights and gradients are kept in \
             f32";
        moments: MomentsKind = MomentsKind::F32,
            "format of both AdamW moments, to save memory: f32, bf16, or f8, which is 8-bit codes with a scale \
             for every 256 parameters";
        loss_scale: f64 = 65536.0, "initial loss scale, with f16";
        loss_scale_growth: f64 = 2.0, "factor of the scale after `loss_scale_interval` steps without an overflow";
        loss_scale_backoff: f64 = 0.5,
            "factor of the scale after a step whose gradients overflow, which is skipped";
        loss_scale_interval: usize = 2000, "steps without an overflow after which the scale grows";
        seed: i64 = 0, "seed of the initial weights and of the data order";
        eval_every: usize = 100, "steps between evaluations on held-out text; 0 evaluates only at the end";
        eval_batches: usize = 0, "batches per evaluation, always the same ones; 0 uses all";
        save_every: usize = 100, "steps between checkpoints; 0 saves only at the end";
        keep_checkpoints: usize = 2, "how many of the newest to keep, besides the best";
        log_every: usize = 1, "steps between lines of metrics";
    }
}

impl TrainConfig {
    fn allowed(name: &str) -> &'static str {
        match name {
            "recompute_experts" => "true or false",
            "precision" => "one of f32, bf16, f16",
            "moments" => "one of f32, bf16, f8",
            "seed" => "a whole number of 64 bits",
            _ if FROM_NONE.contains(&name) => whole_rule(0),
            _ => rule_of(&BOUNDS, name).unwrap_or(whole_rule(1)),
        }
    }

    /// `Error::Value` names an option that has a value it may not have.
    pub fn validate(&self) -> Result<()> {
        let values = self.values();
        check_counts(&values, &FROM_ONE, 1)?;
        check_counts(&values, &FROM_NONE, 0)?;
        check_bounds(&values, &BOUNDS)?;
        if self.recompute_experts && self.activation_checkpointing == 1 {
            let problem = "recompute_experts is for blocks that activation_checkpointing leaves; 1 leaves none";
            return Err(Error::value(problem));
        }
        if self.precision != Precision::F16 {
            let (given, usual) = (self.values(), Self::default().values());
            if let Some(name) = OF_SCALING.into_iter().find(|name| given.get(name) != usual.get(name)) {
                let precision = self.precision;
                let problem = format!("{name} is given, but the precision is {precision}; losses are scaled in f16");
                return Err(Error::value(problem));
            }
        }
        Ok(())
    }

    /// Options that a run may go on with other values of. Micro-batches and what is computed twice change how a step is
    /// reached, not what is trained; the rest decides when the run looks at itself.
    pub const CHANGEABLE: [&str; 9] = [
        "micro_batch_size",
        "activation_checkpointing",
        "recompute_experts",
        "eval_every",
        "eval_batches",
        "save_every",
        "keep_checkpoints",
        "log_every",
        "max_loss",
    ];

    /// These options with some others than they were. `Error::Value` names one that is not of `CHANGEABLE`, or a value
    /// that it may not have.
    pub fn changed(&self, changes: &Table) -> Result<Self> {
        let mut options = self.clone();
        for (name, value) in changes.iter() {
            if !Self::CHANGEABLE.contains(&name) {
                let taken = Self::CHANGEABLE.join(", ");
                return Err(Error::value(format!("a run goes on with the {name} it has; it takes others of {taken}")));
            }
            options.set(name, value)?;
        }
        options.validate()?;
        Ok(options)
    }

    /// The loss above which a run has diverged.
    pub fn loss_limit(&self, vocab_size: usize) -> f64 {
        self.max_loss.unwrap_or_else(|| 10.0 * (vocab_size as f64).ln())
    }

    /// All options by name, in their order, but those that were added later and are at their defaults.
    pub fn to_table(&self) -> Table {
        let (mut values, usual) = (self.values(), Self::default().values());
        for name in ADDED.into_iter().chain(OF_SCALING) {
            if values.get(name) == usual.get(name) {
                values.remove(name);
            }
        }
        values
    }

    /// Warm-up and total steps of the learning-rate schedule: a run shorter than its warm-up never leaves it.
    pub fn schedule_steps(&self) -> (usize, usize) {
        (self.warmup_steps, self.steps.max(self.warmup_steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Value;

    #[test]
    fn wrong_options_are_named() {
        let cases: [(&str, Value, &str); 22] = [
            ("steps", 0i32.into(), "steps is 0; it must be a whole number, from 1 to 2147483647"),
            ("steps", 1.5.into(), "steps is 1.5; it must be a whole number, from 1 to 2147483647"),
            ("warmup_steps", (-1i32).into(), "warmup_steps is -1; it must be a whole number, from 0 to 2147483647"),
            ("micro_batch_size", 0i32.into(), "micro_batch_size is 0; it must be a whole number, from 1 to 2147483647"),
            ("seed", Value::Integer(1 << 63), "seed is 9223372036854775808; it must be a whole number of 64 bits"),
            ("learning_rate", f64::INFINITY.into(), "learning_rate is inf; it must be a number, from 0 to 1e+30"),
            ("min_rate_share", 1.5.into(), "min_rate_share is 1.5; it must be a number, from 0 to 1"),
            ("beta1", 1i32.into(), "beta1 is 1.0; it must be a number, from 0 to 0.999999"),
            ("eps", 0.0.into(), "eps is 0.0; it must be a number, from 1e-30 to 1"),
            ("clip_norm", 0i32.into(), "clip_norm is 0.0; it must be a number, from 1e-30 to 1e+30, or none"),
            ("max_loss", (-1i32).into(), "max_loss is -1.0; it must be a number, from 1e-30 to 1e+38, or none"),
            ("max_loss", 0i32.into(), "max_loss is 0.0; it must be a number, from 1e-30 to 1e+38, or none"),
            ("clip_norm", "x".into(), "clip_norm is 'x'; it must be a number, from 1e-30 to 1e+30, or none"),
            ("beta2", f64::NAN.into(), "beta2 is nan; it must be a number, from 0 to 0.999999"),
            (
                "activation_checkpointing",
                (-1i32).into(),
                "activation_checkpointing is -1; it must be a whole number, from 0 to 2147483647",
            ),
            ("recompute_experts", 1i32.into(), "recompute_experts is 1; it must be true or false"),
            ("precision", "f8".into(), "precision is 'f8'; it must be one of f32, bf16, f16"),
            ("precision", Value::None, "precision is None; it must be one of f32, bf16, f16"),
            ("loss_scale", 2.0.into(), "loss_scale is given, but the precision is f32; losses are scaled in f16"),
            ("loss_scale_growth", 0.5.into(), "loss_scale_growth is 0.5; it must be a number, from 1 to 1.67772e+07"),
            ("loss_scale_backoff", 0.0.into(), "loss_scale_backoff is 0.0; it must be a number, from 5.96046e-08 to 1"),
            (
                "loss_scale_interval",
                0i32.into(),
                "loss_scale_interval is 0; it must be a whole number, from 1 to 2147483647",
            ),
        ];
        for (name, value, sentence) in cases {
            let error = TrainConfig::from_table(&Table::from([(name, value)])).unwrap_err();
            assert_eq!(error.to_string(), sentence);
        }
        let error = TrainConfig::from_table(&Table::from([("epochs", 1i32.into())])).unwrap_err();
        assert!(
            error.to_string().starts_with("there is no training option 'epochs'; there are activation_checkpointing, ")
        );
    }

    #[test]
    fn numbers_have_the_bounds_of_all_languages() {
        crate::options::bounds::check("train", TrainConfig::OPTIONS, |name, value| {
            let precision = if name.starts_with("loss_scale") { "f16" } else { "f32" };
            TrainConfig::from_table(&Table::from([("precision", precision.into()), (name, value)])).map(|_| ())
        });
    }

    #[test]
    fn options_that_exclude_one_another_are_named() {
        let scale = |precision: &str, scale: f64| [("precision", precision.into()), ("loss_scale", scale.into())];
        let refused = |options: [(&str, Value); 2]| TrainConfig::from_table(&Table::from(options)).unwrap_err();
        let error = refused(scale("bf16", 2.0));
        assert_eq!(error.to_string(), "loss_scale is given, but the precision is bf16; losses are scaled in f16");
        let error = refused(scale("f16", 33_554_432.0));
        let span = "from 5.96046e-08 to 1.67772e+07";
        assert_eq!(error.to_string(), format!("loss_scale is 33554432.0; it must be a number, {span}"));
        let error = refused([("recompute_experts", true.into()), ("activation_checkpointing", 1i32.into())]);
        assert!(error.to_string().ends_with("activation_checkpointing leaves; 1 leaves none"), "{error}");
    }

    #[test]
    fn options_that_were_added_stand_where_they_are_not_at_their_defaults() {
        let usual = TrainConfig::default().to_table();
        assert!(OF_SCALING.iter().chain(&ADDED).all(|name| usual.get(name).is_none()));
        let config = TrainConfig {
            precision: Precision::F16,
            loss_scale: 128.0,
            activation_checkpointing: 2,
            recompute_experts: true,
            ..TrainConfig::default()
        };
        let table = config.to_table();
        let names: Vec<_> = table.names().filter(|name| OF_SCALING.contains(name) || ADDED.contains(name)).collect();
        assert_eq!(names, ["activation_checkpointing", "recompute_experts", "precision", "loss_scale"]);
        assert_eq!(TrainConfig::from_table(&table).unwrap(), config);
    }

    #[test]
    fn a_run_that_goes_on_takes_some_other_options() {
        let begun = TrainConfig { steps: 9, recompute_experts: true, ..TrainConfig::default() };
        let changes =
            [("micro_batch_size", 2i32.into()), ("recompute_experts", false.into()), ("max_loss", 3.0.into())];
        let wanted = TrainConfig { steps: 9, micro_batch_size: Some(2), max_loss: Some(3.0), ..TrainConfig::default() };
        assert_eq!(begun.changed(&Table::from(changes)).unwrap(), wanted);
        let refused = |name: &str, value: Value| begun.changed(&Table::from([(name, value)])).unwrap_err().to_string();
        assert!(
            refused("steps", 3i32.into()).starts_with("a run goes on with the steps it has; it takes others of micro_")
        );
        assert_eq!(
            refused("log_every", 0i32.into()),
            "log_every is 0; it must be a whole number, from 1 to 2147483647"
        );
        assert_eq!((wanted.loss_limit(9), begun.loss_limit(1)), (3.0, 0.0));
    }

    #[test]
    fn none_turns_clipping_off() {
        let config = TrainConfig::from_table(&Table::from([("clip_norm", Value::None)])).unwrap();
        assert_eq!(config.clip_norm, None);
        assert_eq!(TrainConfig::from_table(&config.to_table()).unwrap(), config);
    }
}
