// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section digest of bindings.h.

use crate::call::{Call, Sizes};
use crate::{DType, Result, Tensor};

/// Adds up a digest of memory that hangs on each of its bits and on where it is, in whole numbers modulo 2^64, so
/// that parts may be taken in any order, by anyone, and their sums added.
///
/// With j = first + i and b the bits of element i as a number: z = ((j mod 2^32) 2^32 + b) + (1 + floor(j / 2^32))
/// 0x9e3779b97f4a7c15 z ^= z \>\> 30, z \*= 0xbf58476d1ce4e5b9, z ^= z \>\> 27, z \*= 0x94d049bb133111eb, z ^= z
/// \>\> 31; sums\[0\] += z z ^= z \>\> 32, z \*= 0xd6e8feb86659fd93, z ^= z \>\> 32; sums\[1\] += z Each step can
/// be undone, so that a change within one element always changes both sums; changes of several elements leave both
/// as they were by a chance of about 2^-128. It finds faults: who wants to can make other memory with the same
/// sums. (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", with the constants of Stafford
/// 2011, variant 13)
///
/// # Arguments
///
/// - `x`: u8 `[n, width]`, elements, one after the other
/// - `sums`: i64 `[2]`, both sums; added to
/// - `first`: index of the first element; must be at least 0
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn digest(x: &Tensor, sums: &Tensor, first: i64) -> Result<()> {
    let call = Call::new("cuda_digest", x);
    let x = call.dense::<2>("x", "[n, width]", x)?.of(DType::U8)?;
    let sums = call.dense::<1>("sums", "[2]", sums)?.of(DType::I64)?;
    let n = x.dims[0];
    let width = x.dims[1];
    const SIZES: [(&str, &str); 2] = [("n", "from x"), ("width", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[n, width] };
    sums.expect([2], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_digest)(call.handle(), x.pointer(), sums.pointer().cast(), n as i64, width as i64, first)
    };
    let tensors = [Some(x.tensor), Some(sums.tensor)];
    call.finish(status, &tensors)
}
