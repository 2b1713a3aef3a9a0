//! Options of training.

use super::moments::MomentsKind;
use super::reduce_dtype::ReduceDtype;
use crate::error::{Error, Result};
use crate::format::{Table, Value};
use crate::model::{self, LORA_TARGETS, LowRankOptions, Precision};
use crate::options::{Bounds, check_bounds, check_counts, options, require, rule_of, whole_rule};

/// The least loss scale that the library takes.
pub(super) const LEAST_LOSS_SCALE: f64 = 1.0 / 16_777_216.0;
/// The largest.
pub(super) const LARGEST_LOSS_SCALE: f64 = 16_777_216.0;

/// Options of loss scaling, which f16 alone has.
const OF_SCALING: [&str; 4] = ["loss_scale", "loss_scale_growth", "loss_scale_backoff", "loss_scale_interval"];
/// Other options that checkpoints did not have from the beginning. Files have them, and those above, where they are not
/// at their defaults, so a run that uses none of them writes the same file as ever, which older programs open too.
const ADDED: [&str; 13] = [
    "max_loss",
    "activation_checkpointing",
    "recompute_experts",
    "keep_experts",
    "precision",
    "moments",
    "replicas",
    "reduce_dtype",
    "document_mask",
    "hash_every",
    "lora_rank",
    "lora_alpha",
    "lora_targets",
];

/// The largest rank of an adapter; tests/bounds.json has the reason.
const LARGEST_RANK: usize = 65536;

/// What each number must be; tests/bounds.json has the reasons.
const BOUNDS: [Bounds; 12] = [
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
    ("lora_alpha", 1e-6, 1e6, "a number, from 1e-06 to 1e+06, or none"),
];
/// Options that count from 1 on.
const FROM_ONE: [&str; 8] = [
    "steps",
    "batch_size",
    "micro_batch_size",
    "replicas",
    "sequence_length",
    "log_every",
    "keep_checkpoints",
    "loss_scale_interval",
];
/// Options that count from 0 on.
const FROM_NONE: [&str; 8] = [
    "document_mask",
    "warmup_steps",
    "activation_checkpointing",
    "keep_experts",
    "eval_every",
    "eval_batches",
    "save_every",
    "hash_every",
];

options! {
    /// Everything that decides the bits of a training run, beside the model and the data; and when it reports.
    "training" struct TrainConfig {
        steps: usize = 10000, "total number of updates; the schedule ends here";
        batch_size: usize = 8, "sequences per update";
        micro_batch_size: Option<usize> = None,
            "sequences that run at once; the gradients of the micro-batches of an update are added up";
        replicas: usize = 1,
            "parts of an update that ranks share out; their gradients are added in a tree that the number of ranks does \
             not change: at most as many as there are micro-batches";
        reduce_dtype: ReduceDtype = ReduceDtype::F32,
            "what the gradient of each replica, and each sum of them but the whole, is rounded to, so that ranks send \
             fewer bytes: f32, which rounds nothing, bf16, or f16, for precision f16";
        sequence_length: usize = 256, "tokens per sequence";
        document_mask: Option<usize> = None,
            "id of the token that ends a document: documents in a sequence then do not see one another, and each begins \
             at position 0; None for one that sees all before it";
        learning_rate: f64 = 3e-4, "highest rate, reached after the warm-up";
        min_rate_share: f64 = 0.1, "the cosine ends at this share of it";
        warmup_steps: Option<usize> = None,
            "steps of linear warm-up, fewer than there are steps; None is a twentieth of them, from 1 to 2000";
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
        keep_experts: usize = 0,
            "with recompute_experts, so many blocks, the last ones, keep it, as far as memory goes";
        precision: Precision = Precision::F32,
            "what the model computes in: f32, bf16, f16, whose losses are scaled, or fp8, which is bf16 with the experts' \
             products in 8 bits; weights and gradients are kept in f32";
        moments: MomentsKind = MomentsKind::F32,
            "format of both AdamW moments, to save memory: f32, bf16, or f8, which is 8-bit codes with a scale \
             for every 256 parameters";
        loss_scale: f64 = 65536.0, "initial loss scale, with f16";
        loss_scale_growth: f64 = 2.0, "factor of the scale after `loss_scale_interval` steps without an overflow";
        loss_scale_backoff: f64 = 0.5,
            "factor of the scale after a step whose gradients overflow, which is skipped";
        loss_scale_interval: usize = 2000, "steps without an overflow after which the scale grows";
        lora_rank: usize = 0,
            "rank of an adapter (LoRA) that is trained beside the model's weights, which stay as they are stored; 0 trains \
             the weights";
        lora_alpha: Option<f64> = None,
            "by which what it adds counts lora_alpha / lora_rank times; None is lora_rank, which is once";
        lora_targets: String = "all".to_owned(),
            "the projections of a layer that have one, separated by commas, such as q_proj,v_proj; or all";
        seed: i64 = 0, "seed of the initial weights and of the data order";
        eval_every: usize = 100, "steps between evaluations on held-out text; 0 evaluates only at the end";
        eval_batches: usize = 0, "batches per evaluation, always the same ones; 0 uses all";
        save_every: usize = 100, "steps between checkpoints; 0 saves only at the end";
        keep_checkpoints: usize = 2, "how many of the newest to keep, besides the best";
        log_every: usize = 1, "steps between lines of metrics";
        hash_every: usize = 25,
            "steps between hashes of parameters, moments and data, by which a run can be checked; 0 makes none";
    }
}

impl TrainConfig {
    fn allowed(name: &str) -> &'static str {
        match name {
            "recompute_experts" => "true or false",
            "precision" => "one of f32, bf16, f16, fp8",
            "reduce_dtype" => "one of f32, bf16, f16",
            "moments" => "one of f32, bf16, f8",
            "seed" => "a whole number of 64 bits",
            "lora_rank" => "a whole number, from 0 to 65536",
            "lora_targets" => {
                "all, or some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, separated by commas"
            }
            "document_mask" => "a whole number, from 0 to 2147483647, or none",
            _ if FROM_NONE.contains(&name) => whole_rule(0),
            _ => rule_of(&BOUNDS, name).unwrap_or(whole_rule(1)),
        }
    }

    /// `Error::Value` names an option that has a value it may not have.
    pub fn validate(&self) -> Result<()> {
        let values = self.values();
        check_counts(&values, &FROM_ONE, 1)?;
        check_counts(&values, &FROM_NONE, 0)?;
        self.check_replicas(self.batch_size)?;
        check_bounds(&values, &BOUNDS)?;
        if self.recompute_experts && self.activation_checkpointing == 1 {
            let problem = "recompute_experts is for blocks that activation_checkpointing leaves; 1 leaves none";
            return Err(Error::value(problem));
        }
        if self.keep_experts > 0 && !self.recompute_experts {
            let problem = "but recompute_experts is false; then all blocks keep them";
            return Err(Error::value(format!("keep_experts is {}, {problem}", self.keep_experts)));
        }
        let (reduced, precision) = (self.reduce_dtype, self.precision);
        if reduced == ReduceDtype::F16 && precision != Precision::F16 {
            return Err(Error::value(format!(
                "reduce_dtype is f16, but the precision is {precision}; gradients fit into f16 only with the loss scale \
                 of precision f16"
            )));
        }
        if reduced != ReduceDtype::F32 && self.replicas == 1 {
            let problem = "gradients are rounded between replicas";
            return Err(Error::value(format!("reduce_dtype is {reduced}, but replicas is 1; {problem}")));
        }
        self.check_adapter()?;
        if precision != Precision::F16 {
            let (given, usual) = (self.values(), Self::default().values());
            if let Some(name) = OF_SCALING.into_iter().find(|name| given.get(name) != usual.get(name)) {
                let problem = format!("{name} is given, but the precision is {precision}; losses are scaled in f16");
                return Err(Error::value(problem));
            }
        }
        Ok(())
    }

    /// Refuses options of an adapter that they may not have, or where none is trained.
    fn check_adapter(&self) -> Result<()> {
        let (rank, targets) = (self.lora_rank, &self.lora_targets);
        require(rank <= LARGEST_RANK, "lora_rank", &rank, Self::allowed("lora_rank"))?;
        let names = self.adapted();
        let once = |(at, name): (usize, &&str)| LORA_TARGETS.contains(name) && !names[..at].contains(name);
        require(names.iter().enumerate().all(once), "lora_targets", targets, Self::allowed("lora_targets"))?;
        if rank > 0 {
            if self.precision != Precision::F32 {
                let problem = format!("but lora_rank is {rank}; adapters are trained in f32");
                return Err(Error::value(format!("precision is {}, {problem}", self.precision)));
            }
            return Ok(());
        }
        let (given, usual) = (self.values(), Self::default().values());
        for name in ["lora_alpha", "lora_targets"] {
            if given.get(name) != usual.get(name) {
                return Err(Error::value(format!("{name} is given, but lora_rank is 0; it is of an adapter")));
            }
        }
        Ok(())
    }

    /// The projections of a layer that have an adapter.
    fn adapted(&self) -> Vec<&str> {
        if self.lora_targets == "all" { LORA_TARGETS.to_vec() } else { self.lora_targets.split(',').collect() }
    }

    /// What the adapter of a run is made with; `None` where none is trained.
    pub fn low_rank(&self) -> Option<LowRankOptions> {
        let (rank, targets) = (self.lora_rank, self.adapted().into_iter().map(str::to_owned).collect());
        (rank > 0).then(|| LowRankOptions { rank, alpha: self.lora_alpha.unwrap_or(rank as f64), targets })
    }

    /// Sequences that run at once, of an update of `batch`.
    pub(crate) fn micro_batch(&self, batch: usize) -> usize {
        self.micro_batch_size.unwrap_or(batch).min(batch).max(1)
    }

    /// Micro-batches of an update.
    pub(crate) fn micro_batches(&self) -> usize {
        self.batch_size.div_ceil(self.micro_batch(self.batch_size))
    }

    /// Refuses replicas some of which would have no micro-batch of an update of `batch` sequences.
    pub(super) fn check_replicas(&self, batch: usize) -> Result<()> {
        let (replicas, micro) = (self.replicas, self.micro_batch_size.unwrap_or(batch));
        let most = batch.div_ceil(self.micro_batch(batch));
        if replicas <= most.max(1) {
            return Ok(());
        }
        Err(Error::value(format!(
            "replicas is {replicas}; an update of batch_size {batch} in micro-batches of {micro} has {most}, so it must be \
             1 to {most}"
        )))
    }

    /// Options that may change when a run continues. Micro-batches and what is computed twice change how a step is
    /// reached, not what is trained; the rest decides when the run looks at itself.
    pub const CHANGEABLE: [&str; 11] = [
        "micro_batch_size",
        "activation_checkpointing",
        "recompute_experts",
        "keep_experts",
        "eval_every",
        "eval_batches",
        "save_every",
        "keep_checkpoints",
        "log_every",
        "hash_every",
        "max_loss",
    ];

    /// Options that a run may be extended with other values of, beside those: together, the learning rate of each step.
    pub const SCHEDULE: [&str; 4] = ["steps", "learning_rate", "min_rate_share", "warmup_steps"];

    /// These options with some others than they were. `Error::Value` names one that is not of `CHANGEABLE`, or a value
    /// that it may not have.
    pub fn changed(&self, changes: &Table) -> Result<Self> {
        self.with(changes, &Self::CHANGEABLE)
    }

    /// The same of `SCHEDULE` and `CHANGEABLE`.
    pub fn extended(&self, changes: &Table) -> Result<Self> {
        self.with(changes, &[Self::SCHEDULE.as_slice(), &Self::CHANGEABLE].concat())
    }

    fn with(&self, changes: &Table, changeable: &[&str]) -> Result<Self> {
        let mut options = self.clone();
        for (name, value) in changes.iter() {
            if !changeable.contains(&name) {
                let taken = changeable.join(", ");
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

    /// All options by name, in their order, but those that were added later and are at their defaults; warm-up that is
    /// none as the steps that it is.
    pub fn to_table(&self) -> Table {
        let (mut values, usual) = (self.resolved(), Self::default().values());
        for name in ADDED.into_iter().chain(OF_SCALING) {
            if values.get(name) == usual.get(name) {
                values.remove(name);
            }
        }
        values
    }

    /// All options by name, in their order; warm-up that is none as the steps that it is.
    pub(super) fn resolved(&self) -> Table {
        let mut values = self.values();
        values.set("warmup_steps", self.schedule_steps().0);
        if let Some(adapter) = self.low_rank() {
            values.set("lora_alpha", adapter.alpha);
        }
        values
    }

    /// Warm-up and total steps of the learning-rate schedule: a run shorter than its warm-up never leaves it.
    pub fn schedule_steps(&self) -> (usize, usize) {
        let warmup = self.warmup_steps.unwrap_or_else(|| usual_warmup(self.steps));
        (warmup, self.steps.max(warmup))
    }

    /// The schedule as the library takes it: warm-up, total steps, highest and lowest rate.
    pub(super) fn rates(&self) -> (i64, i64, f32, f32) {
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let (warmup, total) = self.schedule_steps();
        let lowest = self.learning_rate * self.min_rate_share;
        (whole(warmup), whole(total), self.learning_rate as f32, lowest as f32)
    }

    /// `Error::Value` when the steps end before the warm-up does. Runs from when that was allowed still continue.
    pub fn check_schedule(&self) -> Result<()> {
        let ((warmup, _), steps, usual) = (self.schedule_steps(), self.steps, usual_warmup(self.steps));
        if warmup < steps {
            return Ok(());
        }
        Err(Error::value(format!(
            "warmup_steps is {warmup}, but there are {steps} steps: the rate would never reach its highest; give fewer, \
             such as {usual}, or none, which is {usual} here"
        )))
    }

    /// What a run that begins with trained weights is trained with, where it is not the default: few steps, with a low rate.
    pub fn fine_tuning() -> Table {
        Table::from([("steps", 1000usize.into()), ("learning_rate", 5e-5.into())])
    }

    /// The same of an adapter, whose few parameters take larger steps. (Dettmers et al. 2023, "QLoRA", appendix B)
    pub fn adapter_tuning() -> Table {
        Table::from([("steps", 1000usize.into()), ("learning_rate", 2e-4.into())])
    }

    /// The options that go with the model of a preset.
    pub fn preset(name: &str) -> Result<Self> {
        Self::from_table(&preset(name)?)
    }
}

/// Options as lines of text, the same in every language: numbers that are not whole by the bits of their f64.
pub(super) fn canonical(options: &[Table]) -> String {
    let text = |value: &Value| match value {
        Value::None => "none".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => format!("{:016x}", number.to_bits()),
        Value::Text(word) => word.clone(),
        other => other.shown(), // no option is one
    };
    let lines = options.iter().flat_map(Table::iter).map(|(name, value)| format!("{name}={}\n", text(value)));
    lines.collect()
}

/// Steps of warm-up where none are given: a twentieth, at least 1 and at most 2000; a single step has none.
fn usual_warmup(steps: usize) -> usize {
    (steps / 20).clamp(1, 2000).min(steps.saturating_sub(1))
}

/// What the presets of models are trained with, where it is not the default. `Error::Value` for what is not a preset.
pub fn preset(name: &str) -> Result<Table> {
    let of = |steps: usize, learning_rate: f64| {
        Table::from([("steps", steps.into()), ("learning_rate", learning_rate.into())])
    };
    Ok(match name {
        "small" => of(2000, 2e-3),
        "demo" => of(1000, 2e-3),
        "6.9b" => {
            let mut options = of(100_000, 3e-4);
            for (name, count) in [
                ("batch_size", 64usize),
                ("micro_batch_size", 1),
                ("sequence_length", 4096),
                ("activation_checkpointing", 1),
            ] {
                options.set(name, count);
            }
            options.set("precision", Precision::BF16.name());
            options
        }
        _ => return model::preset(name), // whose error it is
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Value;

    #[test]
    fn numbers_have_the_bounds_of_all_languages() {
        crate::options::bounds::check("train", TrainConfig::OPTIONS, |name, value| {
            let precision = if name.starts_with("loss_scale") { "f16" } else { "f32" };
            let rank = usize::from(name == "lora_alpha");
            let given = [("precision", precision.into()), ("lora_rank", rank.into()), (name, value)];
            TrainConfig::from_table(&Table::from(given)).map(|_| ())
        });
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
            keep_experts: 1,
            warmup_steps: Some(7),
            ..TrainConfig::default()
        };
        let table = config.to_table();
        let names: Vec<_> = table.names().filter(|name| OF_SCALING.contains(name) || ADDED.contains(name)).collect();
        assert_eq!(names, ["activation_checkpointing", "recompute_experts", "keep_experts", "precision", "loss_scale"]);
        assert_eq!(TrainConfig::from_table(&table).unwrap(), config);
    }

    #[test]
    fn a_run_that_goes_on_takes_some_other_options() {
        let begun = TrainConfig { steps: 9, recompute_experts: true, ..TrainConfig::default() };
        let changes =
            [("micro_batch_size", 2i32.into()), ("recompute_experts", false.into()), ("max_loss", 3.0.into())];
        let wanted = TrainConfig { steps: 9, micro_batch_size: Some(2), max_loss: Some(3.0), ..TrainConfig::default() };
        assert_eq!(begun.changed(&Table::from(changes)).unwrap(), wanted);
        let refused = begun.changed(&Table::from([("steps", 3i32.into())])).unwrap_err().to_string();
        assert!(refused.starts_with("a run goes on with the steps it has; it takes others of micro_"), "{refused}");
        assert_eq!((wanted.loss_limit(9), begun.loss_limit(1)), (3.0, 0.0));
    }

    #[test]
    fn the_usual_warmup_is_a_twentieth() {
        for (steps, warmup) in [(1, 0), (2, 1), (39, 1), (40, 2), (2000, 100), (40019, 2000), (50000, 2000)] {
            let config = TrainConfig { steps, ..TrainConfig::default() };
            config.check_schedule().unwrap();
            assert_eq!(config.to_table().get("warmup_steps"), Some(&Value::from(warmup as usize)));
            let refused = TrainConfig { warmup_steps: Some(steps), ..config }.check_schedule().unwrap_err();
            let words = format!("warmup_steps is {steps}, but there are {steps} steps: ");
            assert!(refused.to_string().starts_with(&words), "{refused}");
        }
    }

    #[test]
    fn none_turns_clipping_off() {
        let options = [("clip_norm", Value::None), ("warmup_steps", 0i32.into())];
        let config = TrainConfig::from_table(&Table::from(options)).unwrap();
        assert_eq!(config.clip_norm, None);
        assert_eq!(TrainConfig::from_table(&config.to_table()).unwrap(), config);
    }
}
