//! A stored model as one that trains: its sizes as those of a [`MoEConfig`], and its rows in the order of folders.
//!
//! Beside an adapter the weights stay as they are stored, so more will do: [`config_beside`]. Where all weights are trained the
//! model becomes one of this library, whose checkpoints are folders: [`config_of_all`].

use nn_ffi::RopeLayout;

use super::adapter_gguf::{interleaved_order, is_rotated};
use super::config::MoEConfig;
use super::llama::{GateActivation, LlamaConfig, QkNorm, Scaling};
use super::rope_scaling::llama3_divisors;
use crate::error::{Error, Result};
use crate::format::{StoredTensor, Value};

/// How far from ours a divisor of llama3's scaling may be: converters compute in f32, and where the frequency begins to be
/// stretched, a few of its roundings (2^-24) are as many times more as it is stretched by.
const NEAR: f64 = 1e-4;

/// The sizes of a model beside which an adapter is trained. Its context is what all of its layers see. `Error::Value` for a model
/// beside which none is names what it has.
pub(super) fn config_beside(config: &LlamaConfig) -> Result<MoEConfig> {
    let what = "adapters are trained beside";
    if config.num_experts > 0 {
        return Err(other(what, "num_experts", &config.num_experts.into(), "0"));
    }
    check_layers(config, config.ternary, &["none", "linear", "ntk", "llama3"], what)?;
    let made = MoEConfig {
        qkv_bias: config.qkv_bias && config.qk_norm == QkNorm::None,
        ternary: config.ternary,
        squared_relu: config.activation == GateActivation::Relu2,
        ..sizes_of(config)
    };
    made.validate()?;
    Ok(made)
}

/// The options of a model of which all weights are trained, which this library's own then computes. Its context is what all of its
/// layers see. `Error::Value` for one that has something besides names it.
pub(super) fn config_of_all(config: &LlamaConfig) -> Result<MoEConfig> {
    let what = "all weights are trained of";
    check_layers(config, false, &["none", "ntk", "llama3"], what)?;
    if config.o_bias {
        return Err(other(what, "o_bias", &true.into(), &Value::from(false).shown()));
    }
    let mut made = MoEConfig { qkv_bias: config.qkv_bias, ..sizes_of(config) };
    match &config.rope.scaling {
        Scaling::Ntk { alpha } => (made.extended_context, made.ntk_alpha) = (config.extended_context, *alpha),
        Scaling::Llama3(divided) => made.rope_factor = llama3_factor(config, &divided.divisors, &made)?,
        _ => {}
    }
    if config.num_experts > 0 {
        made.norm_topk_prob = config.norm_topk_prob;
    }
    made.validate()?;
    Ok(made)
}

/// Refuses what a layer may have that those which train have not, and other scalings of the rotary embedding.
fn check_layers(config: &LlamaConfig, ternary: bool, scalings: &[&str], what: &str) -> Result<()> {
    let gates: &[_] = if ternary { &["silu", "relu2"] } else { &["silu"] };
    let gate = config.activation.name();
    if !gates.contains(&gate) {
        return Err(other(what, "activation", &gate.into(), &format!("'{}'", gates.join("' or '"))));
    }
    let flag = |value: bool| (Value::Bool(value), Value::Bool(false));
    let as_ternary = |value: bool| (Value::Bool(value), Value::Bool(ternary));
    let number = |value: f64, usual: f64| (Value::Float(value), Value::Float(usual));
    for (name, (found, usual)) in [
        ("ternary", as_ternary(config.ternary)),
        ("post_norms", flag(config.post_norms)),
        ("norms_less_one", flag(config.norms_less_one)),
        ("sinks", flag(config.sinks)),
        ("shared_ffn_size", (config.shared_ffn_size.into(), 0usize.into())),
        ("biased_experts", flag(config.biased_experts)),
        ("embedding_scale", number(config.embedding_scale, 1.0)),
        ("residual_scale", number(config.residual_scale, 1.0)),
        ("attention_scale", number(config.attention_scale, 0.0)),
        ("logits_scaling", number(config.logits_scaling, 1.0)),
        ("scores_cap", number(config.scores_cap, 0.0)),
        ("logits_cap", number(config.logits_cap, 0.0)),
        ("local_rope_base", number(config.local_rope_base, 0.0)),
        ("sub_norms", as_ternary(config.sub_norms)),
    ] {
        if found != usual {
            return Err(other(what, name, &found, &usual.shown()));
        }
    }
    if config.qk_norm == QkNorm::Whole {
        return Err(other(what, "qk_norm", &"whole".into(), "'none' or 'head'"));
    }
    let scaling = config.rope.scaling.name();
    if !scalings.contains(&scaling) {
        return Err(other(what, "rope.scaling", &scaling.into(), &format!("'{}'", scalings.join("' or '"))));
    }
    if config.rotated() != config.head_dim {
        return Err(other(what, "rope.rotated", &config.rope.rotated.into(), "0, which is all of a head"));
    }
    Ok(())
}

fn other(what: &str, name: &str, value: &Value, usual: &str) -> Error {
    Error::value(format!("{name} is {}; {what} models with {usual}", value.shown()))
}

/// The sizes of a model that trains, without what is not the same beside an adapter.
fn sizes_of(config: &LlamaConfig) -> MoEConfig {
    let context = if config.window > 0 { config.context.min(config.window) } else { config.context };
    MoEConfig {
        vocab_size: config.vocab_size,
        hidden_size: config.hidden_size,
        num_layers: config.num_layers,
        num_heads: config.num_heads,
        num_kv_heads: config.num_kv_heads,
        head_dim: config.head_dim,
        num_experts: config.num_experts,
        experts_per_token: config.experts_per_token,
        ffn_size: config.ffn_size,
        context,
        extended_context: context,
        rope_base: config.rope.base,
        ntk_alpha: 1.0,
        norm_eps: config.norm_eps,
        qk_norm: config.qk_norm == QkNorm::Head,
        tie_embeddings: config.tie_embeddings,
        ..MoEConfig::default()
    }
}

/// The factor of llama3's scaling with the divisors of a model. GGUF files have these alone, so the other numbers must be those of
/// Llama 3.1 to 3.3, which are ours where nothing is said.
fn llama3_factor(config: &LlamaConfig, divisors: &[f32], usual: &MoEConfig) -> Result<f64> {
    let factor = divisors.iter().fold(1.0, |most: f64, one| most.max((*one).into()));
    let (low, high, original) = (usual.rope_low, usual.rope_high, usual.rope_original);
    let ours = llama3_divisors(config.rope.base, config.head_dim, factor, [low, high], original as f64);
    let far = |(one, found): (&f32, &f32)| (f64::from(*one) - f64::from(*found)).abs() > NEAR * f64::from(*one);
    if ours.iter().zip(divisors).any(far) {
        return Err(Error::value(format!(
            "rope.divisors are not those of Llama 3.1, of {low} and {high} turns in {original} positions; all weights are trained \
             of models with these, or without"
        )));
    }
    Ok(factor)
}

/// A tensor by its name in `LlamaConfig::shapes`, what is of queries or keys with half-split pairs, the order of folders: as it is,
/// or a copy.
pub(super) fn half_split(config: &LlamaConfig, name: &str, stored: &StoredTensor) -> Result<StoredTensor> {
    let others = [".q_proj.bias", ".k_proj.bias", ".q_norm.weight", ".k_norm.weight"];
    let turned = is_rotated(name) || others.iter().any(|end| name.ends_with(end));
    if config.rope.layout == RopeLayout::Half || !turned {
        return Ok(stored.clone());
    }
    let mut back = vec![0; config.head_dim];
    interleaved_order(config.head_dim).iter().enumerate().for_each(|(at, row)| back[*row] = at);
    let shape = stored.shape.clone();
    let rows =
        StoredTensor { shape: if let [size] = shape[..] { vec![size, 1] } else { shape.clone() }, ..stored.clone() };
    Ok(StoredTensor { shape, ..rows.rows_in_order(&back)? })
}
