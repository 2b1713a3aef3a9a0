//! A stored model as the base of an adapter that is trained: its weights stay as they are stored.
//!
//! Any stored model will do whose layers are those that train. Heads of queries and keys whose pairs lie side by side, as in GGUF
//! files of Llamas, are read with half-split pairs, the order of folders, in which adapters are saved.

use std::path::Path;
use std::sync::OnceLock;

use nn_ffi::{Context, DType, Format, RopeLayout, Tensor};
use sha2::{Digest, Sha256};

use super::adapter_gguf::{interleaved_order, is_rotated};
use super::config::MoEConfig;
use super::llama::{GateActivation, LlamaConfig, QkNorm};
use super::packed::{decode, packed};
use super::stored::StoredModel;
use crate::error::{Error, Result};
use crate::format::ternary::{Form, TernaryMatrix};
use crate::format::{StoredTensor, Value};
use crate::layer::RopeTables;

/// Bytes of a tensor that are looked at together.
const PIECE: usize = 1 << 24;
const SCALINGS: [&str; 4] = ["none", "linear", "ntk", "llama3"];

/// A stored model, opened, none of it loaded yet.
#[derive(Debug)]
pub struct FrozenBase {
    stored: StoredModel,
    config: MoEConfig,
    sha256: OnceLock<String>,
}

impl FrozenBase {
    /// Opens a folder or a GGUF file. `Error::Format` when no adapter is trained beside it.
    pub fn open(path: &Path) -> Result<Self> {
        let stored = StoredModel::open(path)?;
        let config = trained_config(stored.config()).map_err(|error| error.in_file(stored.path()))?;
        Ok(Self { stored, config, sha256: OnceLock::new() })
    }

    /// The model.
    pub fn stored(&self) -> &StoredModel {
        &self.stored
    }

    /// Its sizes as of a model that trains.
    pub fn config(&self) -> &MoEConfig {
        &self.config
    }

    /// SHA-256 of the tensors' stored bytes, one after the other in the order of `LlamaConfig::shapes`, a tied head once; those of
    /// a ternary matrix are followed by its scale in f32, which of master weights they say themselves. `Error::Format` where one
    /// in f32, f16 or bf16 is not finite, or a ternary matrix is wrong.
    pub fn sha256(&self) -> Result<&str> {
        if let Some(found) = self.sha256.get() {
            return Ok(found);
        }
        let mut digest = Sha256::new();
        let tied = self.config.tie_embeddings;
        let names = self.stored.config().shapes().into_iter().map(|(name, _)| name);
        for name in names.filter(|name| !(tied && name == "lm_head.weight")) {
            match self.stored.ternary(&name) {
                Some(TernaryMatrix { form: Form::Master(masters), .. }) => self.add(&mut digest, masters)?,
                Some(matrix) => {
                    let scale = matrix.codes()?.map(|(_, scale)| scale).unwrap_or_default();
                    digest.update(&matrix.data[..]);
                    digest.update(scale.to_le_bytes());
                    matrix.data.release();
                }
                None => {
                    for part in self.stored.tensors().parts(&name)? {
                        self.add(&mut digest, part)?;
                    }
                }
            }
        }
        let digits: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(self.sha256.get_or_init(|| digits))
    }

    fn add(&self, digest: &mut Sha256, part: &StoredTensor) -> Result<()> {
        let (bytes, row) = (part.bytes()?, part.row_bytes());
        let step = (PIECE / row).max(1) * row;
        for first in (0..bytes.len()).step_by(step) {
            let Some(piece) = bytes.slice(first..bytes.len().min(first + step)) else { continue };
            digest.update(&piece[..]);
            require_finite(part, first / row, &piece).map_err(|error| error.in_file(self.stored.path()))?;
            piece.release();
        }
        Ok(())
    }

    /// Tables of the rotary embedding for sequences of up to its context.
    pub(super) fn rope(&self, ctx: &Context) -> Result<RopeTables> {
        let (config, context) = (self.stored.config(), self.config.context);
        let (options, divisors) = (config.rope_options(context)?, config.rope_divisors(context));
        RopeTables::scaled(ctx, config.head_dim, options, &divisors, (1.0, config.head_dim))
    }

    /// A copy of a matrix on the device, u8 `[rows, row_bytes]`, and its format.
    pub(super) fn matrix(&self, ctx: &Context, name: &str) -> Result<(Tensor, Format)> {
        let stored = self.stored.tensors().whole(name)?;
        let part = if is_rotated(name) { self.in_order(&stored)? } else { None };
        let part = part.as_ref().unwrap_or(&stored);
        let bytes = part.bytes()?;
        let copied = ctx.empty(&[part.rows(), part.row_bytes()], DType::U8)?;
        copied.copy_from_bytes(&bytes)?;
        bytes.release();
        Ok((copied, part.format.code))
    }

    /// A ternary matrix, packed on the device, u8 `[stored, row_bytes]`, and the scale of each output, f32 `[n]`. Rows of queries
    /// and keys are as they are stored: a BitNet has half-split pairs in files of every kind.
    pub(super) fn ternary(&self, ctx: &Context, name: &str) -> Result<[Tensor; 2]> {
        let missing = || Error::value(format!("the model has no matrix {name}"));
        let matrix = self.stored.ternary(name).ok_or_else(missing)?;
        packed(ctx, &[matrix], || decode(matrix))
    }

    /// A norm's gain or a bias, in f32; `None` where there is none of that name.
    pub(super) fn vector(&self, ctx: &Context, name: &str) -> Result<Option<Tensor>> {
        let Ok([part]) = self.stored.tensors().parts(name) else { return Ok(None) };
        let mut values = part.f32()?;
        let rotated = [".q_proj.bias", ".k_proj.bias", ".q_norm.weight", ".k_norm.weight"];
        if self.is_interleaved() && rotated.iter().any(|end| name.ends_with(end)) {
            let order = self.back();
            let heads = values.chunks_exact(order.len());
            values = heads.flat_map(|head| order.iter().map(|row| head[*row])).collect();
        }
        Ok(Some(ctx.tensor(&values, &[values.len()])?))
    }

    fn is_interleaved(&self) -> bool {
        self.stored.config().rope.layout == RopeLayout::Interleaved
    }

    /// Rows of a head with pairs side by side in the order of half-split pairs.
    fn back(&self) -> Vec<usize> {
        let mut back = vec![0; self.config.head_dim];
        interleaved_order(self.config.head_dim).iter().enumerate().for_each(|(at, row)| back[*row] = at);
        back
    }

    /// A matrix of queries or keys with half-split pairs, where it has others.
    fn in_order(&self, stored: &StoredTensor) -> Result<Option<StoredTensor>> {
        self.is_interleaved().then(|| stored.rows_in_order(&self.back())).transpose()
    }
}

/// The sizes of a stored model as those of one that trains. Its context is what all of its layers see. `Error::Value` for a model
/// beside which no adapter is trained names what it has.
fn trained_config(config: &LlamaConfig) -> Result<MoEConfig> {
    let flag = |value: bool| (Value::Bool(value), Value::Bool(false));
    let sub_norms = (Value::Bool(config.sub_norms), Value::Bool(config.ternary));
    let number = |value: f64, usual: f64| (Value::Float(value), Value::Float(usual));
    let gates: &[_] = if config.ternary { &["silu", "relu2"] } else { &["silu"] };
    let gate = config.activation.name();
    if !gates.contains(&gate) {
        return Err(other("activation", &gate.into(), &format!("'{}'", gates.join("' or '"))));
    }
    for (name, (found, usual)) in [
        ("num_experts", (config.num_experts.into(), 0usize.into())),
        ("post_norms", flag(config.post_norms)),
        ("norms_less_one", flag(config.norms_less_one)),
        ("sinks", flag(config.sinks)),
        ("embedding_scale", number(config.embedding_scale, 1.0)),
        ("residual_scale", number(config.residual_scale, 1.0)),
        ("attention_scale", number(config.attention_scale, 0.0)),
        ("logits_scaling", number(config.logits_scaling, 1.0)),
        ("scores_cap", number(config.scores_cap, 0.0)),
        ("logits_cap", number(config.logits_cap, 0.0)),
        ("local_rope_base", number(config.local_rope_base, 0.0)),
        ("sub_norms", sub_norms),
    ] {
        if found != usual {
            return Err(other(name, &found, &usual.shown()));
        }
    }
    if config.qk_norm == QkNorm::Whole {
        return Err(other("qk_norm", &"whole".into(), "'none' or 'head'"));
    }
    let scaling = config.rope.scaling.name();
    if !SCALINGS.contains(&scaling) {
        return Err(other("rope.scaling", &scaling.into(), &format!("'{}'", SCALINGS.join("' or '"))));
    }
    if config.rotated() != config.head_dim {
        return Err(other("rope.rotated", &config.rope.rotated.into(), "0, which is all of a head"));
    }
    let context = if config.window > 0 { config.context.min(config.window) } else { config.context };
    let made = MoEConfig {
        vocab_size: config.vocab_size,
        hidden_size: config.hidden_size,
        num_layers: config.num_layers,
        num_heads: config.num_heads,
        num_kv_heads: config.num_kv_heads,
        head_dim: config.head_dim,
        num_experts: 0,
        experts_per_token: 0,
        ffn_size: config.ffn_size,
        context,
        extended_context: context,
        rope_base: config.rope.base,
        ntk_alpha: 1.0,
        norm_eps: config.norm_eps,
        qkv_bias: config.qkv_bias && config.qk_norm == QkNorm::None,
        qk_norm: config.qk_norm == QkNorm::Head,
        tie_embeddings: config.tie_embeddings,
        ternary: config.ternary,
        squared_relu: config.activation == GateActivation::Relu2,
        ..MoEConfig::default()
    };
    made.validate()?;
    Ok(made)
}

fn other(name: &str, value: &Value, usual: &str) -> Error {
    Error::value(format!("{name} is {}; adapters are trained beside models with {usual}", value.shown()))
}

/// Refuses rows, from `first` on, of a format without blocks that are not finite.
fn require_finite(part: &StoredTensor, first: usize, rows: &nn_ffi::HostBytes) -> Result<()> {
    if part.format.dtype().is_none() {
        return Ok(());
    }
    let piece = StoredTensor { data: rows.clone(), made: None, ..part.clone() };
    let values = piece.f32()?;
    let Some(at) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
    let found = if values[at].is_nan() { "nan".to_owned() } else { values[at].to_string() };
    let (row, column) = (first + at / part.columns(), at % part.columns());
    let index = if part.shape.len() > 1 { vec![row, column] } else { vec![column] };
    Err(Error::value(format!("tensor {} is not finite, first at {index:?} ({found})", part.name)))
}
