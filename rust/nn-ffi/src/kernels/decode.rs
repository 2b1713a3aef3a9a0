// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section decode of bindings.h.
//!
//! The order of tokens is total: higher logit first, then lower index. Logits of NaN and -inf are never drawn; a
//! row that holds +inf draws among those alone, all alike; a row with nothing to draw gives index 0. temperature
//! divides the logits; 0 is argmax. The same seed and step give the same token: with u = 2^-32 \* word 0 of
//! Philox4x32-10 for key = seeds\[r\], counter = (steps\[r\], 0, 0, 0), it is the first in index order whose
//! cumulative probability, over the tokens that may be drawn, is above u. Temperatures, top_k, top_p, min_p and
//! steps outside their ranges are NNCUDA_ERROR_OUT_OF_RANGE.
//!
//! What changes logits before a token is drawn does so in place, and in this order: penalize_logits, bias_logits,
//! mask_logits. A row's list of tokens, for penalties, is sparse: ascending ids, and how often each was drawn;
//! count_tokens adds to it what was drawn, on the device, so that it can be captured with the step.
//! Log-probabilities are those of the logits that they are given: of the model's own, where they are taken before
//! these.

#![allow(clippy::too_many_arguments, reason = "the arguments are those of the C function")]

use crate::call::{Call, Sizes, named, plus, pointer, tensor};
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

/// Draws among the tokens, of those that top_k and then top_p leave, if given, whose probability is at least min_p
/// times that of the first one: exp((logit - largest) / temperature) \>= min_p.
///
/// (Nguyen et al. 2024, "Turning up the heat: min-p sampling", section 3)
///
/// # Arguments
///
/// - `logits`: of `dtype` `[rows, vocab]`, logits
/// - `temperature`: f32 `[rows]`, finite, at least 0
/// - `top_k`: i32 `[rows]`, at least 1; or null for no such limit
/// - `top_p`: f32 `[rows]`, above 0, at most 1; or null for no such limit
/// - `min_p`: f32 `[rows]`, 0 to 1; 0 leaves all, 1 those that are as likely as the first
/// - `seeds`: i64 `[rows]`, key of each row
/// - `steps`: i32 `[rows]`, number of the draw, at least 0
/// - `ids`: i32 `[rows]`, tokens; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn minp_sample(
    logits: &Tensor,
    temperature: &Tensor,
    top_k: Option<&Tensor>,
    top_p: Option<&Tensor>,
    min_p: &Tensor,
    seeds: &Tensor,
    steps: &Tensor,
    ids: &Tensor,
) -> Result<()> {
    let call = Call::new("cuda_minp_sample", logits);
    let logits = call.dense::<2>("logits", "[rows, vocab]", logits)?;
    let temperature = call.dense::<1>("temperature", "[rows]", temperature)?.of(DType::F32)?;
    let top_k = match top_k {
        Some(top_k) => Some(call.dense::<1>("top_k", "[rows]", top_k)?.of(DType::I32)?),
        None => None,
    };
    let top_p = match top_p {
        Some(top_p) => Some(call.dense::<1>("top_p", "[rows]", top_p)?.of(DType::F32)?),
        None => None,
    };
    let min_p = call.dense::<1>("min_p", "[rows]", min_p)?.of(DType::F32)?;
    let seeds = call.dense::<1>("seeds", "[rows]", seeds)?.of(DType::I64)?;
    let steps = call.dense::<1>("steps", "[rows]", steps)?.of(DType::I32)?;
    let ids = call.dense::<1>("ids", "[rows]", ids)?.of(DType::I32)?;
    call.same(&[
        Some(temperature.named()),
        named(&top_k),
        named(&top_p),
        Some(min_p.named()),
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
    if let Some(top_p) = &top_p {
        top_p.expect([rows], sizes)?;
    }
    min_p.expect([rows], sizes)?;
    seeds.expect([rows], sizes)?;
    steps.expect([rows], sizes)?;
    ids.expect([rows], sizes)?;
    let dtype = logits.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_minp_sample)(
            call.handle(),
            logits.pointer(),
            temperature.pointer().cast(),
            pointer(&top_k).cast(),
            pointer(&top_p).cast(),
            min_p.pointer().cast(),
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
        tensor(&top_p),
        Some(min_p.tensor),
        Some(seeds.tensor),
        Some(steps.tensor),
        Some(ids.tensor),
    ];
    call.finish(status, &tensors)
}

/// Adds the token that was drawn for each row to the row's list: to its count, or as a new token with a count of 1.
///
/// # Arguments
///
/// - `ids`: i32 `[rows]`, tokens, 0 .. vocab-1
/// - `seen_ids`: i32 `[rows, capacity]`, the list's tokens, ascending; those behind its length are not looked at;
///   read and overwritten
/// - `seen_counts`: i32 `[rows, capacity]`, how often each was drawn; at 2147483647 it stays; read and overwritten
/// - `seen_lengths`: i32 `[rows]`, tokens of each list, at most `capacity`, and less where one must be added; -1 for
///   a row that has no list; read and overwritten
/// - `vocab`: tokens of the vocabulary; must be at most 2147483647
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn count_tokens(
    ids: &Tensor,
    seen_ids: &Tensor,
    seen_counts: &Tensor,
    seen_lengths: &Tensor,
    vocab: usize,
) -> Result<()> {
    let call = Call::new("cuda_count_tokens", ids);
    let ids = call.dense::<1>("ids", "[rows]", ids)?.of(DType::I32)?;
    let seen_ids = call.dense::<2>("seen_ids", "[rows, capacity]", seen_ids)?.of(DType::I32)?;
    let seen_counts = call.dense::<2>("seen_counts", "[rows, capacity]", seen_counts)?.of(DType::I32)?;
    let seen_lengths = call.dense::<1>("seen_lengths", "[rows]", seen_lengths)?.of(DType::I32)?;
    call.same(&[Some(ids.named()), Some(seen_lengths.named())])?;
    call.same(&[Some(seen_ids.named()), Some(seen_counts.named())])?;
    call.folds("rows", &[Some(ids.named()), Some(seen_ids.named())])?;
    let rows = ids.dims[0];
    let capacity = seen_ids.dims[1];
    const SIZES: [(&str, &str); 3] = [("rows", "from ids"), ("capacity", "from seen_ids"), ("vocab", "given")];
    let sizes = Sizes { names: &SIZES, values: &[rows, capacity, vocab] };
    seen_ids.expect([rows, capacity], sizes)?;
    seen_counts.expect([rows, capacity], sizes)?;
    seen_lengths.expect([rows], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_count_tokens)(
            call.handle(),
            ids.pointer().cast(),
            seen_ids.pointer().cast(),
            seen_counts.pointer().cast(),
            seen_lengths.pointer().cast(),
            rows as i64,
            vocab as i64,
            capacity as i64,
        )
    };
    let tensors = [Some(ids.tensor), Some(seen_ids.tensor), Some(seen_counts.tensor), Some(seen_lengths.tensor)];
    call.finish(status, &tensors)
}

/// Makes tokens of a row's list less likely.
///
/// With c the count of a token there, first x = x / repetition where x \> 0 and x \* repetition elsewhere (Keskar
/// et al. 2019, "CTRL", section 4.1, in the form that every program has), then x = x - (frequency \* c + presence),
/// the last of them only where c \> 0 (OpenAI's API reference, "frequency and presence penalties"). So tokens of
/// the prompt, with a count of 0, meet the first alone.
///
/// # Arguments
///
/// - `logits`: of `dtype` `[rows, vocab]`, logits; read and overwritten
/// - `presence`: f32 `[rows]`, finite; 0 for none
/// - `frequency`: f32 `[rows]`, finite; 0 for none
/// - `repetition`: f32 `[rows]`, finite and above 0; 1 for none
/// - `seen_ids`: i32 `[rows, capacity]`, the list's tokens, ascending, 0 .. vocab-1
/// - `seen_counts`: i32 `[rows, capacity]`, how often each was drawn, at least 0
/// - `seen_lengths`: i32 `[rows]`, tokens of each list, at most `capacity`; -1 for a row that has no list, which
///   stays as it is
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn penalize_logits(
    logits: &Tensor,
    presence: &Tensor,
    frequency: &Tensor,
    repetition: &Tensor,
    seen_ids: &Tensor,
    seen_counts: &Tensor,
    seen_lengths: &Tensor,
) -> Result<()> {
    let call = Call::new("cuda_penalize_logits", logits);
    let logits = call.dense::<2>("logits", "[rows, vocab]", logits)?;
    let presence = call.dense::<1>("presence", "[rows]", presence)?.of(DType::F32)?;
    let frequency = call.dense::<1>("frequency", "[rows]", frequency)?.of(DType::F32)?;
    let repetition = call.dense::<1>("repetition", "[rows]", repetition)?.of(DType::F32)?;
    let seen_ids = call.dense::<2>("seen_ids", "[rows, capacity]", seen_ids)?.of(DType::I32)?;
    let seen_counts = call.dense::<2>("seen_counts", "[rows, capacity]", seen_counts)?.of(DType::I32)?;
    let seen_lengths = call.dense::<1>("seen_lengths", "[rows]", seen_lengths)?.of(DType::I32)?;
    call.same(&[
        Some(presence.named()),
        Some(frequency.named()),
        Some(repetition.named()),
        Some(seen_lengths.named()),
    ])?;
    call.same(&[Some(seen_ids.named()), Some(seen_counts.named())])?;
    call.folds("rows", &[Some(logits.named()), Some(presence.named()), Some(seen_ids.named())])?;
    let rows = logits.dims[0];
    let vocab = logits.dims[1];
    let capacity = seen_ids.dims[1];
    const SIZES: [(&str, &str); 3] = [("rows", "from logits"), ("vocab", "from logits"), ("capacity", "from seen_ids")];
    let sizes = Sizes { names: &SIZES, values: &[rows, vocab, capacity] };
    presence.expect([rows], sizes)?;
    frequency.expect([rows], sizes)?;
    repetition.expect([rows], sizes)?;
    seen_ids.expect([rows, capacity], sizes)?;
    seen_counts.expect([rows, capacity], sizes)?;
    seen_lengths.expect([rows], sizes)?;
    let dtype = logits.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_penalize_logits)(
            call.handle(),
            logits.pointer(),
            presence.pointer().cast(),
            frequency.pointer().cast(),
            repetition.pointer().cast(),
            seen_ids.pointer().cast(),
            seen_counts.pointer().cast(),
            seen_lengths.pointer().cast(),
            rows as i64,
            vocab as i64,
            capacity as i64,
            dtype.code(),
        )
    };
    let tensors = [
        Some(logits.tensor),
        Some(presence.tensor),
        Some(frequency.tensor),
        Some(repetition.tensor),
        Some(seen_ids.tensor),
        Some(seen_counts.tensor),
        Some(seen_lengths.tensor),
    ];
    call.finish(status, &tensors)
}

/// Adds to some logits of each row r: bias\[i\] to that of token ids\[i\], for i = offsets\[r\] ..
/// offsets\[r+1\]-1.
///
/// # Arguments
///
/// - `logits`: of `dtype` `[rows, vocab]`, logits; read and overwritten
/// - `offsets`: i32 `[rows+1]`, first bias of each row; offsets\[0\] = 0, never falling, the last at most `biases`
/// - `ids`: i32 `[biases]`, tokens, ascending within a row, 0 .. vocab-1
/// - `bias`: f32 `[biases]`, finite
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn bias_logits(logits: &Tensor, offsets: &Tensor, ids: &Tensor, bias: &Tensor) -> Result<()> {
    let call = Call::new("cuda_bias_logits", logits);
    let logits = call.dense::<2>("logits", "[rows, vocab]", logits)?;
    let offsets = call.dense::<1>("offsets", "[rows+1]", offsets)?.of(DType::I32)?;
    let ids = call.dense::<1>("ids", "[biases]", ids)?.of(DType::I32)?;
    let bias = call.dense::<1>("bias", "[biases]", bias)?.of(DType::F32)?;
    call.same(&[Some(ids.named()), Some(bias.named())])?;
    let rows = logits.dims[0];
    let vocab = logits.dims[1];
    let biases = ids.dims[0];
    const SIZES: [(&str, &str); 3] = [("rows", "from logits"), ("vocab", "from logits"), ("biases", "from ids")];
    let sizes = Sizes { names: &SIZES, values: &[rows, vocab, biases] };
    offsets.expect([plus(rows, 1)], sizes)?;
    bias.expect([biases], sizes)?;
    let dtype = logits.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_bias_logits)(
            call.handle(),
            logits.pointer(),
            offsets.pointer().cast(),
            ids.pointer().cast(),
            bias.pointer().cast(),
            rows as i64,
            vocab as i64,
            biases as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(logits.tensor), Some(offsets.tensor), Some(ids.tensor), Some(bias.tensor)];
    call.finish(status, &tensors)
}

/// Sets the logits of tokens that a row's mask does not allow to -inf.
///
/// Bit t % 32, from the lowest, of word t / 32 of a mask is 1 where token t is allowed; tokens beyond its words are
/// not, bits beyond the vocabulary mean nothing. (The bit masks of llguidance and XGrammar)
///
/// # Arguments
///
/// - `logits`: of `dtype` `[rows, vocab]`, logits; read and overwritten
/// - `masks`: i32 `[n, words]`, masks
/// - `mask_of`: i32 `[rows]`, the mask of each row, -1 .. n-1; a row of -1 stays as it is
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn mask_logits(logits: &Tensor, masks: &Tensor, mask_of: &Tensor) -> Result<()> {
    let call = Call::new("cuda_mask_logits", logits);
    let logits = call.dense::<2>("logits", "[rows, vocab]", logits)?;
    let masks = call.dense::<2>("masks", "[n, words]", masks)?.of(DType::I32)?;
    let mask_of = call.dense::<1>("mask_of", "[rows]", mask_of)?.of(DType::I32)?;
    call.folds("rows", &[Some(logits.named()), Some(mask_of.named())])?;
    let rows = logits.dims[0];
    let vocab = logits.dims[1];
    let n = masks.dims[0];
    let words = masks.dims[1];
    const SIZES: [(&str, &str); 4] =
        [("rows", "from logits"), ("vocab", "from logits"), ("n", "from masks"), ("words", "from masks")];
    let sizes = Sizes { names: &SIZES, values: &[rows, vocab, n, words] };
    mask_of.expect([rows], sizes)?;
    let dtype = logits.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_mask_logits)(
            call.handle(),
            logits.pointer(),
            masks.pointer().cast(),
            mask_of.pointer().cast(),
            rows as i64,
            vocab as i64,
            n as i64,
            words as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(logits.tensor), Some(masks.tensor), Some(mask_of.tensor)];
    call.finish(status, &tensors)
}

/// Log-probabilities, log softmax(logits), of one token of each row, and of the first n in the order above if they
/// are asked for.
///
/// Tokens that are never drawn have -inf.
///
/// # Arguments
///
/// - `logits`: of `dtype` `[rows, vocab]`, logits
/// - `ids`: i32 `[rows]`, tokens, 0 .. vocab-1
/// - `logprobs`: f32 `[rows]`, their log-probabilities; overwritten
/// - `top_ids`: i32 `[rows, n]`, the first n tokens of each row, -1 where fewer can be drawn; overwritten (optional)
/// - `top_logprobs`: f32 `[rows, n]`, their log-probabilities, -inf where there is none; overwritten (optional)
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn logprobs(
    logits: &Tensor,
    ids: &Tensor,
    logprobs: &Tensor,
    top_ids: Option<&Tensor>,
    top_logprobs: Option<&Tensor>,
) -> Result<()> {
    let call = Call::new("cuda_logprobs", logits);
    let logits = call.dense::<2>("logits", "[rows, vocab]", logits)?;
    let ids = call.dense::<1>("ids", "[rows]", ids)?.of(DType::I32)?;
    let logprobs = call.dense::<1>("logprobs", "[rows]", logprobs)?.of(DType::F32)?;
    let top_ids = match top_ids {
        Some(top_ids) => Some(call.dense::<2>("top_ids", "[rows, n]", top_ids)?.of(DType::I32)?),
        None => None,
    };
    let top_logprobs = match top_logprobs {
        Some(top_logprobs) => Some(call.dense::<2>("top_logprobs", "[rows, n]", top_logprobs)?.of(DType::F32)?),
        None => None,
    };
    call.same(&[Some(ids.named()), Some(logprobs.named())])?;
    call.same(&[named(&top_ids), named(&top_logprobs)])?;
    call.folds("rows", &[Some(logits.named()), Some(ids.named()), named(&top_ids), named(&top_logprobs)])?;
    let rows = logits.dims[0];
    let vocab = logits.dims[1];
    let n = match &top_ids {
        Some(top_ids) => top_ids.dims[1],
        None => 1,
    };
    const SIZES: [(&str, &str); 3] = [("rows", "from logits"), ("vocab", "from logits"), ("n", "from top_ids")];
    let sizes = Sizes { names: &SIZES, values: &[rows, vocab, n] };
    ids.expect([rows], sizes)?;
    logprobs.expect([rows], sizes)?;
    if let Some(top_ids) = &top_ids {
        top_ids.expect([rows, n], sizes)?;
    }
    if let Some(top_logprobs) = &top_logprobs {
        top_logprobs.expect([rows, n], sizes)?;
    }
    let dtype = logits.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_logprobs)(
            call.handle(),
            logits.pointer(),
            ids.pointer().cast(),
            logprobs.pointer().cast(),
            pointer(&top_ids).cast(),
            pointer(&top_logprobs).cast(),
            rows as i64,
            vocab as i64,
            n as i64,
            dtype.code(),
        )
    };
    let tensors =
        [Some(logits.tensor), Some(ids.tensor), Some(logprobs.tensor), tensor(&top_ids), tensor(&top_logprobs)];
    call.finish(status, &tensors)
}
