//! Options of training.

use crate::error::{Error, Result};
use crate::options::{options, refuse};

options! {
    /// Everything that decides the bits of a training run, beside the model and the data; and when it reports.
    "training" struct TrainConfig {
        steps: usize = 10000, "updates in all; the schedule ends here";
        batch_size: usize = 8, "sequences an update";
        micro_batch_size: Option<usize> = None,
            "sequences that run at once; the gradients of the micro-batches of an update are added up";
        sequence_length: usize = 256, "tokens a sequence";
        learning_rate: f64 = 3e-4, "highest rate, reached after the warm-up";
        min_rate_share: f64 = 0.1, "the cosine ends at this share of it";
        warmup_steps: usize = 2000, "steps of linear warm-up";
        beta1: f64 = 0.9, "AdamW's";
        beta2: f64 = 0.95, "AdamW's";
        eps: f64 = 1e-8, "AdamW's";
        weight_decay: f64 = 0.1, "decoupled, on matrices only";
        clip_norm: Option<f64> = Some(1.0), "largest global norm of the gradients; None never clips";
        seed: i64 = 0, "of the initial weights and of the data order";
        eval_every: usize = 100, "steps between evaluations on held-out text; 0 evaluates at the end alone";
        eval_batches: usize = 0, "batches an evaluation takes, always the same ones; 0 takes all";
        save_every: usize = 100, "steps between checkpoints; 0 saves at the end alone";
        keep_checkpoints: usize = 2, "how many of the newest to keep, beside the best";
        log_every: usize = 1, "steps between lines of metrics";
    }
}

impl TrainConfig {
    fn allowed(name: &str) -> &'static str {
        match name {
            "warmup_steps" | "eval_every" | "eval_batches" | "save_every" => "a whole number, at least 0",
            "seed" => "a whole number of 64 bits",
            "min_rate_share" | "beta1" | "beta2" => "a number, from 0 to 1",
            "learning_rate" | "eps" | "weight_decay" | "clip_norm" => "a number, at least 0",
            _ => "a whole number, at least 1",
        }
    }

    /// `Error::Value` names an option that has a value it may not have.
    pub fn validate(&self) -> Result<()> {
        let least_one = [
            ("steps", Some(self.steps)),
            ("batch_size", Some(self.batch_size)),
            ("sequence_length", Some(self.sequence_length)),
            ("log_every", Some(self.log_every)),
            ("keep_checkpoints", Some(self.keep_checkpoints)),
            ("micro_batch_size", self.micro_batch_size),
        ];
        for (name, value) in least_one {
            if value == Some(0) {
                return Err(refuse(name, &0usize.into(), Self::allowed(name)));
            }
        }
        let numbers = [
            ("learning_rate", self.learning_rate),
            ("min_rate_share", self.min_rate_share),
            ("beta1", self.beta1),
            ("beta2", self.beta2),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
            ("clip_norm", self.clip_norm.unwrap_or(1.0)),
        ];
        for (name, value) in numbers {
            let most = if Self::allowed(name).ends_with("from 0 to 1") { 1.0 } else { f64::MAX };
            if !(0.0..=most).contains(&value) {
                return Err(refuse(name, &value.into(), Self::allowed(name)));
            }
            let problem = match name {
                "beta1" | "beta2" if value == 1.0 => "is 1; it must be below 1",
                "eps" if value == 0.0 => "is 0; it must be above 0",
                "clip_norm" if value == 0.0 => "is 0; it must be above 0, or none for no clipping",
                _ => continue,
            };
            return Err(Error::value(format!("{name} {problem}")));
        }
        Ok(())
    }

    /// Warm-up and total steps of the learning-rate schedule: a run shorter than its warm-up never leaves it.
    pub fn schedule_steps(&self) -> (usize, usize) {
        (self.warmup_steps, self.steps.max(self.warmup_steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Table, Value};

    #[test]
    fn wrong_options_are_named() {
        let cases: [(&str, Value, &str); 12] = [
            ("steps", 0i32.into(), "steps is 0; it must be a whole number, at least 1"),
            ("steps", 1.5.into(), "steps is 1.5; it must be a whole number, at least 1"),
            ("warmup_steps", (-1i32).into(), "warmup_steps is -1; it must be a whole number, at least 0"),
            ("micro_batch_size", 0i32.into(), "micro_batch_size is 0; it must be a whole number, at least 1"),
            ("seed", Value::Integer(1 << 63), "seed is 9223372036854775808; it must be a whole number of 64 bits"),
            ("learning_rate", f64::INFINITY.into(), "learning_rate is inf; it must be a number, at least 0"),
            ("min_rate_share", 1.5.into(), "min_rate_share is 1.5; it must be a number, from 0 to 1"),
            ("beta1", 1i32.into(), "beta1 is 1; it must be below 1"),
            ("eps", 0.0.into(), "eps is 0; it must be above 0"),
            ("clip_norm", 0i32.into(), "clip_norm is 0; it must be above 0, or none for no clipping"),
            ("clip_norm", "x".into(), "clip_norm is 'x'; it must be a number, at least 0"),
            ("beta2", f64::NAN.into(), "beta2 is nan; it must be a number, from 0 to 1"),
        ];
        for (name, value, sentence) in cases {
            let error = TrainConfig::from_table(&Table::from([(name, value)])).unwrap_err();
            assert_eq!(error.to_string(), sentence);
        }
        let error = TrainConfig::from_table(&Table::from([("epochs", 1i32.into())])).unwrap_err();
        assert!(error.to_string().starts_with("there is no training option 'epochs'; there are batch_size, "));
    }

    #[test]
    fn none_turns_clipping_off() {
        let config = TrainConfig::from_table(&Table::from([("clip_norm", Value::None)])).unwrap();
        assert_eq!(config.clip_norm, None);
        assert_eq!(TrainConfig::from_table(&config.to_table()).unwrap(), config);
    }
}
