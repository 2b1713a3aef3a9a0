// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section decode of bindings.h.
//!
//! The order of tokens is total: higher logit first, then lower index. Logits of NaN and -inf are never drawn; a
//! row that holds +inf draws among those alone, all alike; a row with nothing to draw gives index 0. temperature
//! divides the logits; 0 is argmax. The same seed and step give the same token: with u = 2^-32 \* word 0 of
//! Philox4x32-10 for key = seeds\[r\], counter = (steps\[r\], 0, 0, 0), it is the first in index order whose
//! cumulative probability, over the tokens that may be drawn, is above u. Temperatures, top_k, top_p and steps
//! outside their ranges are NNCUDA_ERROR_OUT_OF_RANGE.

use crate::call::{Call, Sizes, named, pointer, tensor};
use crate::{DType, Result, Tensor};

/// The first token of each row in the order above.
///
/// # Arguments
///
/// - `logits`: of `dtype` `[rows, vocab]`, logits
/// - `ids`: i32 `[rows]`, tokens; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn argmax(logits: &Tensor, ids: &Tensor) -> Result<()> {
    let call = Call::new("cuda_argmax", logits);
    let logits = call.dense::<2>("logits", "[rows, vocab]", logits)?;
    let ids = call.dense::<1>("ids", "[rows]", ids)?.of(DType::I32)?;
    call.folds("rows", &[Some(logits.named()), Some(ids.named())])?;
    let rows = logits.dims[0];
    let vocab = logits.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from logits"), ("vocab", "from logits")];
    let sizes = Sizes { names: &SIZES, values: &[rows, vocab] };
    ids.expect([rows], sizes)?;
    let dtype = logits.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_argmax)(
            call.handle(),
            logits.pointer(),
            ids.pointer().cast(),
            rows as i64,
            vocab as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(logits.tensor), Some(ids.tensor)];
    call.finish(status, &tensors)
}

/// Draws from softmax(logits / temperature).
///
/// # Arguments
///
/// - `logits`: of `dtype` `[rows, vocab]`, logits
/// - `temperature`: f32 `[rows]`, finite, at least 0
/// - `seeds`: i64 `[rows]`, key of each row
/// - `steps`: i32 `[rows]`, number of the draw, at least 0
/// - `ids`: i32 `[rows]`, tokens; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn sample(logits: &Tensor, temperature: &Tensor, seeds: &Tensor, steps: &Tensor, ids: &Tensor) -> Result<()> {
    let call = Call::new("cuda_sample", logits);
    let logits = call.dense::<2>("logits", "[rows, vocab]", logits)?;
    let temperature = call.dense::<1>("temperature", "[rows]", temperature)?.of(DType::F32)?;
    let seeds = call.dense::<1>("seeds", "[rows]", seeds)?.of(DType::I64)?;
    let steps = call.dense::<1>("steps", "[rows]", steps)?.of(DType::I32)?;
    let ids = call.dense::<1>("ids", "[rows]", ids)?.of(DType::I32)?;
    call.same(&[Some(temperature.named()), Some(seeds.named()), Some(steps.named()), Some(ids.named())])?;
    call.folds("rows", &[Some(logits.named()), Some(temperature.named())])?;
    let rows = logits.dims[0];
    let vocab = logits.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from logits"), ("vocab", "from logits")];
    let sizes = Sizes { names: &SIZES, values: &[rows, vocab] };
    temperature.expect([rows], sizes)?;
    seeds.expect([rows], sizes)?;
    steps.expect([rows], sizes)?;
    ids.expect([rows], sizes)?;
    let dtype = logits.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_sample)(
            call.handle(),
            logits.pointer(),
            temperature.pointer().cast(),
            seeds.pointer().cast(),
            steps.pointer().cast(),
            ids.pointer().cast(),
            rows as i64,
            vocab as i64,
            dtype.code(),
        )
    };
    let tensors =
        [Some(logits.tensor), Some(temperature.tensor), Some(seeds.tensor), Some(steps.tensor), Some(ids.tensor)];
    call.finish(status, &tensors)
}

/// Draws among the first top_k tokens of each row.
///
/// (Fan, Lewis, Dauphin 2018)
///
/// # Arguments
///
/// - `logits`: of `dtype` `[rows, vocab]`, logits
/// - `temperature`: f32 `[rows]`, finite, at least 0
/// - `top_k`: i32 `[rows]`, at least 1; more than vocab is all
/// - `seeds`: i64 `[rows]`, key of each row
/// - `steps`: i32 `[rows]`, number of the draw, at least 0
/// - `ids`: i32 `[rows]`, tokens; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn topk_sample(
    logits: &Tensor,
    temperature: &Tensor,
    top_k: &Tensor,
    seeds: &Tensor,
    steps: &Tensor,
    ids: &Tensor,
) -> Result<()> {
    let call = Call::new("cuda_topk_sample", logits);
    let logits = call.dense::<2>("logits", "[rows, vocab]", logits)?;
    let temperature = call.dense::<1>("temperature", "[rows]", temperature)?.of(DType::F32)?;
    let top_k = call.dense::<1>("top_k", "[rows]", top_k)?.of(DType::I32)?;
    let seeds = call.dense::<1>("seeds", "[rows]", seeds)?.of(DType::I64)?;
    let steps = call.dense::<1>("steps", "[rows]", steps)?.of(DType::I32)?;
    let ids = call.dense::<1>("ids", "[rows]", ids)?.of(DType::I32)?;
    call.same(&[
        Some(temperature.named()),
        Some(top_k.named()),
        Some(seeds.named()),
        Some(steps.named()),
        Some(ids.named()),
    ])?;
    call.folds("rows", &[Some(logits.named()), Some(temperature.named())])?;
    let rows = logits.dims[0];
    let vocab = logits.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from logits"), ("vocab", "from logits")];
    let sizes = Sizes { names: &SIZES, values: &[rows, vocab] };
    temperature.expect([rows], sizes)?;
    top_k.expect([rows], sizes)?;
    seeds.expect([rows], sizes)?;
    steps.expect([rows], sizes)?;
    ids.expect([rows], sizes)?;
    let dtype = logits.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_topk_sample)(
            call.handle(),
            logits.pointer(),
            temperature.pointer().cast(),
            top_k.pointer().cast(),
            seeds.pointer().cast(),
            steps.pointer().cast(),
            ids.pointer().cast(),
            rows as i64,
            vocab as i64,
            dtype.code(),
        )
    };
    let tensors = [
        Some(logits.tensor),
        Some(temperature.tensor),
        Some(top_k.tensor),
        Some(seeds.tensor),
        Some(steps.tensor),
        Some(ids.tensor),
    ];
    call.finish(status, &tensors)
}

/// Draws among the shortest run of first tokens whose probability reaches top_p (of those that top_k leaves, if
/// given).
///
/// (Holtzman et al. 2020, "nucleus sampling", eq. 3)
///
/// # Arguments
///
/// - `logits`: of `dtype` `[rows, vocab]`, logits
/// - `temperature`: f32 `[rows]`, finite, at least 0
/// - `top_k`: i32 `[rows]`, at least 1; or null for no such limit
/// - `top_p`: f32 `[rows]`, above 0, at most 1
/// - `seeds`: i64 `[rows]`, key of each row
/// - `steps`: i32 `[rows]`, number of the draw, at least 0
/// - `ids`: i32 `[rows]`, tokens; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn topp_sample(
    logits: &Tensor,
    temperature: &Tensor,
    top_k: Option<&Tensor>,
    top_p: &Tensor,
    seeds: &Tensor,
    steps: &Tensor,
    ids: &Tensor,
) -> Result<()> {
    let call = Call::new("cuda_topp_sample", logits);
    let logits = call.dense::<2>("logits", "[rows, vocab]", logits)?;
    let temperature = call.dense::<1>("temperature", "[rows]", temperature)?.of(DType::F32)?;
    let top_k = match top_k {
        Some(top_k) => Some(call.dense::<1>("top_k", "[rows]", top_k)?.of(DType::I32)?),
        None => None,
    };
    let top_p = call.dense::<1>("top_p", "[rows]", top_p)?.of(DType::F32)?;
    let seeds = call.dense::<1>("seeds", "[rows]", seeds)?.of(DType::I64)?;
    let steps = call.dense::<1>("steps", "[rows]", steps)?.of(DType::I32)?;
    let ids = call.dense::<1>("ids", "[rows]", ids)?.of(DType::I32)?;
    call.same(&[
        Some(temperature.named()),
        named(&top_k),
        Some(top_p.named()),
        Some(seeds.named()),
        Some(steps.named()),
        Some(ids.named()),
    ])?;
    call.folds("rows", &[Some(logits.named()), Some(temperature.named())])?;
    let rows = logits.dims[0];
    let vocab = logits.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from logits"), ("vocab", "from logits")];
    let sizes = Sizes { names: &SIZES, values: &[rows, vocab] };
    temperature.expect([rows], sizes)?;
    if let Some(top_k) = &top_k {
        top_k.expect([rows], sizes)?;
    }
    top_p.expect([rows], sizes)?;
    seeds.expect([rows], sizes)?;
    steps.expect([rows], sizes)?;
    ids.expect([rows], sizes)?;
    let dtype = logits.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_topp_sample)(
            call.handle(),
            logits.pointer(),
            temperature.pointer().cast(),
            pointer(&top_k).cast(),
            top_p.pointer().cast(),
            seeds.pointer().cast(),
            steps.pointer().cast(),
            ids.pointer().cast(),
            rows as i64,
            vocab as i64,
            dtype.code(),
        )
    };
    let tensors = [
        Some(logits.tensor),
        Some(temperature.tensor),
        tensor(&top_k),
        Some(top_p.tensor),
        Some(seeds.tensor),
        Some(steps.tensor),
        Some(ids.tensor),
    ];
    call.finish(status, &tensors)
}
