//! The weights of a model with ternary weights: packed as products read them, whatever form the files have.
//!
//! Matrices that are multiplied with the same rows are one, packed again with a scale an output, unless an adapter is beside one of
//! them. One matrix at a time is packed, while a thread decodes the next, and the file's pages are given back after it, so that
//! loading takes less memory than running.

use std::sync::mpsc::sync_channel;
use std::thread;

use nn_ffi::{Context, Tensor};

use super::low_rank::{Adapters, LowRank};
use crate::error::{Error, Result};
use crate::format::ternary::TernaryMatrix;
use crate::model::{Decoded, StoredModel, decode, packed};

/// The matrices of a layer as they are read: those of each product together.
const READ: [&[&str]; 4] =
    [&["self_attn.q", "self_attn.k", "self_attn.v"], &["self_attn.o"], &["mlp.gate", "mlp.up"], &["mlp.down"]];

/// A matrix from `kernels::ternary_pack`, u8 `[stored, row_bytes]`, the scale of each of its outputs, f32 `[n]`, and what each
/// adapter adds to its product, by number; empty where none does.
#[derive(Debug)]
pub(super) struct TernaryWeight {
    pub(super) data: Tensor,
    pub(super) scale: Tensor,
    pub(super) low_rank: Vec<Option<LowRank>>,
}

impl TernaryWeight {
    fn bytes(&self) -> usize {
        self.data.layout().bytes() + self.scale.layout().bytes()
    }
}

/// A product with rows: of one matrix, with those of the product one below the other, or of each by itself, where one of them has
/// an adapter.
pub(super) type Products = Vec<TernaryWeight>;

/// A block's weights; the norms are f32, and those before `o` and `down` there only in a model that has them.
#[derive(Debug)]
pub(super) struct TernaryLayer {
    pub(super) input_norm: Tensor,
    pub(super) qkv: Products,
    pub(super) attention_norm: Option<Tensor>,
    pub(super) o: TernaryWeight,
    pub(super) post_norm: Tensor,
    pub(super) gate_up: Products,
    pub(super) ffn_norm: Option<Tensor>,
    pub(super) down: TernaryWeight,
}

impl TernaryLayer {
    /// Bytes of the matrices.
    pub(super) fn bytes(&self) -> usize {
        self.qkv.iter().chain(&self.gate_up).chain([&self.o, &self.down]).map(TernaryWeight::bytes).sum()
    }
}

/// The layers of a model, with what adapters add to their products. `Error::Format` for a matrix whose
/// bytes are wrong.
pub(super) fn ternary_layers(ctx: &Context, model: &StoredModel, adapters: &Adapters) -> Result<Vec<TernaryLayer>> {
    let mut products = Vec::new();
    for layer in 0..model.config().num_layers {
        for names in READ {
            let matrix = |name: &&str| {
                let name = format!("model.layers.{layer}.{name}_proj.weight");
                let matrix = model.ternary(&name);
                let matrix = matrix.ok_or_else(|| Error::value(format!("the model has no matrix {name}")))?;
                Ok::<_, Error>((matrix, adapters.of(&name)))
            };
            products.push(names.iter().map(matrix).collect::<Result<Vec<Adapted<'_>>>>()?);
        }
    }
    let weights = thread::scope(|scope| {
        // One is decoded while another is packed, and none beyond.
        let (give, decoded) = sync_channel::<Decoded>(0);
        let matrices: Vec<&TernaryMatrix> = products.iter().flatten().map(|(matrix, _)| *matrix).collect();
        scope.spawn(move || {
            for matrix in matrices {
                if give.send(decode(matrix)).is_err() {
                    return; // packing has failed
                }
            }
        });
        let next = || decoded.recv().map_err(|_| Error::value("the thread that decodes weights has ended"))?;
        products.iter().map(|matrices| product(ctx, matrices, next)).collect::<Result<Vec<_>>>()
    })?;
    let vector = |name: String| {
        let values = model.tensors().whole(&name)?.f32()?;
        Ok::<_, Error>(ctx.tensor(&values, &[values.len()])?)
    };
    let (mut weights, mut layers) = (weights.into_iter(), Vec::new());
    let few = || Error::value("the model has too few matrices");
    let mut next = || weights.next().ok_or_else(few);
    for layer in 0..model.config().num_layers {
        let norm = |name: &str| vector(format!("model.layers.{layer}.{name}.weight"));
        let sub_norm = |name: &str| model.config().sub_norms.then(|| norm(name)).transpose();
        layers.push(TernaryLayer {
            input_norm: norm("input_layernorm")?,
            qkv: next()?,
            attention_norm: sub_norm("self_attn.attn_sub_norm")?,
            o: next()?.pop().ok_or_else(few)?,
            post_norm: norm("post_attention_layernorm")?,
            gate_up: next()?,
            ffn_norm: sub_norm("mlp.ffn_sub_norm")?,
            down: next()?.pop().ok_or_else(few)?,
        });
    }
    Ok(layers)
}

/// A matrix, and what each adapter adds to its product.
type Adapted<'a> = (&'a TernaryMatrix, Vec<Option<LowRank>>);

/// The weights of a product; `next` decodes the next matrix.
fn product(ctx: &Context, matrices: &[Adapted<'_>], mut next: impl FnMut() -> Decoded) -> Result<Products> {
    let adapted = matrices.iter().any(|(_, low_rank)| !low_rank.is_empty());
    let groups = matrices.chunks(if adapted { 1 } else { matrices.len() });
    let weight = |group: &[Adapted<'_>]| {
        let matrices: Vec<_> = group.iter().map(|(matrix, _)| *matrix).collect();
        let [data, scale] = packed(ctx, &matrices, &mut next)?;
        Ok::<_, Error>(TernaryWeight { data, scale, low_rank: group[0].1.clone() })
    };
    groups.map(weight).collect()
}
