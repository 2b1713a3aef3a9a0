//! Tables of the rotary embedding.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nn_ffi::{Context, DType, Tensor, kernels};

use crate::error::Result;
use crate::model::RopeOptions;

/// Cosines and sines `[positions, head_dim/2]` and the position of each token i32 `[tokens]`: how a call rotates, and
/// what its tokens see.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// Cosines.
    pub cosine: Tensor,
    /// Sines.
    pub sine: Tensor,
    /// Rows of the two.
    pub positions: Tensor,
    /// The first token that each sees, i32 `[batch, length]`, where the sequences are packed documents that do not see
    /// one another.
    pub starts: Option<Tensor>,
}

/// Cosines and sines of the rotary embedding, made once for as many positions as were ever asked for.
#[derive(Debug)]
pub struct RopeTables {
    ctx: Context,
    /// Elements a head.
    pub head_dim: usize,
    options: RopeOptions,
    /// What frequencies are divided by, f32 `[head_dim/2]`.
    divisors: Option<Tensor>,
    /// What cosines and sines are multiplied with, and of how many elements at a head's beginning.
    magnitude: (f64, usize),
    tables: Kept<(Tensor, Tensor)>,
    /// `[batch, length]` of the last length, for the largest batch.
    positions: Kept<Tensor>,
}

/// What was made last. No call of the device is made while it is locked: another thread may have the context to itself
/// and wait for what is in here. Two threads may so make the same thing, of which one is kept.
#[derive(Debug)]
struct Kept<T>(Mutex<Option<T>>);

impl<T: Clone> Kept<T> {
    fn none() -> Self {
        Self(Mutex::new(None))
    }

    /// What is kept where it will do, else what `make` makes, which is kept from now on.
    fn get_or_make(&self, will_do: impl Fn(&T) -> bool, make: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(kept) = self.lock().as_ref().filter(|kept| will_do(kept)) {
            return Ok(kept.clone());
        }
        let made = make()?;
        let mut kept = self.lock();
        if let Some(of_another_thread) = kept.as_ref().filter(|kept| will_do(kept)) {
            return Ok(of_another_thread.clone());
        }
        let replaced = kept.replace(made.clone());
        drop(kept);
        drop(replaced); // gives memory back, which is a call of the device
        Ok(made)
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RopeTables {
    /// Tables for a base and its NTK-aware factor, 1 for none.
    pub fn new(ctx: &Context, head_dim: usize, base: f64, ntk_alpha: f64) -> Self {
        Self::of(ctx, head_dim, RopeOptions { base, ntk_alpha, scale: 1.0 }, None)
    }

    /// Tables whose positions or frequencies are scaled: the latter divided by numbers, one for every pair of a head, unless
    /// there are none. `magnitude` is multiplied with the cosines and sines of so many elements at a head's beginning.
    ///
    /// # Errors
    ///
    /// As [`Context::empty`].
    pub fn scaled(
        ctx: &Context,
        head_dim: usize,
        options: RopeOptions,
        divisors: &[f32],
        magnitude: (f64, usize),
    ) -> Result<Self> {
        let divisors = (!divisors.is_empty()).then(|| ctx.tensor(divisors, &[divisors.len()])).transpose()?;
        Ok(Self { magnitude, ..Self::of(ctx, head_dim, options, divisors) })
    }

    fn of(ctx: &Context, head_dim: usize, options: RopeOptions, divisors: Option<Tensor>) -> Self {
        let (tables, positions) = (Kept::none(), Kept::none());
        Self { ctx: ctx.clone(), head_dim, options, divisors, magnitude: (1.0, head_dim), tables, positions }
    }

    /// Positions that the tables reach now.
    pub fn length(&self) -> usize {
        self.tables.lock().as_ref().map_or(0, |(cosine, _)| cosine.shape()[0])
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// Cosines and sines, `[at least length, head_dim/2]`.
    pub fn tables(&self, length: usize) -> Result<(Tensor, Tensor)> {
        let long_enough = |(cosine, _): &(Tensor, Tensor)| cosine.shape()[0] >= length;
        self.tables.get_or_make(long_enough, || {
            let shape = [length, self.head_dim / 2];
            let (cosine, sine) = (self.ctx.empty(&shape, DType::F32)?, self.ctx.empty(&shape, DType::F32)?);
            let RopeOptions { base, ntk_alpha, scale } = self.options;
            match &self.divisors {
                None if scale == 1.0 => kernels::rope_freqs(&cosine, &sine, 0, base, ntk_alpha)?,
                divisors => {
                    kernels::rope_freqs_scaled(divisors.as_ref(), &cosine, &sine, 0, base, ntk_alpha, scale)?;
                }
            }
            self.enlarge(&cosine, &sine)?;
            Ok((cosine, sine))
        })
    }

    /// Multiplies what rotates by the magnitude: not the pairs that stay as they are.
    fn enlarge(&self, cosine: &Tensor, sine: &Tensor) -> Result<()> {
        let (magnitude, rotated) = (self.magnitude.0 as f32, self.magnitude.1 / 2);
        if magnitude == 1.0 {
            return Ok(());
        }
        let (rows, pairs) = (cosine.shape()[0], cosine.shape()[1]);
        if rotated == pairs {
            kernels::scale(cosine, cosine, magnitude)?;
            return Ok(kernels::scale(sine, sine, magnitude)?);
        }
        let factors: Vec<f32> =
            (0..rows * pairs).map(|at| if at % pairs < rotated { magnitude } else { 1.0 }).collect();
        let spread = self.ctx.tensor(&factors, &[rows, pairs])?;
        kernels::mul(cosine, &spread, cosine)?;
        Ok(kernels::mul(sine, &spread, sine)?)
    }

    /// 0 .. length-1 for each of `batch` sequences, i32 `[batch*length]`.
    pub fn positions(&self, batch: usize, length: usize) -> Result<Tensor> {
        let fits = |kept: &Tensor| kept.shape()[1] == length && kept.shape()[0] >= batch;
        let positions = self.positions.get_or_make(fits, || positions(&self.ctx, batch, length))?;
        Ok(positions.narrow(0, 0, batch)?.view(&[batch * length])?)
    }

    /// What rotates `batch` sequences of `length` tokens from their beginnings.
    pub fn rotation(&self, batch: usize, length: usize) -> Result<Rotation> {
        let (cosine, sine) = self.tables(length)?;
        Ok(Rotation { cosine, sine, positions: self.positions(batch, length)?, starts: None })
    }

    /// What rotates the documents of `batch` sequences, ids i32 `[batch*length]`, from the beginning of each, and keeps
    /// them from seeing one another. Each ends with the token `separator`.
    pub fn of_documents(&self, ids: &Tensor, batch: usize, separator: i32) -> Result<Rotation> {
        let length = ids.len() / batch;
        let (cosine, sine) = self.tables(length)?;
        let shape = [batch, length];
        let (starts, positions) = (self.ctx.empty(&shape, DType::I32)?, self.ctx.empty(&shape, DType::I32)?);
        kernels::document_starts(&ids.view(&shape)?, &starts, &positions, separator)?;
        Ok(Rotation { cosine, sine, positions: positions.view(&[batch * length])?, starts: Some(starts) })
    }
}

/// 0 .. length-1 for each of `batch` sequences, i32 `[batch, length]`. On a context that measures it takes no memory of the
/// host, since it holds nothing.
pub(super) fn positions(ctx: &Context, batch: usize, length: usize) -> Result<Tensor> {
    let shape = [batch, length];
    if ctx.measures()? {
        return Ok(ctx.empty(&shape, DType::I32)?);
    }
    let rows: Vec<i32> = (0..batch).flat_map(|_| 0..length as i32).collect();
    Ok(ctx.tensor(&rows, &shape)?)
}
