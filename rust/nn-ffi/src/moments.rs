//! The moments of AdamW, in what they are kept in.

use crate::{Context, DType, Result, Tensor, UpdateOptions, kernels};

/// Parameters that share a scale, as in bindings.h.
const BLOCK: usize = 256;

/// What the moments of AdamW are kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MomentsKind {
    /// f32.
    #[default]
    F32,
    /// bf16, rounded by chance.
    BF16,
    /// 8-bit codes with a scale for every 256 parameters.
    F8,
}

impl MomentsKind {
    /// The dtype of the moments, or of their codes.
    #[must_use]
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::BF16 => DType::BF16,
            Self::F8 => DType::U8,
        }
    }

    /// Scales that so many parameters have.
    #[must_use]
    pub fn scales(self, count: usize) -> usize {
        if self == Self::F8 { count.div_ceil(BLOCK) } else { 0 }
    }
}

/// Both moments of all parameters, zero at first.
#[derive(Debug)]
pub struct Moments {
    kind: MomentsKind,
    data: [Tensor; 2],
    scales: Option<[Tensor; 2]>,
}

impl Moments {
    pub(crate) fn new(context: &Context, count: usize, kind: MomentsKind) -> Result<Self> {
        let (shape, scales) = ([count], [kind.scales(count)]);
        let data = || context.zeros(&shape, kind.dtype());
        let scale = || context.zeros(&scales, DType::F32);
        Ok(match kind {
            MomentsKind::F8 => {
                let (first, first_scales) = (data()?, scale()?);
                Self { kind, data: [first, data()?], scales: Some([first_scales, scale()?]) }
            }
            _ => Self { kind, data: [data()?, data()?], scales: None },
        })
    }

    /// What they are kept in.
    #[must_use]
    pub fn kind(&self) -> MomentsKind {
        self.kind
    }

    /// First and second moments, or their codes, `[parameters]`. Resuming writes them.
    #[must_use]
    pub fn data(&self) -> &[Tensor; 2] {
        &self.data
    }

    /// Scales of the codes of the first and of the second moments, f32; `None` where there are no codes.
    #[must_use]
    pub fn scales(&self) -> Option<&[Tensor; 2]> {
        self.scales.as_ref()
    }

    /// The form of AdamW for these moments.
    pub(crate) fn step(
        &self,
        [gradients, rate, step, clip, parameters]: [&Tensor; 5],
        skip: Option<&Tensor>,
        rounded: Option<&Tensor>,
        options: &UpdateOptions,
    ) -> Result<()> {
        let [m, v] = &self.data;
        let UpdateOptions { decayed, beta1, beta2, eps, weight_decay: decay, .. } = *options;
        let clip = Some(clip);
        match &self.scales {
            Some([m_scale, r_scale]) => kernels::adamw_step_f8(
                gradients, rate, step, clip, skip, parameters, m, m_scale, v, r_scale, rounded, decayed, beta1, beta2,
                eps, decay,
            ),
            None if self.kind == MomentsKind::BF16 => kernels::adamw_step_bf16(
                gradients, rate, step, clip, skip, parameters, m, v, rounded, decayed, beta1, beta2, eps, decay,
            ),
            None => kernels::adamw_step(
                gradients, rate, step, clip, skip, parameters, m, v, rounded, decayed, beta1, beta2, eps, decay,
            ),
        }
    }
}
