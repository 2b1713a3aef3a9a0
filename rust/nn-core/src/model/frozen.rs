//! A stored model as the base of an adapter that is trained: its weights stay as they are stored.
//!
//! Any stored model will do whose layers are those that train. Heads of queries and keys whose pairs lie side by side, as in GGUF
//! files of Llamas, are read with half-split pairs, the order of folders, in which adapters are saved.

use std::path::Path;
use std::sync::OnceLock;

use nn_ffi::{Context, DType, Format, Tensor};
use sha2::{Digest, Sha256};

use super::config::MoEConfig;
use super::packed::{decode, packed};
use super::stored::StoredModel;
use super::trainable::{config_beside, half_split};
use crate::error::{Error, Result};
use crate::format::StoredTensor;
use crate::format::ternary::{Form, TernaryMatrix};
use crate::layer::RopeTables;

/// Bytes of a tensor that are looked at together.
const PIECE: usize = 1 << 24;

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
        let config = config_beside(stored.config()).map_err(|error| error.in_file(stored.path()))?;
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
        let part = half_split(self.stored.config(), name, &self.stored.tensors().whole(name)?)?;
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
        let values = half_split(self.stored.config(), name, part)?.f32()?;
        Ok(Some(ctx.tensor(&values, &[values.len()])?))
    }
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
