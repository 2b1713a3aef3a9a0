//! Ternary matrices on a device, packed as products read them, whatever form the files have.
//!
//! They are always copied, and the file's pages are given back after each.

use nn_ffi::{Context, DType, Status, Tensor, kernels};

use crate::error::Result;
use crate::format::StoredTensor;
use crate::format::ternary::{Form, TernaryMatrix, tern2_shape};

/// Rows that lie side by side in a packed matrix; matrices of whole such groups are packed on their own.
const GROUP_ROWS: usize = 16;

/// Codes and scale of a matrix; `None` where a kernel makes them, or none are needed.
pub(crate) type Decoded = Result<Option<(Vec<i8>, f32)>>;

/// Decodes a matrix, where that is needed to pack it.
pub(crate) fn decode(matrix: &TernaryMatrix) -> Decoded {
    match matrix.form {
        Form::Tern2 { .. } => Ok(None),
        _ => matrix.codes(),
    }
}

/// Matrices of as many columns as one, the rows of the first on top, as `kernels::ternary_pack` packs them, u8 `[stored,
/// row_bytes]`, and the scale of each output, f32 `[n]`; `decoded` gives what `decode` makes of each in turn. `Error::Format` for a
/// matrix whose bytes are wrong.
pub(crate) fn packed(
    ctx: &Context,
    matrices: &[&TernaryMatrix],
    mut decoded: impl FnMut() -> Decoded,
) -> Result<[Tensor; 2]> {
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
                decoded()?;
                place.copy_from_bytes(matrix.tern2()?)?;
                scales.push(*scale);
            }
            _ => {
                let mut parts = Vec::new();
                for matrix in group {
                    let (codes, scale) = codes(ctx, matrix, decoded()?)?;
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
    Ok([data, ctx.tensor(&of_outputs, &[of_outputs.len()])?])
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
