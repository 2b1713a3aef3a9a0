// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section optimizer of bindings.h.
//!
//! Master weights and gradients are f32, and so are the moments of adamw_step. Step, rate, norm and scales lie in
//! device memory, so that a captured step can be replayed. `skip` is the flag that loss_scale_update sets when the
//! gradients overflowed.
//!
//! adamw_step_bf16 and adamw_step_f8 keep the moments in fewer bits. A moment that changes by less than half the
//! distance of two numbers would stay for ever when rounded to the nearest (second moments with beta2 = 0.999 do),
//! so they are rounded up or down by chance, right on average: x between the neighbours a \< b becomes b with
//! probability (x-a)/(b-a), and numbers of the format stay. Chance is a function of the step t = step\[0\] and the
//! element's index i alone: with mix(x) in 32 bits: x ^= x \>\> 16, x \*= 0x85ebca6b, x ^= x \>\> 13, x \*=
//! 0xc2b2ae35, x ^= x \>\> 16 (Appleby 2011, MurmurHash3, fmix32), and b = i / 256, it is w = mix(mix(mix(mix(t) +
//! b % 2^32) + b / 2^32) + 0x9e3779b9 \* (i % 256)), whose lower 16 bits round the first moment, its upper 16 bits
//! the second. To round to k bits of mantissa is to add those 16 bits, times 2^(7-k), to the bit pattern of the f32
//! and to clear its lower 23-k bits.

#![allow(clippy::too_many_arguments, reason = "the arguments are those of the C function")]

use crate::call::{Call, Sizes, named, pointer, tensor};
use crate::{DType, Result, Tensor};

/// AdamW with decoupled weight decay, for t = step\[0\] \>= 1 and g = grad \* grad_scale: m = beta1\*m +
/// (1-beta1)\*g; v = beta2\*v + (1-beta2)\*g^2; param = param\*(1 - lr\*weight_decay) - lr \* (m/(1-beta1^t)) /
/// (sqrt(v/(1-beta2^t)) + eps).
///
/// (Loshchilov, Hutter 2019, algorithm 2)
///
/// # Arguments
///
/// - `grad`: f32 `[n]`, gradients
/// - `lr`: f32 `[1]`, learning rate
/// - `step`: i32 `[1]`, number of this update, from 1
/// - `grad_scale`: f32 `[1]`, factor of the gradients (from grad_clip), or null for 1
/// - `skip`: i32 `[1]`, non-zero leaves everything as it is; or null
/// - `param`: f32 `[n]`, parameters; read and overwritten
/// - `m`: f32 `[n]`, first moments; read and overwritten
/// - `v`: f32 `[n]`, second moments; read and overwritten
/// - `param_copy`: of `dtype` `[n]`, the new parameters rounded to `dtype`, or null; overwritten
/// - `n_decay`: how many of them, from the first, decay; must be 0 to n
/// - `beta1`: decay rate of the first moments; must be at least 0 and below 1
/// - `beta2`: decay rate of the second moments; must be at least 0 and below 1
/// - `eps`: added to the root; must be finite and above 0
/// - `weight_decay`: decay of the parameters; must be finite and at least 0
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn adamw_step(
    grad: &Tensor,
    lr: &Tensor,
    step: &Tensor,
    grad_scale: Option<&Tensor>,
    skip: Option<&Tensor>,
    param: &Tensor,
    m: &Tensor,
    v: &Tensor,
    param_copy: Option<&Tensor>,
    n_decay: i64,
    beta1: f32,
    beta2: f32,
    eps: f32,
    weight_decay: f32,
) -> Result<()> {
    let call = Call::new("cuda_adamw_step", grad);
    let grad = call.dense::<1>("grad", "[n]", grad)?.of(DType::F32)?;
    let lr = call.dense::<1>("lr", "[1]", lr)?.of(DType::F32)?;
    let step = call.dense::<1>("step", "[1]", step)?.of(DType::I32)?;
    let grad_scale = match grad_scale {
        Some(grad_scale) => Some(call.dense::<1>("grad_scale", "[1]", grad_scale)?.of(DType::F32)?),
        None => None,
    };
    let skip = match skip {
        Some(skip) => Some(call.dense::<1>("skip", "[1]", skip)?.of(DType::I32)?),
        None => None,
    };
    let param = call.dense::<1>("param", "[n]", param)?.of(DType::F32)?;
    let m = call.dense::<1>("m", "[n]", m)?.of(DType::F32)?;
    let v = call.dense::<1>("v", "[n]", v)?.of(DType::F32)?;
    let param_copy = match param_copy {
        Some(param_copy) => Some(call.dense::<1>("param_copy", "[n]", param_copy)?),
        None => None,
    };
    call.same(&[Some(grad.named()), Some(param.named()), Some(m.named()), Some(v.named()), named(&param_copy)])?;
    let n = grad.dims[0];
    const SIZES: [(&str, &str); 1] = [("n", "from grad")];
    let sizes = Sizes { names: &SIZES, values: &[n] };
    lr.expect([1], sizes)?;
    step.expect([1], sizes)?;
    if let Some(grad_scale) = &grad_scale {
        grad_scale.expect([1], sizes)?;
    }
    if let Some(skip) = &skip {
        skip.expect([1], sizes)?;
    }
    param.expect([n], sizes)?;
    m.expect([n], sizes)?;
    v.expect([n], sizes)?;
    if let Some(param_copy) = &param_copy {
        param_copy.expect([n], sizes)?;
    }
    let dtype = param_copy.as_ref().map_or(DType::F32, |param_copy| param_copy.dtype());
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_adamw_step)(
            call.handle(),
            grad.pointer().cast(),
            lr.pointer().cast(),
            step.pointer().cast(),
            pointer(&grad_scale).cast(),
            pointer(&skip).cast(),
            param.pointer().cast(),
            m.pointer().cast(),
            v.pointer().cast(),
            pointer(&param_copy),
            n as i64,
            n_decay,
            beta1,
            beta2,
            eps,
            weight_decay,
            dtype.code(),
        )
    };
    let tensors = [
        Some(grad.tensor),
        Some(lr.tensor),
        Some(step.tensor),
        tensor(&grad_scale),
        tensor(&skip),
        Some(param.tensor),
        Some(m.tensor),
        Some(v.tensor),
        tensor(&param_copy),
    ];
    call.finish(status, &tensors)
}

/// AdamW as adamw_step has it, its moments kept in bf16: they are widened, updated in f32, used for the parameters,
/// and rounded by chance (see above) as they are stored.
///
/// Infinities and NaN stay what they are. (Zamirai, Zhang, Aberger, De Sa 2020, "Revisiting BFloat16 training",
/// section 3)
///
/// # Arguments
///
/// - `grad`: f32 `[n]`, gradients
/// - `lr`: f32 `[1]`, learning rate
/// - `step`: i32 `[1]`, number of this update, from 1
/// - `grad_scale`: f32 `[1]`, factor of the gradients (from grad_clip), or null for 1
/// - `skip`: i32 `[1]`, non-zero leaves everything as it is; or null
/// - `param`: f32 `[n]`, parameters; read and overwritten
/// - `m`: bf16 `[n]`, first moments; read and overwritten
/// - `v`: bf16 `[n]`, second moments; read and overwritten
/// - `param_copy`: of `dtype` `[n]`, the new parameters rounded to `dtype`, or null; overwritten
/// - `n_decay`: how many of them, from the first, decay; must be 0 to n
/// - `first`: of a shard, the place of its first element among all parameters, which chance depends on; must be at
///   least 0 and a multiple of 256
/// - `beta1`: decay rate of the first moments; must be at least 0 and below 1
/// - `beta2`: decay rate of the second moments; must be at least 0 and below 1
/// - `eps`: added to the root; must be finite and above 0
/// - `weight_decay`: decay of the parameters; must be finite and at least 0
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn adamw_step_bf16(
    grad: &Tensor,
    lr: &Tensor,
    step: &Tensor,
    grad_scale: Option<&Tensor>,
    skip: Option<&Tensor>,
    param: &Tensor,
    m: &Tensor,
    v: &Tensor,
    param_copy: Option<&Tensor>,
    n_decay: i64,
    first: i64,
    beta1: f32,
    beta2: f32,
    eps: f32,
    weight_decay: f32,
) -> Result<()> {
    let call = Call::new("cuda_adamw_step_bf16", grad);
    let grad = call.dense::<1>("grad", "[n]", grad)?.of(DType::F32)?;
    let lr = call.dense::<1>("lr", "[1]", lr)?.of(DType::F32)?;
    let step = call.dense::<1>("step", "[1]", step)?.of(DType::I32)?;
    let grad_scale = match grad_scale {
        Some(grad_scale) => Some(call.dense::<1>("grad_scale", "[1]", grad_scale)?.of(DType::F32)?),
        None => None,
    };
    let skip = match skip {
        Some(skip) => Some(call.dense::<1>("skip", "[1]", skip)?.of(DType::I32)?),
        None => None,
    };
    let param = call.dense::<1>("param", "[n]", param)?.of(DType::F32)?;
    let m = call.dense::<1>("m", "[n]", m)?.of(DType::BF16)?;
    let v = call.dense::<1>("v", "[n]", v)?.of(DType::BF16)?;
    let param_copy = match param_copy {
        Some(param_copy) => Some(call.dense::<1>("param_copy", "[n]", param_copy)?),
        None => None,
    };
    call.same(&[Some(grad.named()), Some(param.named()), Some(m.named()), Some(v.named()), named(&param_copy)])?;
    let n = grad.dims[0];
    const SIZES: [(&str, &str); 1] = [("n", "from grad")];
    let sizes = Sizes { names: &SIZES, values: &[n] };
    lr.expect([1], sizes)?;
    step.expect([1], sizes)?;
    if let Some(grad_scale) = &grad_scale {
        grad_scale.expect([1], sizes)?;
    }
    if let Some(skip) = &skip {
        skip.expect([1], sizes)?;
    }
    param.expect([n], sizes)?;
    m.expect([n], sizes)?;
    v.expect([n], sizes)?;
    if let Some(param_copy) = &param_copy {
        param_copy.expect([n], sizes)?;
    }
    let dtype = param_copy.as_ref().map_or(DType::F32, |param_copy| param_copy.dtype());
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_adamw_step_bf16)(
            call.handle(),
            grad.pointer().cast(),
            lr.pointer().cast(),
            step.pointer().cast(),
            pointer(&grad_scale).cast(),
            pointer(&skip).cast(),
            param.pointer().cast(),
            m.pointer(),
            v.pointer(),
            pointer(&param_copy),
            n as i64,
            n_decay,
            first,
            beta1,
            beta2,
            eps,
            weight_decay,
            dtype.code(),
        )
    };
    let tensors = [
        Some(grad.tensor),
        Some(lr.tensor),
        Some(step.tensor),
        tensor(&grad_scale),
        tensor(&skip),
        Some(param.tensor),
        Some(m.tensor),
        Some(v.tensor),
        tensor(&param_copy),
    ];
    call.finish(status, &tensors)
}

/// AdamW as adamw_step has it, its moments kept in 8 bits, blockwise (Dettmers, Lewis, Shleifer, Zettlemoyer 2022,
/// section 2.1): each 256 consecutive elements, the last ones fewer, have one f32 scale s, the largest magnitude
/// among them, and each element a code for a number q of 0 .. 1; it is s \* q, the largest one exactly.
///
/// m has a sign (bit 7), 4 bits of exponent e and 3 of mantissa f: q = 2^(e-15) \* (1 + f/8), and q = 2^-14 \* f/8
/// where e = 0. Of v its root r is kept, which has half the range and which the update divides by: 4 bits of
/// exponent and 4 of mantissa, likewise, with f/16. The update: v = beta2\*r^2 + (1-beta2)\*g^2; r = sqrt(v); param
/// as in adamw_step, with r \* sqrt(1/(1-beta2^t)) for the root, from the new moments before they are rounded.
/// Stored are s and, of x = |m|/s or r/s (a division in f32), the code of x rounded by chance (see above) to 3 or 4
/// bits of mantissa; where x \< 2^-14, x + 2^-14 is rounded and 2^-14 taken off again. A root above 0 gets at least
/// code 1, so that nothing is divided by a root that was rounded to 0. A block of zeros has s = 0 and codes 0. In a
/// block with an infinity or a NaN s is that, and the codes are 0.
///
/// # Arguments
///
/// - `grad`: f32 `[n]`, gradients
/// - `lr`: f32 `[1]`, learning rate
/// - `step`: i32 `[1]`, number of this update, from 1
/// - `grad_scale`: f32 `[1]`, factor of the gradients (from grad_clip), or null for 1
/// - `skip`: i32 `[1]`, non-zero leaves everything as it is; or null
/// - `param`: f32 `[n]`, parameters; read and overwritten
/// - `m`: u8 `[n]`, codes of the first moments; read and overwritten
/// - `m_scale`: f32 `[blocks]`, their scales; read and overwritten
/// - `r`: u8 `[n]`, codes of the roots of the second moments; read and overwritten
/// - `r_scale`: f32 `[blocks]`, their scales; read and overwritten
/// - `param_copy`: of `dtype` `[n]`, the new parameters rounded to `dtype`, or null; overwritten
/// - `n_decay`: how many of them, from the first, decay; must be 0 to n
/// - `first`: of a shard, the place of its first element among all parameters, which chance depends on; must be at
///   least 0 and a multiple of 256
/// - `beta1`: decay rate of the first moments; must be at least 0 and below 1
/// - `beta2`: decay rate of the second moments; must be at least 0 and below 1
/// - `eps`: added to the root; must be finite and above 0
/// - `weight_decay`: decay of the parameters; must be finite and at least 0
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn adamw_step_f8(
    grad: &Tensor,
    lr: &Tensor,
    step: &Tensor,
    grad_scale: Option<&Tensor>,
    skip: Option<&Tensor>,
    param: &Tensor,
    m: &Tensor,
    m_scale: &Tensor,
    r: &Tensor,
    r_scale: &Tensor,
    param_copy: Option<&Tensor>,
    n_decay: i64,
    first: i64,
    beta1: f32,
    beta2: f32,
    eps: f32,
    weight_decay: f32,
) -> Result<()> {
    let call = Call::new("cuda_adamw_step_f8", grad);
    let grad = call.dense::<1>("grad", "[n]", grad)?.of(DType::F32)?;
    let lr = call.dense::<1>("lr", "[1]", lr)?.of(DType::F32)?;
    let step = call.dense::<1>("step", "[1]", step)?.of(DType::I32)?;
    let grad_scale = match grad_scale {
        Some(grad_scale) => Some(call.dense::<1>("grad_scale", "[1]", grad_scale)?.of(DType::F32)?),
        None => None,
    };
    let skip = match skip {
        Some(skip) => Some(call.dense::<1>("skip", "[1]", skip)?.of(DType::I32)?),
        None => None,
    };
    let param = call.dense::<1>("param", "[n]", param)?.of(DType::F32)?;
    let m = call.dense::<1>("m", "[n]", m)?.of(DType::U8)?;
    let m_scale = call.dense::<1>("m_scale", "[blocks]", m_scale)?.of(DType::F32)?;
    let r = call.dense::<1>("r", "[n]", r)?.of(DType::U8)?;
    let r_scale = call.dense::<1>("r_scale", "[blocks]", r_scale)?.of(DType::F32)?;
    let param_copy = match param_copy {
        Some(param_copy) => Some(call.dense::<1>("param_copy", "[n]", param_copy)?),
        None => None,
    };
    call.same(&[Some(grad.named()), Some(param.named()), Some(m.named()), Some(r.named()), named(&param_copy)])?;
    call.same(&[Some(m_scale.named()), Some(r_scale.named())])?;
    let n = grad.dims[0];
    let blocks = m_scale.dims[0];
    const SIZES: [(&str, &str); 2] = [("n", "from grad"), ("blocks", "from m_scale")];
    let sizes = Sizes { names: &SIZES, values: &[n, blocks] };
    lr.expect([1], sizes)?;
    step.expect([1], sizes)?;
    if let Some(grad_scale) = &grad_scale {
        grad_scale.expect([1], sizes)?;
    }
    if let Some(skip) = &skip {
        skip.expect([1], sizes)?;
    }
    param.expect([n], sizes)?;
    m.expect([n], sizes)?;
    r.expect([n], sizes)?;
    r_scale.expect([blocks], sizes)?;
    if let Some(param_copy) = &param_copy {
        param_copy.expect([n], sizes)?;
    }
    let dtype = param_copy.as_ref().map_or(DType::F32, |param_copy| param_copy.dtype());
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_adamw_step_f8)(
            call.handle(),
            grad.pointer().cast(),
            lr.pointer().cast(),
            step.pointer().cast(),
            pointer(&grad_scale).cast(),
            pointer(&skip).cast(),
            param.pointer().cast(),
            m.pointer(),
            m_scale.pointer().cast(),
            r.pointer(),
            r_scale.pointer().cast(),
            pointer(&param_copy),
            n as i64,
            blocks as i64,
            n_decay,
            first,
            beta1,
            beta2,
            eps,
            weight_decay,
            dtype.code(),
        )
    };
    let tensors = [
        Some(grad.tensor),
        Some(lr.tensor),
        Some(step.tensor),
        tensor(&grad_scale),
        tensor(&skip),
        Some(param.tensor),
        Some(m.tensor),
        Some(m_scale.tensor),
        Some(r.tensor),
        Some(r_scale.tensor),
        tensor(&param_copy),
    ];
    call.finish(status, &tensors)
}

/// Sets gradients to zero.
///
/// # Arguments
///
/// - `grad`: of `dtype` `[n]`, gradients; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn zero_grad(grad: &Tensor) -> Result<()> {
    let call = Call::new("cuda_zero_grad", grad);
    let grad = call.dense::<1>("grad", "[n]", grad)?;
    let n = grad.dims[0];
    let dtype = grad.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe { (call.functions().cuda_zero_grad)(call.handle(), grad.pointer(), n as i64, dtype.code()) };
    let tensors = [Some(grad.tensor)];
    call.finish(status, &tensors)
}

/// Euclidean norm: norm = sqrt(sum(grad^2)).
///
/// Not finite exactly when a gradient is not finite or the norm overflows f32.
///
/// # Arguments
///
/// - `grad`: of `dtype` `[n]`, gradients
/// - `norm`: f32 `[1]`, the norm; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn grad_norm(grad: &Tensor, norm: &Tensor) -> Result<()> {
    let call = Call::new("cuda_grad_norm", grad);
    let grad = call.dense::<1>("grad", "[n]", grad)?;
    let norm = call.dense::<1>("norm", "[1]", norm)?.of(DType::F32)?;
    let n = grad.dims[0];
    const SIZES: [(&str, &str); 1] = [("n", "from grad")];
    let sizes = Sizes { names: &SIZES, values: &[n] };
    norm.expect([1], sizes)?;
    let dtype = grad.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_grad_norm)(call.handle(), grad.pointer(), norm.pointer().cast(), n as i64, dtype.code())
    };
    let tensors = [Some(grad.tensor), Some(norm.tensor)];
    call.finish(status, &tensors)
}

/// Clips by the global norm: with s = loss_scale (1 if null) and g = norm/s, scale = min(1, max_norm / (g + 1e-6))
/// / s; where grad is given it is multiplied by scale.
///
/// (Pascanu, Mikolov, Bengio 2013, algorithm 1)
///
/// # Arguments
///
/// - `norm`: f32 `[1]`, from grad_norm
/// - `loss_scale`: f32 `[1]`, what the loss was multiplied by, or null for 1
/// - `scale`: f32 `[1]`, the factor, for adamw_step; overwritten
/// - `grad`: of `dtype` `[n]`, gradients to scale in place, or null to leave that to adamw_step; read and overwritten
/// - `max_norm`: largest norm allowed, where infinity never clips; must be above 0
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn grad_clip(
    norm: &Tensor,
    loss_scale: Option<&Tensor>,
    scale: &Tensor,
    grad: Option<&Tensor>,
    max_norm: f32,
) -> Result<()> {
    let call = Call::new("cuda_grad_clip", norm);
    let norm = call.dense::<1>("norm", "[1]", norm)?.of(DType::F32)?;
    let loss_scale = match loss_scale {
        Some(loss_scale) => Some(call.dense::<1>("loss_scale", "[1]", loss_scale)?.of(DType::F32)?),
        None => None,
    };
    let scale = call.dense::<1>("scale", "[1]", scale)?.of(DType::F32)?;
    let grad = match grad {
        Some(grad) => Some(call.dense::<1>("grad", "[n]", grad)?),
        None => None,
    };
    let n = match &grad {
        Some(grad) => grad.dims[0],
        None => 1,
    };
    const SIZES: [(&str, &str); 1] = [("n", "from grad")];
    let sizes = Sizes { names: &SIZES, values: &[n] };
    norm.expect([1], sizes)?;
    if let Some(loss_scale) = &loss_scale {
        loss_scale.expect([1], sizes)?;
    }
    scale.expect([1], sizes)?;
    let dtype = grad.as_ref().map_or(DType::F32, |grad| grad.dtype());
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_grad_clip)(
            call.handle(),
            norm.pointer().cast(),
            pointer(&loss_scale).cast(),
            scale.pointer().cast(),
            pointer(&grad),
            n as i64,
            max_norm,
            dtype.code(),
        )
    };
    let tensors = [Some(norm.tensor), tensor(&loss_scale), Some(scale.tensor), tensor(&grad)];
    call.finish(status, &tensors)
}

/// Advances the step and gives its rate: t = ++step\[0\]; up to `warmup` steps lr = max_lr \* t / warmup, then lr =
/// min_lr + (max_lr - min_lr) \* (1 + cos(pi \* (t - warmup) / (total - warmup))) / 2, from `total` on min_lr.
///
/// (Loshchilov, Hutter 2017, "SGDR", eq. 5, with a linear warm-up)
///
/// # Arguments
///
/// - `skip`: i32 `[1]`, non-zero leaves step and lr as they are; or null
/// - `step`: i32 `[1]`, updates done; read and overwritten
/// - `lr`: f32 `[1]`, rate of this update; overwritten
/// - `warmup`: steps of the warm-up; must be at least 0
/// - `total`: steps until the last rate; must be at least warmup
/// - `max_lr`: highest rate; must be finite
/// - `min_lr`: last rate; must be finite
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn lr_schedule(
    skip: Option<&Tensor>,
    step: &Tensor,
    lr: &Tensor,
    warmup: i64,
    total: i64,
    max_lr: f32,
    min_lr: f32,
) -> Result<()> {
    let call = Call::new("cuda_lr_schedule", step);
    let skip = match skip {
        Some(skip) => Some(call.dense::<1>("skip", "[1]", skip)?.of(DType::I32)?),
        None => None,
    };
    let step = call.dense::<1>("step", "[1]", step)?.of(DType::I32)?;
    let lr = call.dense::<1>("lr", "[1]", lr)?.of(DType::F32)?;
    const SIZES: [(&str, &str); 0] = [];
    let sizes = Sizes { names: &SIZES, values: &[] };
    if let Some(skip) = &skip {
        skip.expect([1], sizes)?;
    }
    step.expect([1], sizes)?;
    lr.expect([1], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_lr_schedule)(
            call.handle(),
            pointer(&skip).cast(),
            step.pointer().cast(),
            lr.pointer().cast(),
            warmup,
            total,
            max_lr,
            min_lr,
        )
    };
    let tensors = [tensor(&skip), Some(step.tensor), Some(lr.tensor)];
    call.finish(status, &tensors)
}

/// Dynamic loss scaling: when norm is not finite, skip = 1, skipped += 1, loss_scale \*= backoff, good_steps = 0;
/// else skip = 0 and good_steps += 1, and each time it reaches `interval` loss_scale \*= growth and good_steps = 0.
///
/// The scale stays within 2^-24 .. 2^24. (Micikevicius et al. 2018, section 3.2)
///
/// # Arguments
///
/// - `norm`: f32 `[1]`, from grad_norm
/// - `loss_scale`: f32 `[1]`, the scale; read and overwritten
/// - `good_steps`: i32 `[1]`, steps since the last change; read and overwritten
/// - `skipped`: i32 `[1]`, steps skipped so far; read and overwritten
/// - `skip`: i32 `[1]`, 1 when this step must be skipped; overwritten
/// - `growth`: factor by which the scale grows; must be finite and at least 1
/// - `backoff`: factor by which it shrinks; must be above 0 and at most 1
/// - `interval`: good steps before it grows; must be at least 1
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn loss_scale_update(
    norm: &Tensor,
    loss_scale: &Tensor,
    good_steps: &Tensor,
    skipped: &Tensor,
    skip: &Tensor,
    growth: f32,
    backoff: f32,
    interval: i64,
) -> Result<()> {
    let call = Call::new("cuda_loss_scale_update", norm);
    let norm = call.dense::<1>("norm", "[1]", norm)?.of(DType::F32)?;
    let loss_scale = call.dense::<1>("loss_scale", "[1]", loss_scale)?.of(DType::F32)?;
    let good_steps = call.dense::<1>("good_steps", "[1]", good_steps)?.of(DType::I32)?;
    let skipped = call.dense::<1>("skipped", "[1]", skipped)?.of(DType::I32)?;
    let skip = call.dense::<1>("skip", "[1]", skip)?.of(DType::I32)?;
    const SIZES: [(&str, &str); 0] = [];
    let sizes = Sizes { names: &SIZES, values: &[] };
    norm.expect([1], sizes)?;
    loss_scale.expect([1], sizes)?;
    good_steps.expect([1], sizes)?;
    skipped.expect([1], sizes)?;
    skip.expect([1], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_loss_scale_update)(
            call.handle(),
            norm.pointer().cast(),
            loss_scale.pointer().cast(),
            good_steps.pointer().cast(),
            skipped.pointer().cast(),
            skip.pointer().cast(),
            growth,
            backoff,
            interval,
        )
    };
    let tensors =
        [Some(norm.tensor), Some(loss_scale.tensor), Some(good_steps.tensor), Some(skipped.tensor), Some(skip.tensor)];
    call.finish(status, &tensors)
}
