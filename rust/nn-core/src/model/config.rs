//! What a MoE transformer is made of: every option of its architecture, and presets.

use super::parameters::ParameterLayout;
use super::rope_scaling::llama3_divisors;
use crate::error::{Error, Result};
use crate::format::limits::{MODEL_PARAMETERS, MODEL_TENSORS};
use crate::format::value::quoted;
use crate::format::{Table, Value};
use crate::options::{Bounds, Kind, check_bounds, check_counts, options, require, rule_of, whole_rule};

options! {
    /// Sizes and options of a `MoETransformer`. The defaults are the configuration "6.9b".
    "model" struct MoEConfig {
        vocab_size: usize = 32000, "size of the vocabulary";
        hidden_size: usize = 768, "width of the residual stream";
        num_layers: usize = 30, "number of blocks";
        num_heads: usize = 12, "query heads of attention";
        num_kv_heads: usize = 1, "key and value heads: 1 is multi-query attention, num_heads multi-head";
        head_dim: usize = 64, "elements per head; a multiple of 8, at most 256";
        num_experts: usize = 16,
            "experts per layer; 0 makes the model dense: one network for all tokens, without a router";
        experts_per_token: usize = 4, "experts that each token goes to; 0 in a dense model";
        ffn_size: usize = 6144, "inner width of an expert, or of the network of a dense model";
        context: usize = 32768,
            "longest sequence in training, and at inference without stretching the rotary embedding";
        extended_context: usize = 262_144, "longest sequence at inference with `ntk_alpha`";
        rope_base: f64 = 10000.0, "base of the rotary embedding's angles";
        ntk_alpha: f64 = 8.0, "NTK-aware factor of that base, used beyond `context` only";
        norm_eps: f64 = 1e-5, "added to the mean square in RMSNorm";
        norm_topk_prob: bool = true, "whether a token's expert weights are divided by their sum";
        capacity_factor: Option<f64> = None,
            "in training an expert takes at most ceil(factor * tokens * experts_per_token / num_experts) \
             slots of a micro-batch, in token order, and drops the rest; None drops nothing";
        aux_alpha: f64 = 0.01, "weight of the load-balancing loss";
        init_std: f64 = 0.02, "standard deviation of the initial weights";
        qkv_bias: bool = false, "whether queries, keys and values have biases, as in Qwen2; in a dense model alone";
        qk_norm: bool = false,
            "whether each head of queries and keys is normed before it is rotated, as in Qwen3; \
             in a dense model without those biases alone";
        tie_embeddings: bool = false, "whether the head is the table of embeddings; in a dense model alone";
        ternary: bool = false,
            "whether all blocks' products have weights -1, 0 and 1 times a number, made of the parameters whenever they \
             are used, and activations of 8 bits, with norms in front of both projections back to the stream, as in \
             BitNet b1.58; in a dense model that trains in f32";
        squared_relu: bool = false, "whether the gate is max(x, 0)^2 in place of SiLU; with ternary weights alone";
        rope_factor: f64 = 1.0,
            "what llama3's scaling of the rotary embedding stretches long waves by; 1 leaves all as they are";
        rope_low: f64 = 1.0,
            "of it: waves that turn less often in the original context are stretched by the whole factor";
        rope_high: f64 = 4.0, "of it: waves that turn more often there stay as they are";
        rope_original: usize = 8192, "of it: the original context";
    }
}

/// What each number must be; tests/bounds.json has the reasons.
pub(super) const BOUNDS: [Bounds; 9] = [
    ("rope_base", 1.0, 1e12, "a number, from 1 to 1e+12"),
    ("ntk_alpha", 1.0, 1e6, "a number, from 1 to 1e+06"),
    ("norm_eps", 0.0, 1.0, "a number, from 0 to 1"),
    ("capacity_factor", 1e-6, 65536.0, "a number, from 1e-06 to 65536, or none"),
    ("aux_alpha", 0.0, 1000.0, "a number, from 0 to 1000"),
    ("init_std", 0.0, 100.0, "a number, from 0 to 100"),
    ("rope_factor", 1.0, 1e6, "a number, from 1 to 1e+06"),
    ("rope_low", 1e-6, 1.0, "a number, from 1e-06 to 1"),
    ("rope_high", 1.001, 1e6, "a number, from 1.001 to 1e+06"),
];

/// Options that are 0 in a dense model.
pub(super) const OF_EXPERTS: [&str; 2] = ["num_experts", "experts_per_token"];

/// Options of the router, which a dense model has at their defaults.
pub(super) const OF_ROUTER: [&str; 3] = ["norm_topk_prob", "capacity_factor", "aux_alpha"];

/// Options of parts of a dense model, which one with experts has at their defaults.
const OF_DENSE: [&str; 5] = ["qkv_bias", "qk_norm", "tie_embeddings", "ternary", "squared_relu"];

const IN_DENSE: &str = "in a dense model, whose num_experts is 0";

/// Names of the presets, in alphabetical order.
pub const PRESETS: [&str; 3] = ["6.9b", "demo", "small"];

/// What commands begin with where no preset is named: one that trains on any machine.
pub const USUAL_PRESET: &str = "small";

/// The options of a preset that differ from the defaults.
///
/// "6.9b", "small" (the benchmark's) or "demo" (that of `make run`); `Error::Value` for any other.
pub fn preset(name: &str) -> Result<Table> {
    let sizes: [(&str, usize); 10] = match name {
        "6.9b" => return Ok(Table::new()),
        "small" => [
            ("vocab_size", 4096),
            ("hidden_size", 256),
            ("num_layers", 4),
            ("num_heads", 4),
            ("head_dim", 64),
            ("num_experts", 8),
            ("experts_per_token", 2),
            ("ffn_size", 512),
            ("context", 256),
            ("extended_context", 2048),
        ],
        "demo" => [
            ("vocab_size", 4096),
            ("hidden_size", 192),
            ("num_layers", 4),
            ("num_heads", 6),
            ("head_dim", 32),
            ("num_experts", 8),
            ("experts_per_token", 2),
            ("ffn_size", 384),
            ("context", 256),
            ("extended_context", 2048),
        ],
        _ => {
            let known = PRESETS.join(", ");
            return Err(Error::value(format!("there is no preset {}; there are {known}", quoted(name))));
        }
    };
    Ok(sizes.into_iter().map(|(name, size)| (name.to_owned(), Value::from(size))).collect())
}

impl MoEConfig {
    /// All options by name, in their order.
    pub fn to_table(&self) -> Table {
        self.values()
    }

    /// The configuration of a preset.
    pub fn preset(name: &str) -> Result<Self> {
        Self::from_table(&preset(name)?)
    }

    fn allowed(name: &str) -> &'static str {
        match Self::OPTIONS.iter().find(|spec| spec.name == name).map(|spec| spec.kind) {
            Some(Kind::Flag) => "true or false",
            _ => rule_of(&BOUNDS, name).unwrap_or(whole_rule(usize::from(!OF_EXPERTS.contains(&name)))),
        }
    }

    /// `Error::Value` names an option that has a value it may not have.
    pub fn validate(&self) -> Result<()> {
        let values = self.to_table();
        let counts: Vec<&str> =
            Self::OPTIONS.iter().filter(|spec| spec.kind == Kind::Whole).map(|spec| spec.name).collect();
        let (of_experts, others): (Vec<_>, Vec<_>) = counts.into_iter().partition(|name| OF_EXPERTS.contains(name));
        check_counts(&values, &others, 1)?;
        check_counts(&values, &of_experts, 0)?;
        check_bounds(&values, &BOUNDS)?;
        let heads = self.num_heads;
        let divisor = format!("a divisor of num_heads ({heads})");
        require(heads.is_multiple_of(self.num_kv_heads), "num_kv_heads", &self.num_kv_heads, &divisor)?;
        let dim = self.head_dim;
        require(dim.is_multiple_of(8) && dim <= 256, "head_dim", &dim, "a multiple of 8, at most 256")?;
        let (chosen, most) = (self.experts_per_token, self.num_experts.min(64));
        let allowed = if most > 0 { format!("1 to {most}") } else { format!("0 {IN_DENSE}") };
        require((most.min(1)..=most).contains(&chosen), "experts_per_token", &chosen, &allowed)?;
        let (others, place): (&[&str], _) =
            if self.num_experts == 0 { (&OF_ROUTER, IN_DENSE) } else { (&OF_DENSE, "in a model with experts") };
        let usual = Self::default().to_table();
        for name in others {
            let (value, wanted) = (values.get(name), usual.get(name));
            if value != wanted {
                let [value, wanted] = [value, wanted].map(|value| value.unwrap_or(&Value::None).shown());
                return Err(Error::value(format!("{name} is {value}; it must be {wanted} {place}")));
            }
        }
        let least = format!("at least context ({})", self.context);
        require(self.extended_context >= self.context, "extended_context", &self.extended_context, &least)?;
        require(!(self.qk_norm && self.qkv_bias), "qkv_bias", &self.qkv_bias, "False with qk_norm")?;
        let (others, which): (&[&str], _) =
            if self.ternary { (&["qkv_bias", "qk_norm"], "with") } else { (&["squared_relu"], "without") };
        for name in others {
            let there = values.get(name) == Some(&Value::Bool(true));
            require(!there, name, &true, &format!("False {which} ternary weights"))?;
        }
        let tensors = ParameterLayout::count(self) as u128;
        if tensors > MODEL_TENSORS {
            let problem =
                format!("num_layers and num_experts make {tensors} tensors; a model may have at most {MODEL_TENSORS}");
            return Err(Error::value(problem));
        }
        if self.num_parameters() > MODEL_PARAMETERS {
            return Err(Error::value("the sizes make a model of more parameters than any machine holds"));
        }
        Ok(())
    }

    /// What llama3's scaling divides the frequencies of the rotary embedding by, a number a pair; none of plain ones.
    pub(super) fn rope_divisors(&self) -> Vec<f32> {
        if self.rope_factor == 1.0 {
            return Vec::new();
        }
        let (ends, original) = ([self.rope_low, self.rope_high], self.rope_original as f64);
        llama3_divisors(self.rope_base, self.head_dim, self.rope_factor, ends, original)
    }

    /// Most slots that an expert takes of `tokens` tokens in training; 0 means no limit.
    pub fn capacity(&self, tokens: usize) -> i64 {
        // The order of the operations decides how the product rounds, and so, at times, the capacity.
        self.capacity_factor.map_or(0, |factor| {
            (factor * tokens as f64 * self.experts_per_token as f64 / self.num_experts as f64).ceil() as i64
        })
    }

    /// Parameters in all.
    pub fn num_parameters(&self) -> u128 {
        self.parameters(self.num_experts.max(1))
    }

    /// Parameters that one token meets: those of its experts alone.
    pub fn num_active_parameters(&self) -> u128 {
        self.parameters(self.experts_per_token.max(1))
    }

    /// Biases of a layer.
    fn biases(&self) -> u128 {
        let (dim, heads, kv_heads) = (self.head_dim as u128, self.num_heads as u128, self.num_kv_heads as u128);
        if self.qkv_bias { dim.saturating_mul(heads + 2 * kv_heads) } else { 0 }
    }

    fn parameters(&self, experts: usize) -> u128 {
        let (hidden, layers) = (self.hidden_size as u128, self.num_layers as u128);
        // Sizes from a file may be absurd: a number that is too large to count says as much when it is capped.
        let product =
            |factors: &[usize]| factors.iter().fold(hidden, |product, factor| product.saturating_mul(*factor as u128));
        let attention = product(&[self.head_dim, self.num_heads.saturating_add(self.num_kv_heads), 2])
            .saturating_add(self.biases());
        let experts = product(&[3, experts, self.ffn_size]);
        let layer = attention.saturating_add(product(&[self.num_experts])).saturating_add(experts);
        let of_heads = if self.qk_norm { (2 * layers).saturating_mul(self.head_dim as u128) } else { 0 };
        let inner =
            (self.head_dim as u128).saturating_mul(self.num_heads as u128).saturating_add(self.ffn_size as u128);
        let sub_norms = if self.ternary { layers.saturating_mul(inner) } else { 0 };
        let norms = hidden.saturating_mul(2 * layers + 1).saturating_add(of_heads).saturating_add(sub_norms);
        let tables = 2 - usize::from(self.tie_embeddings);
        product(&[tables, self.vocab_size]).saturating_add(layer.saturating_mul(layers)).saturating_add(norms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid_and_have_the_known_sizes() {
        let sizes =
            [("6.9b", 6_882_678_528, 1_786_599_168), ("small", 15_345_920, 5_908_736), ("demo", 9_002_688, 3_694_272)];
        for (name, parameters, active) in sizes {
            let config = MoEConfig::preset(name).unwrap();
            assert_eq!((config.num_parameters(), config.num_active_parameters()), (parameters, active));
        }
        assert_eq!(
            MoEConfig::preset("big").unwrap_err().to_string(),
            "there is no preset 'big'; there are 6.9b, demo, small"
        );
    }

    #[test]
    fn numbers_have_the_bounds_of_all_languages() {
        crate::options::bounds::check("model", MoEConfig::OPTIONS, |name, value| {
            MoEConfig::from_table(&Table::from([(name, value)])).map(|_| ())
        });
    }

    #[test]
    fn a_dense_model_has_no_options_of_a_router() {
        let dense = MoEConfig { num_experts: 0, experts_per_token: 0, ..MoEConfig::preset("small").unwrap() };
        dense.validate().unwrap();
        assert_eq!(dense.num_parameters(), dense.num_active_parameters());
        let folder = crate::model::config_to_mixtral(&dense);
        assert_eq!(folder.get("model_type").and_then(Value::as_text), Some("llama"));
        assert_eq!(crate::model::config_from_mixtral(&folder).unwrap(), dense);
        let usual = || dense.clone();
        for (wrong, words) in [
            (MoEConfig { experts_per_token: 1, ..usual() }, "experts_per_token is 1; it must be 0 in a dense model"),
            (MoEConfig { num_experts: 2, ..usual() }, "experts_per_token is 0; it must be 1 to 2"),
            (MoEConfig { aux_alpha: 0.5, ..usual() }, "aux_alpha is 0.5; it must be 0.01 in a dense model"),
            (MoEConfig { capacity_factor: Some(2.0), ..usual() }, "capacity_factor is 2.0; it must be "),
        ] {
            let error = wrong.validate().unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn options_survive_their_table() {
        let config = MoEConfig { capacity_factor: Some(1.25), norm_topk_prob: false, ..MoEConfig::default() };
        assert_eq!(MoEConfig::from_table(&config.to_table()).unwrap(), config);
    }

    #[test]
    fn the_capacity_rounds_up() {
        let config = MoEConfig { capacity_factor: Some(1.25), ..MoEConfig::default() };
        assert_eq!([config.capacity(16), config.capacity(17)], [5, 6]);
        assert_eq!(MoEConfig::default().capacity(17), 0);
    }
}
