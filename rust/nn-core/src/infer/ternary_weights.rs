//! The weights of a model with ternary weights: packed as products read them, whatever form the files have.
//!
//! They are always copied: matrices that are multiplied with the same rows are one, packed again with a scale an output. One
//! matrix at a time is packed, while a thread decodes the next, and the file's pages are given back after it, so that loading
//! takes less memory than running.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use nn_ffi::{Context, DType, Status, Tensor, kernels};

use crate::error::{Error, Result};
use crate::format::StoredTensor;
use crate::format::ternary::{Form, TernaryMatrix, tern2_shape};
use crate::model::StoredModel;

/// Rows that lie side by side in a packed matrix; matrices of whole such groups are packed on their own.
const GROUP_ROWS: usize = 16;

/// The matrices of a layer as they are read, one after the other: those of each product together.
const READ: [&[&str]; 4] =
    [&["self_attn.q", "self_attn.k", "self_attn.v"], &["self_attn.o"], &["mlp.gate", "mlp.up"], &["mlp.down"]];

/// A matrix from `kernels::ternary_pack`, u8 `[stored, row_bytes]`, and the scale of each of its outputs, f32 `[n]`.
#[derive(Debug)]
pub(super) struct TernaryWeight {
    pub(super) data: Tensor,
    pub(super) scale: Tensor,
}

impl TernaryWeight {
    fn bytes(&self) -> usize {
        self.data.layout().bytes() + self.scale.layout().bytes()
    }
}

/// A block's weights. `qkv` and `gate_up` are several matrices, one below the other; the norms are f32, and those before `o` and
/// `down` there only in a model that has them.
#[derive(Debug)]
pub(super) struct TernaryLayer {
    pub(super) input_norm: Tensor,
    pub(super) qkv: TernaryWeight,
    pub(super) attention_norm: Option<Tensor>,
    pub(super) o: TernaryWeight,
    pub(super) post_norm: Tensor,
    pub(super) gate_up: TernaryWeight,
    pub(super) ffn_norm: Option<Tensor>,
    pub(super) down: TernaryWeight,
}

impl TernaryLayer {
    /// Bytes of the matrices.
    pub(super) fn bytes(&self) -> usize {
        [&self.qkv, &self.o, &self.gate_up, &self.down].into_iter().map(TernaryWeight::bytes).sum()
    }
}

/// Codes and scale of a matrix; `None` where a kernel makes them, or none are needed.
type Decoded = Result<Option<(Vec<i8>, f32)>>;

/// The layers of a model. `Error::Format` for a matrix whose bytes are wrong.
pub(super) fn ternary_layers(ctx: &Context, model: &StoredModel) -> Result<Vec<TernaryLayer>> {
    let mut products = Vec::new();
    for layer in 0..model.config().num_layers {
        for names in READ {
            let matrix = |name: &&str| {
                let name = format!("model.layers.{layer}.{name}_proj.weight");
                model.ternary(&name).ok_or_else(|| Error::value(format!("the model has no matrix {name}")))
            };
            products.push(names.iter().map(matrix).collect::<Result<Vec<&TernaryMatrix>>>()?);
        }
    }
    let weights = thread::scope(|scope| {
        // One is decoded while another is packed, and none beyond.
        let (give, decoded) = sync_channel::<Decoded>(0);
        let matrices: Vec<&TernaryMatrix> = products.iter().flatten().copied().collect();
        scope.spawn(move || {
            for matrix in matrices {
                if give.send(decode(matrix)).is_err() {
                    return; // packing has failed
                }
            }
        });
        products.iter().map(|matrices| packed(ctx, matrices, &decoded)).collect::<Result<Vec<_>>>()
    })?;
    let vector = |name: String| {
        let values = model.tensors().whole(&name)?.f32()?;
        Ok::<_, Error>(ctx.tensor(&values, &[values.len()])?)
    };
    let (mut weights, mut layers) = (weights.into_iter(), Vec::new());
    let mut next = || weights.next().ok_or_else(|| Error::value("the model has too few matrices"));
    for layer in 0..model.config().num_layers {
        let norm = |name: &str| vector(format!("model.layers.{layer}.{name}.weight"));
        let sub_norm = |name: &str| model.config().sub_norms.then(|| norm(name)).transpose();
        layers.push(TernaryLayer {
            input_norm: norm("input_layernorm")?,
            qkv: next()?,
            attention_norm: sub_norm("self_attn.attn_sub_norm")?,
            o: next()?,
            post_norm: norm("post_attention_layernorm")?,
            gate_up: next()?,
            ffn_norm: sub_norm("mlp.ffn_sub_norm")?,
            down: next()?,
        });
    }
    Ok(layers)
}

fn decode(matrix: &TernaryMatrix) -> Decoded {
    match matrix.form {
        Form::Tern2 { .. } => Ok(None),
        _ => matrix.codes(),
    }
}

/// Matrices of as many columns as one, the rows of the first on top; `decoded` gives what `decode` makes of each.
fn packed(ctx: &Context, matrices: &[&TernaryMatrix], decoded: &Receiver<Decoded>) -> Result<TernaryWeight> {
    let next = || decoded.recv().map_err(|_| Error::value("the thread that decodes weights has ended"))?;
    let heights: Vec<usize> = matrices.iter().map(|matrix| matrix.shape[0]).collect();
    let columns = matrices[0].shape[1];
    let data = ctx.empty(&tern2_shape([heights.iter().sum(), columns]), DType::U8)?;
    let mut scales = Vec::new();
    let apart = heights[..heights.len() - 1].iter().all(|height| height.is_multiple_of(GROUP_ROWS));
    let mut first = 0;
    for group in matrices.chunks(if apart { 1 } else { matrices.len() }) {
        let rows = group.iter().map(|matrix| matrix.shape[0]).sum();
        let [stored, _] = tern2_shape([rows, columns]);
        let place = data.narrow(0, first, stored)?;
        first += stored;
        match (&group[0].form, group) {
            (Form::Tern2 { scale }, [matrix]) => {
                next()?;
                place.copy_from_bytes(matrix.tern2()?)?;
                scales.push(*scale);
            }
            _ => {
                let mut parts = Vec::new();
                for matrix in group {
                    let (codes, scale) = codes(ctx, matrix, next()?)?;
                    parts.push(codes);
                    scales.push(scale);
                }
                kernels::ternary_pack(&stacked(ctx, &parts)?, &place)?;
            }
        }
        for matrix in group {
            matrix.data.release(); // so that the file's pages do not count besides the copy
        }
    }
    let of_outputs = scales.iter().zip(&heights).flat_map(|(scale, height)| std::iter::repeat_n(*scale, *height));
    let of_outputs: Vec<f32> = of_outputs.collect();
    Ok(TernaryWeight { data, scale: ctx.tensor(&of_outputs, &[of_outputs.len()])? })
}

fn stacked(ctx: &Context, parts: &[Tensor]) -> Result<Tensor> {
    if let [only] = parts {
        return Ok(only.clone());
    }
    let rows = parts.iter().map(|part| part.shape()[0]).sum();
    let whole = ctx.empty(&[rows, parts[0].shape()[1]], DType::I8)?;
    let mut at = 0;
    for part in parts {
        whole.narrow(0, at, part.shape()[0])?.copy_from(part)?;
        at += part.shape()[0];
    }
    Ok(whole)
}

/// A matrix's codes on the device, i8 `[n, k]`, and its scale.
fn codes(ctx: &Context, matrix: &TernaryMatrix, decoded: Option<(Vec<i8>, f32)>) -> Result<(Tensor, f32)> {
    let decoded = match (decoded, &matrix.form) {
        (Some(decoded), _) => decoded,
        (None, Form::Master(stored)) => return quantized(ctx, matrix, stored),
        (None, _) => matrix.codes()?.ok_or_else(|| matrix.wrong("has no codes"))?,
    };
    Ok((ctx.tensor(&decoded.0, &matrix.shape)?, decoded.1))
}

/// The codes and the scale that a kernel makes of master weights.
fn quantized(ctx: &Context, matrix: &TernaryMatrix, stored: &StoredTensor) -> Result<(Tensor, f32)> {
    let dtype = stored.format.dtype().ok_or_else(|| matrix.wrong("is in blocks; master weights are not"))?;
    // In place where that can be: on a GPU, or where a file has put them anywhere, they are copied.
    let master = match ctx.tensor_over(&stored.data, &matrix.shape, dtype) {
        Ok(master) => master,
        Err(_) => {
            let copy = ctx.empty(&matrix.shape, dtype)?;
            copy.copy_from_bytes(&stored.data)?;
            copy
        }
    };
    let (codes, scale) = (ctx.empty(&matrix.shape, DType::I8)?, ctx.empty(&[1], DType::F32)?);
    let made = kernels::ternary_quantize(&master, &codes, &scale).and_then(|()| scale.item::<f32>());
    match made {
        Ok(scale) => Ok((codes, scale)),
        Err(nn_ffi::Error::Call { status: Status::OutOfRange, .. }) => {
            Err(matrix.wrong("has values that are not finite; they have no mean"))
        }
        Err(error) => Err(error.into()),
    }
}
