// Generated from bindings.h by `python -m nncuda.binding.rust rust`. Do not edit.

//! Options of kernels that are one of a few.

/// How rotary embedding pairs the elements of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum RopeLayout {
    /// element i with i + head_dim/2 (GPT-NeoX, Llama in transformers)
    #[default]
    Half = nn_cuda::NNCUDA_ROPE_HALF,
    /// element 2i with 2i+1 (the paper; Llama in GGUF)
    Interleaved = nn_cuda::NNCUDA_ROPE_INTERLEAVED,
}

impl RopeLayout {
    /// The value of a number in the contract; `None` for one that is none.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        match code {
            nn_cuda::NNCUDA_ROPE_HALF => Some(Self::Half),
            nn_cuda::NNCUDA_ROPE_INTERLEAVED => Some(Self::Interleaved),
            _ => None,
        }
    }
}

/// What gemm_epilogue applies to the product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Activation {
    /// `NNCUDA_ACTIVATION_NONE`.
    #[default]
    None = nn_cuda::NNCUDA_ACTIVATION_NONE,
    /// `NNCUDA_ACTIVATION_SILU`.
    Silu = nn_cuda::NNCUDA_ACTIVATION_SILU,
}

impl Activation {
    /// The value of a number in the contract; `None` for one that is none.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        match code {
            nn_cuda::NNCUDA_ACTIVATION_NONE => Some(Self::None),
            nn_cuda::NNCUDA_ACTIVATION_SILU => Some(Self::Silu),
            _ => None,
        }
    }
}
