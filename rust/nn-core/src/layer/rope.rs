//! Tables of the rotary embedding.

use std::cell::RefCell;

use nn_ffi::{Context, DType, GpuTensor, kernels};

use crate::error::Result;

/// Cosines and sines `[positions, head_dim/2]` and the position of each token i32 `[tokens]`: how a call rotates.
#[derive(Clone, Debug)]
pub struct Rotation<'ctx> {
    /// Cosines.
    pub cosine: GpuTensor<'ctx>,
    /// Sines.
    pub sine: GpuTensor<'ctx>,
    /// Rows of the two.
    pub positions: GpuTensor<'ctx>,
}

/// Cosines and sines of the rotary embedding, made once for as many positions as were ever asked for.
#[derive(Debug)]
pub struct RopeTables<'ctx> {
    ctx: &'ctx Context,
    /// Elements a head.
    pub head_dim: usize,
    base: f64,
    ntk_alpha: f64,
    tables: RefCell<Option<(GpuTensor<'ctx>, GpuTensor<'ctx>)>>,
    /// `[batch, length]` of the last length, for the largest batch.
    positions: RefCell<Option<GpuTensor<'ctx>>>,
}

impl<'ctx> RopeTables<'ctx> {
    /// Tables for a base and its NTK-aware factor, 1 for none.
    pub fn new(ctx: &'ctx Context, head_dim: usize, base: f64, ntk_alpha: f64) -> Self {
        Self { ctx, head_dim, base, ntk_alpha, tables: RefCell::new(None), positions: RefCell::new(None) }
    }

    /// The device.
    pub fn context(&self) -> &'ctx Context {
        self.ctx
    }

    /// Cosines and sines, `[at least length, head_dim/2]`.
    pub fn tables(&self, length: usize) -> Result<(GpuTensor<'ctx>, GpuTensor<'ctx>)> {
        let mut kept = self.tables.borrow_mut();
        if let Some((cosine, sine)) = kept.as_ref().filter(|(cosine, _)| cosine.shape()[0] >= length) {
            return Ok((cosine.clone(), sine.clone()));
        }
        let shape = [length, self.head_dim / 2];
        let (cosine, sine) = (self.ctx.empty(&shape, DType::F32)?, self.ctx.empty(&shape, DType::F32)?);
        kernels::rope_freqs(&cosine, &sine, 0, self.base, self.ntk_alpha)?;
        *kept = Some((cosine.clone(), sine.clone()));
        Ok((cosine, sine))
    }

    /// 0 .. length-1 for each of `batch` sequences, i32 `[batch*length]`.
    pub fn positions(&self, batch: usize, length: usize) -> Result<GpuTensor<'ctx>> {
        let mut kept = self.positions.borrow_mut();
        let fits = |kept: &&GpuTensor<'ctx>| kept.shape()[1] == length && kept.shape()[0] >= batch;
        let positions = match kept.as_ref().filter(fits) {
            Some(positions) => positions.clone(),
            None => {
                let rows: Vec<i32> = (0..batch).flat_map(|_| 0..length as i32).collect();
                let made = self.ctx.tensor(&rows, &[batch, length])?;
                *kept = Some(made.clone());
                made
            }
        };
        Ok(positions.narrow(0, 0, batch)?.view(&[batch * length])?)
    }

    /// What rotates `batch` sequences of `length` tokens from their beginnings.
    pub fn rotation(&self, batch: usize, length: usize) -> Result<Rotation<'ctx>> {
        let (cosine, sine) = self.tables(length)?;
        Ok(Rotation { cosine, sine, positions: self.positions(batch, length)? })
    }
}
