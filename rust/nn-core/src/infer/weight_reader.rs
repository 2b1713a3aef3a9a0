//! The weights of a stored model as tensors of a context: on the CPU copied once or in place, on a GPU copied once.
//!
//! The copy on a CPU has the rows of matrices in block formats side by side, as products read them fastest: the same bytes,
//! the same results to the bit. A table of embeddings, of which a token reads one row, stays as it is.
//!
//! Pages of a file are of 4 KiB, the context's memory has pages of 2 MiB: decoding, which reads all weights a token, is a fifth
//! faster from those, and reading a file that the system holds in memory costs as much as some 30 tokens. In place, a model may
//! be larger than the memory, and programs that run the same file share it.

use std::str::FromStr;

use nn_ffi::{Context, DType, Device, Format, HostBytes, InstructionSet, RopeLayout, Tensor, kernels};

use super::low_rank::LowRank;
use crate::error::{Error, Result};
use crate::format::StoredTensor;
use crate::format::block_formats::INTERLEAVED_ROWS;
use crate::model::{StoredModel, StoredTensors, is_norm, is_rotated};

/// Bytes of a file that are read before their pages are given back.
const PIECE: usize = 1 << 24;

/// Where the weights lie on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In memory unless that would take more than half of what is free.
    #[default]
    Auto,
    /// Copied into the context's memory.
    Memory,
    /// The pages of the mapped file.
    File,
}

impl Place {
    /// Their names, in the order of the values.
    pub const NAMES: [&'static str; 3] = ["auto", "memory", "file"];
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "auto" => Ok(Self::Auto),
            "memory" => Ok(Self::Memory),
            "file" => Ok(Self::File),
            _ => Err(Error::value(format!("weights is '{name}'; it must be one of {}", Self::NAMES.join(", ")))),
        }
    }
}

/// A stored matrix: u8 `[rows, row_bytes]` and its format; and what each adapter adds to it, by its number, nothing at all
/// where none does.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Its rows.
    pub data: Tensor,
    /// Of the rows.
    pub format: Format,
    pub(super) low_rank: Vec<Option<LowRank>>,
}

impl Weight {
    fn new(data: Tensor, format: Format) -> Self {
        Self { data, format, low_rank: Vec::new() }
    }

    /// Bytes of the matrix alone.
    pub fn bytes(&self) -> usize {
        self.data.layout().bytes()
    }
}

/// The matrices of a layer's experts, one below the other.
#[derive(Clone, Debug)]
pub struct Experts {
    /// Gates.
    pub w1: Weight,
    /// The other factors.
    pub w3: Weight,
    /// Back to the residual stream.
    pub w2: Weight,
}

impl Experts {
    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.w1.bytes() + self.w3.bytes() + self.w2.bytes()
    }
}

/// Brings a model's tensors to a context.
#[derive(Debug)]
pub(super) struct WeightReader<'m> {
    ctx: Context,
    tensors: &'m StoredTensors,
    /// Whether they are copied into the context's memory; on a GPU they always are.
    pub(super) in_memory: bool,
    /// Whether products of this context read interleaved rows.
    interleaves: bool,
    /// The rows of a head in the order in which they are read, where a part of each head alone is rotated.
    pub(super) order: Option<Vec<usize>>,
    /// Whether the gains of norms are stored less 1.
    less_one: bool,
}

impl<'m> WeightReader<'m> {
    pub(super) fn new(ctx: &Context, model: &'m StoredModel, place: Place) -> Result<Self> {
        let tensors = model.tensors();
        let fits = tensors.bytes() <= ctx.memory_info()?.0 / 2;
        let in_memory = ctx.device() != Device::Cpu || place == Place::Memory || (place == Place::Auto && fits);
        let vectors = ctx.isa()?.is_some_and(|isa| isa != InstructionSet::ALL[0]);
        let config = model.config();
        let partial = config.rope.rotated > 0 && config.rope.layout == RopeLayout::Half;
        let order = partial.then(|| order_of_part(config.head_dim, config.rope.rotated));
        Ok(Self {
            ctx: ctx.clone(),
            tensors,
            in_memory,
            interleaves: in_memory && vectors,
            order,
            less_one: config.norms_less_one,
        })
    }

    /// The embeddings. Where a tied head is a copy with its rows side by side, they stay in the file: so little of them is read.
    pub(super) fn table(&self, name: &str, tied: bool) -> Result<Weight> {
        let stored = self.first(name)?;
        let alone = tied && self.interleaved(stored).is_some();
        let data = if alone { in_place(&self.ctx, stored)? } else { self.rows(name)? };
        Ok(Weight::new(data, stored.format.code))
    }

    /// The output matrix of a tied model: the table of embeddings, or its copy with rows side by side.
    pub(super) fn tied_head(&self, name: &str, embedding: &Weight) -> Result<Weight> {
        if self.interleaved(self.first(name)?).is_some() { self.matrix(name) } else { Ok(embedding.clone()) }
    }

    /// A matrix of a product, or those of the experts.
    pub(super) fn matrix(&self, name: &str) -> Result<Weight> {
        let stored = self.first(name)?;
        let Some(format) = self.interleaved(stored) else {
            return Ok(Weight::new(self.rows(name)?, stored.format.code));
        };
        let (code, columns) = (stored.format.code, stored.columns());
        let interleave = |rows: &HostBytes, place: &Tensor| {
            let rows = self.ctx.tensor_over(rows, place.shape(), DType::U8)?;
            Ok(kernels::interleave_rows(&rows, place, columns, code)?)
        };
        Ok(Weight::new(self.copied(name, interleave)?, format))
    }

    /// The matrices of a layer's experts.
    pub(super) fn experts(&self, layer: usize) -> Result<Experts> {
        let matrix = |name: &str| self.matrix(&format!("model.layers.{layer}.block_sparse_moe.{name}.weight"));
        Ok(Experts { w1: matrix("w1")?, w3: matrix("w3")?, w2: matrix("w2")? })
    }

    /// A vector as the first row of a matrix in f32, whose second row is zeros.
    pub(super) fn beside_zeros(&self, name: &str) -> Result<Weight> {
        let mut values = self.tensors.whole(name)?.f32()?;
        let columns = values.len();
        values.resize(2 * columns, 0.0);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(Weight::new(self.ctx.tensor(&bytes, &[2, 4 * columns])?, Format::F32))
    }

    /// A norm's gain, or biases one after the other, in f32.
    pub(super) fn vector(&self, names: &[String]) -> Result<Tensor> {
        let mut values = Vec::new();
        for name in names {
            let found = self.tensors.whole(name)?.f32()?;
            let less_one = self.less_one && is_norm(name);
            values.extend(found.into_iter().map(|value| if less_one { value + 1.0 } else { value }));
        }
        Ok(self.ctx.tensor(&values, &[values.len()])?)
    }

    fn first(&self, name: &str) -> Result<&'m StoredTensor> {
        self.tensors.parts(name)?.first().ok_or_else(|| Error::value(format!("{name} has no part")))
    }

    /// The format of a matrix, or of each expert's, that is copied with its rows side by side.
    fn interleaved(&self, stored: &StoredTensor) -> Option<Format> {
        let rows = stored.shape.iter().rev().nth(1).copied().unwrap_or(1);
        stored.format.interleaved().filter(|_| self.interleaves && rows.is_multiple_of(INTERLEAVED_ROWS))
    }

    /// The rows of a matrix, of all experts one below the other: u8 `[rows, row_bytes]`.
    fn rows(&self, name: &str) -> Result<Tensor> {
        if self.in_memory || self.order_of(name).is_some() || self.first(name)?.made.is_some() {
            return self.copied(name, |rows, place| Ok(place.copy_from_bytes(rows)?));
        }
        in_place(&self.ctx, &self.tensors.whole(name)?)
    }

    /// The order of a head's rows, where these are rows of queries or keys that are read in another one.
    fn order_of(&self, name: &str) -> Option<&[usize]> {
        self.order.as_deref().filter(|_| is_rotated(name))
    }

    /// A copy, piece by piece; `copy` puts some rows into their place. Behind a piece the file's pages are given back, so that
    /// they do not count besides the copy.
    fn copied(&self, name: &str, copy: impl Fn(&HostBytes, &Tensor) -> Result<()>) -> Result<Tensor> {
        let parts = self.tensors.parts(name)?;
        let row_bytes = self.first(name)?.row_bytes();
        let rows = parts.iter().map(StoredTensor::rows).sum();
        let whole = self.ctx.empty(&[rows, row_bytes], DType::U8)?;
        let step = (PIECE / (INTERLEAVED_ROWS * row_bytes)).max(1) * INTERLEAVED_ROWS;
        let mut place = 0;
        let order = self.order_of(name);
        for part in parts {
            let part = match order {
                Some(order) => &part.rows_in_order(order)?,
                None => part,
            };
            let data = part.bytes()?;
            for first in (0..part.rows()).step_by(step) {
                let count = step.min(part.rows() - first);
                let cut = || Error::value(format!("the bytes of {name} are fewer than its shape takes"));
                let piece = data.slice(first * row_bytes..(first + count) * row_bytes).ok_or_else(cut)?;
                copy(&piece, &whole.narrow(0, place, count)?)?;
                piece.release();
                place += count;
            }
        }
        Ok(whole)
    }
}

/// Rows of a head whose first `part` make half-split pairs, in the order in which these are pairs of the whole: in the first
/// half those that begin a pair and half of those that stay, in the second the others.
fn order_of_part(head_dim: usize, part: usize) -> Vec<usize> {
    let (half, stay) = (part / 2, (head_dim - part) / 2);
    (0..half).chain(part..part + stay).chain(half..part).chain(part + stay..head_dim).collect()
}

/// The rows where the file has them; a copy on a GPU, which cannot read there.
fn in_place(ctx: &Context, stored: &StoredTensor) -> Result<Tensor> {
    Ok(ctx.tensor_over(&stored.data, &[stored.rows(), stored.row_bytes()], DType::U8)?)
}
