// Generated from bindings.h by `make generate`. Do not edit.

//! Kernels of the section embedding of bindings.h.

use crate::call::{Call, Sizes};
use crate::{DType, Result, Tensor};

/// Gathers rows of a table: y\[t\] = table\[ids\[t\]\].
///
/// # Arguments
///
/// - `table`: of `dtype` `[vocab, dim]`, the table
/// - `ids`: i32 `[tokens]`, rows to take, 0 .. vocab-1
/// - `y`: of `dtype` `[tokens, dim]`, the rows; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn embedding(table: &Tensor, ids: &Tensor, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_embedding", table);
    let table = call.dense::<2>("table", "[vocab, dim]", table)?;
    let ids = call.dense::<1>("ids", "[tokens]", ids)?.of(DType::I32)?;
    let y = call.dense::<2>("y", "[tokens, dim]", y)?;
    call.folds("tokens", &[Some(ids.named()), Some(y.named())])?;
    let vocab = table.dims[0];
    let dim = table.dims[1];
    let tokens = ids.dims[0];
    const SIZES: [(&str, &str); 3] = [("vocab", "from table"), ("dim", "from table"), ("tokens", "from ids")];
    let sizes = Sizes { names: &SIZES, values: &[vocab, dim, tokens] };
    y.expect([tokens, dim], sizes)?;
    let dtype = table.dtype();
    y.same(dtype, "table")?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_embedding)(
            call.handle(),
            table.pointer(),
            ids.pointer().cast(),
            y.pointer(),
            tokens as i64,
            vocab as i64,
            dim as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(table.tensor), Some(ids.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}

/// Adds rows into a table, in the order of the tokens: table\[ids\[t\]\] += x\[t\].
///
/// The gradient of embedding.
///
/// # Arguments
///
/// - `x`: of `dtype` `[tokens, dim]`, rows to add
/// - `ids`: i32 `[tokens]`, where to, 0 .. vocab-1
/// - `table`: f32 `[vocab, dim]`, the table; added to
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn scatter_add(x: &Tensor, ids: &Tensor, table: &Tensor) -> Result<()> {
    let call = Call::new("cuda_scatter_add", x);
    let x = call.dense::<2>("x", "[tokens, dim]", x)?;
    let ids = call.dense::<1>("ids", "[tokens]", ids)?.of(DType::I32)?;
    let table = call.dense::<2>("table", "[vocab, dim]", table)?.of(DType::F32)?;
    call.folds("tokens", &[Some(x.named()), Some(ids.named())])?;
    let tokens = x.dims[0];
    let dim = x.dims[1];
    let vocab = table.dims[0];
    const SIZES: [(&str, &str); 3] = [("tokens", "from x"), ("dim", "from x"), ("vocab", "from table")];
    let sizes = Sizes { names: &SIZES, values: &[tokens, dim, vocab] };
    ids.expect([tokens], sizes)?;
    table.expect([vocab, dim], sizes)?;
    let dtype = x.dtype();
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_scatter_add)(
            call.handle(),
            x.pointer(),
            ids.pointer().cast(),
            table.pointer().cast(),
            tokens as i64,
            vocab as i64,
            dim as i64,
            dtype.code(),
        )
    };
    let tensors = [Some(x.tensor), Some(ids.tensor), Some(table.tensor)];
    call.finish(status, &tensors)
}

/// Adds rows to a sum of two f32, the nearest and what is left of it: sum\[0\] + sum\[1\] += x\[0\] + x\[1\] + ....
/// Each row is added without error to sum\[0\], the error to sum\[1\], and of both the nearest f32 is taken again.
///
/// So a long text loses no more than a short one, and the bits do not depend on the calls that rows are cut into. A
/// column is NaN from where its sum is not finite. The first call begins with zeros. (Dekker 1971; Knuth, volume 2,
/// 4.2.2, theorems B and C)
///
/// # Arguments
///
/// - `x`: f32 `[rows, dim]`, rows to add, in their order
/// - `sum`: f32 `[2, dim]`, the sum so far, its nearest f32 and the rest; read and overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn pool_rows(x: &Tensor, sum: &Tensor) -> Result<()> {
    let call = Call::new("cuda_pool_rows", x);
    let x = call.dense::<2>("x", "[rows, dim]", x)?.of(DType::F32)?;
    let sum = call.dense::<2>("sum", "[2, dim]", sum)?.of(DType::F32)?;
    let rows = x.dims[0];
    let dim = x.dims[1];
    const SIZES: [(&str, &str); 2] = [("rows", "from x"), ("dim", "from x")];
    let sizes = Sizes { names: &SIZES, values: &[rows, dim] };
    sum.expect([2, dim], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_pool_rows)(
            call.handle(),
            x.pointer().cast(),
            sum.pointer().cast(),
            rows as i64,
            dim as i64,
        )
    };
    let tensors = [Some(x.tensor), Some(sum.tensor)];
    call.finish(status, &tensors)
}

/// The vector of length 1 in the direction of a sum, which is that of the mean: y = s / |s|, s = sum\[0\] +
/// sum\[1\]; zeros where s is zero.
///
/// Computed in f64, rounded once.
///
/// # Arguments
///
/// - `sum`: f32 `[2, dim]`, from pool_rows
/// - `y`: f32 `[dim]`, the vector; overwritten
///
/// # Errors
///
/// [`Error`](crate::Error) when shapes or dtypes disagree, or the library refuses the call.
pub fn pool_unit(sum: &Tensor, y: &Tensor) -> Result<()> {
    let call = Call::new("cuda_pool_unit", sum);
    let sum = call.dense::<2>("sum", "[2, dim]", sum)?.of(DType::F32)?;
    let y = call.dense::<1>("y", "[dim]", y)?.of(DType::F32)?;
    y.unfolded("dim", "sum")?;
    let dim = sum.dims[1];
    const SIZES: [(&str, &str); 1] = [("dim", "from sum")];
    let sizes = Sizes { names: &SIZES, values: &[dim] };
    sum.expect([2, dim], sizes)?;
    y.expect([dim], sizes)?;
    // SAFETY: each pointer is null where that is allowed, or memory of this context that holds the shape which
    // the sizes and strides describe, as was checked above; everything else the library checks itself.
    let status = unsafe {
        (call.functions().cuda_pool_unit)(call.handle(), sum.pointer().cast(), y.pointer().cast(), dim as i64)
    };
    let tensors = [Some(sum.tensor), Some(y.tensor)];
    call.finish(status, &tensors)
}
