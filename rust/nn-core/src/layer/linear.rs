//! The linear layer, whose weight is trained, or stays as it is stored, with an adapter beside it.

use nn_ffi::{Activation, DType, Format, Tensor, kernels};

use super::low_rank::LowRank;
use super::{Weight, sizes};
use crate::error::Result;

/// y = x W^T, or x W^T + b, for a weight `[out, in]` and a bias `[out]`.
#[derive(Debug)]
pub struct Linear {
    weight: Weight,
    bias: Option<Weight>,
    stored: Option<Stored>,
}

/// Of a weight that stays as it is stored.
#[derive(Debug)]
struct Stored {
    form: Form,
    low_rank: Option<LowRank>,
}

#[derive(Debug)]
enum Form {
    /// Rows in a format.
    Rows(Format),
    /// Packed ternary weights with a scale an output, f32 `[out]`.
    Ternary(Tensor),
}

impl Linear {
    /// A layer over a weight `[out, in]`.
    pub fn new(weight: Weight) -> Self {
        Self { weight, bias: None, stored: None }
    }

    /// The same with a bias `[out]`, where there is one.
    pub fn with_bias(weight: Weight, bias: Option<Weight>) -> Self {
        Self { weight, bias, stored: None }
    }

    /// A layer over a weight that stays as it is stored, u8 `[out, row_bytes]` in `format`, with what an adapter adds: x, y and
    /// the bias are f32, and the adapter alone has gradients.
    ///
    /// The product is that of the engine, which for some formats rounds x, so that an adapter is trained for the model as it is
    /// run; `backward` takes that rounding as the identity. (Bengio, Léonard, Courville 2013, "Estimating or Propagating
    /// Gradients Through Stochastic Neurons", section 4)
    pub fn stored(weight: Tensor, format: Format, bias: Option<Tensor>, low_rank: Option<LowRank>) -> Self {
        let bias = bias.map(|bias| Weight::new(bias, None));
        Self { weight: Weight::new(weight, None), bias, stored: Some(Stored { form: Form::Rows(format), low_rank }) }
    }

    /// The same over ternary weights, packed u8 `[stored, row_bytes]` with a scale an output, f32 `[out]`. What the adapter adds is
    /// of x as it is, before it is rounded for the other product.
    pub fn ternary(weight: Tensor, scale: Tensor, low_rank: Option<LowRank>) -> Self {
        let stored = Some(Stored { form: Form::Ternary(scale), low_rank });
        Self { weight: Weight::new(weight, None), bias: None, stored }
    }

    /// x `[rows, in]` to y `[rows, out]` of the same dtype.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_as(x, x.dtype())
    }

    /// As `forward`, but y is f32 in every precision. For a layer without a bias.
    pub fn forward_f32(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_as(x, DType::F32)
    }

    fn forward_as(&self, x: &Tensor, dtype: DType) -> Result<Tensor> {
        let [rows, _] = sizes("x", x)?;
        let y = x.context().empty(&[rows, self.outputs()?], dtype)?;
        self.forward_into(x, &y)?;
        Ok(y)
    }

    /// As `forward`, into a y that is given, of x's dtype or, without a bias, f32.
    pub fn forward_into(&self, x: &Tensor, y: &Tensor) -> Result<()> {
        if let Some(Stored { form, low_rank }) = &self.stored {
            let (weight, bias) = (&self.weight.value, self.bias.as_ref().map(|bias| &bias.value));
            match form {
                Form::Rows(format) => kernels::gemm_quant(x, weight, None, bias, None, y, Activation::None, *format)?,
                Form::Ternary(scale) => kernels::bitlinear_norm(x, None, weight, scale, None, y, 0.0)?,
            }
            return low_rank.as_ref().map_or(Ok(()), |low_rank| low_rank.add(x, y));
        }
        if let Some(bias) = &self.bias {
            let (weight, bias) = (&self.weight.value, Some(&bias.value));
            return Ok(kernels::gemm_epilogue(x, weight, bias, None, y, Activation::None)?);
        }
        Ok(kernels::gemm(x, &self.weight.value, y, false, true)?)
    }

    /// Overwrites dx `[rows, in]` by the gradient of x from dy `[rows, out]`. dx may be x itself, whose values are then
    /// spent. The weight's gradient is added to `beta` times what is there, the bias's always to what is there, as gains' are.
    pub fn backward(&self, dy: &Tensor, x: &Tensor, dx: &Tensor, beta: f32) -> Result<()> {
        if let Some(stored) = &self.stored {
            return self.backward_stored(stored, dy, x, dx, [beta, 0.0]);
        }
        kernels::gemm_beta(dy, x, self.weight.grad()?, 1.0, beta, true, false)?;
        if let Some(bias) = &self.bias {
            let [rows, outputs] = sizes("dy", dy)?;
            let ones = dy.context().empty(&[1, rows], dy.dtype())?; // a product with which adds columns up, in f32
            kernels::fill(&ones.view(&[rows])?, 1.0)?;
            kernels::gemm_beta(&ones, dy, &bias.grad()?.view(&[1, outputs])?, 1.0, 1.0, false, false)?;
        }
        Ok(kernels::gemm(dy, &self.weight.value, dx, false, false)?)
    }

    /// As `backward`, but the gradient of x is added to the dx that is there.
    pub fn backward_adding(&self, dy: &Tensor, x: &Tensor, dx: &Tensor, beta: f32) -> Result<()> {
        if let Some(stored) = &self.stored {
            return self.backward_stored(stored, dy, x, dx, [beta, 1.0]);
        }
        kernels::gemm_beta(dy, x, self.weight.grad()?, 1.0, beta, true, false)?;
        Ok(kernels::gemm_beta(dy, &self.weight.value, dx, 1.0, 1.0, false, false)?)
    }

    /// Of a weight that stays: `beta` times what is there of the adapter's gradients, and so many times what dx has.
    fn backward_stored(
        &self,
        Stored { form, low_rank }: &Stored,
        dy: &Tensor,
        x: &Tensor,
        dx: &Tensor,
        [beta, old]: [f32; 2],
    ) -> Result<()> {
        let added = low_rank.as_ref().map(|of| Ok::<_, crate::Error>((of, of.backward(dy, x, beta)?))).transpose()?;
        match form {
            Form::Rows(format) => kernels::gemm_quant_backward(dy, &self.weight.value, None, dx, old, *format)?,
            Form::Ternary(scale) => kernels::bitlinear_backward(dy, &self.weight.value, scale, dx, old)?,
        }
        if let Some((low_rank, dinner)) = added {
            kernels::gemm_beta(&dinner, &low_rank.a.value, dx, 1.0, 1.0, false, false)?;
        }
        Ok(())
    }

    /// The weight, for who multiplies by it in a call of their own.
    pub(super) fn weight(&self) -> &Weight {
        &self.weight
    }

    /// Outputs.
    pub fn outputs(&self) -> Result<usize> {
        if let Some(Stored { form: Form::Ternary(scale), .. }) = &self.stored {
            return Ok(scale.len());
        }
        let [outputs, _] = sizes("the weight", &self.weight.value)?;
        Ok(outputs)
    }
}
