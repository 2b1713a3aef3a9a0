// Generated from bindings.h by `make generate`. Do not edit.

//! Options that are one of a few.

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

/// Formats in which weights and caches are stored: dtypes, under their numbers, and blocks of GGUF, in which 32 or
/// 256 neighbouring elements of a row share scales. _R16: the same bytes in an order made for products.
/// Append-only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Format {
    /// `NNCUDA_FORMAT_F32`.
    #[default]
    F32 = nn_cuda::NNCUDA_FORMAT_F32,
    /// `NNCUDA_FORMAT_F16`.
    F16 = nn_cuda::NNCUDA_FORMAT_F16,
    /// `NNCUDA_FORMAT_BF16`.
    Bf16 = nn_cuda::NNCUDA_FORMAT_BF16,
    /// 18 bytes for 32: f16 scale, 4 bits each
    Q40 = nn_cuda::NNCUDA_FORMAT_Q4_0,
    /// 20 bytes for 32: f16 scale and minimum, 4 bits each
    Q41 = nn_cuda::NNCUDA_FORMAT_Q4_1,
    /// 22 bytes for 32: f16 scale, 5 bits each
    Q50 = nn_cuda::NNCUDA_FORMAT_Q5_0,
    /// 24 bytes for 32: f16 scale and minimum, 5 bits each
    Q51 = nn_cuda::NNCUDA_FORMAT_Q5_1,
    /// 34 bytes for 32: f16 scale, 8 bits each
    Q80 = nn_cuda::NNCUDA_FORMAT_Q8_0,
    /// 144 bytes for 256: eight parts with 6-bit scales and minima, 4 bits each
    Q4K = nn_cuda::NNCUDA_FORMAT_Q4_K,
    /// 176 bytes for 256: eight parts with 6-bit scales and minima, 5 bits each
    Q5K = nn_cuda::NNCUDA_FORMAT_Q5_K,
    /// 210 bytes for 256: sixteen parts with 8-bit scales, 6 bits each
    Q6K = nn_cuda::NNCUDA_FORMAT_Q6_K,
    /// 18 bytes for 32: f16 scale, 4 bits each, which number sixteen values; read, not stored
    Iq4Nl = nn_cuda::NNCUDA_FORMAT_IQ4_NL,
    /// 17 bytes for 32: scale a power of two, OCP 4-bit floating point; read, not stored
    Mxfp4 = nn_cuda::NNCUDA_FORMAT_MXFP4,
    /// OCP 8-bit floating point, 1 byte each, without a scale: caches alone
    E4m3 = nn_cuda::NNCUDA_FORMAT_E4M3,
    /// 136 bytes for 256: eight parts with 6-bit scales, 4 bits each as of iq4_nl; read, not stored
    Iq4Xs = nn_cuda::NNCUDA_FORMAT_IQ4_XS,
    /// 84 bytes for 256: sixteen parts with 4-bit scales and minima, 2 bits each
    Q2K = nn_cuda::NNCUDA_FORMAT_Q2_K,
    /// 110 bytes for 256: sixteen parts with 6-bit scales, 3 bits each
    Q3K = nn_cuda::NNCUDA_FORMAT_Q3_K,
    /// q4_0, sixteen rows side by side: cuda_interleave_rows
    Q40R16 = nn_cuda::NNCUDA_FORMAT_Q4_0_R16,
    /// the others likewise: 20 more than the plain format
    Q41R16 = nn_cuda::NNCUDA_FORMAT_Q4_1_R16,
    /// `NNCUDA_FORMAT_Q5_0_R16`.
    Q50R16 = nn_cuda::NNCUDA_FORMAT_Q5_0_R16,
    /// `NNCUDA_FORMAT_Q5_1_R16`.
    Q51R16 = nn_cuda::NNCUDA_FORMAT_Q5_1_R16,
    /// `NNCUDA_FORMAT_Q8_0_R16`.
    Q80R16 = nn_cuda::NNCUDA_FORMAT_Q8_0_R16,
    /// `NNCUDA_FORMAT_Q4_K_R16`.
    Q4KR16 = nn_cuda::NNCUDA_FORMAT_Q4_K_R16,
    /// `NNCUDA_FORMAT_Q5_K_R16`.
    Q5KR16 = nn_cuda::NNCUDA_FORMAT_Q5_K_R16,
    /// `NNCUDA_FORMAT_Q6_K_R16`.
    Q6KR16 = nn_cuda::NNCUDA_FORMAT_Q6_K_R16,
    /// `NNCUDA_FORMAT_IQ4_NL_R16`.
    Iq4NlR16 = nn_cuda::NNCUDA_FORMAT_IQ4_NL_R16,
    /// `NNCUDA_FORMAT_MXFP4_R16`.
    Mxfp4R16 = nn_cuda::NNCUDA_FORMAT_MXFP4_R16,
    /// `NNCUDA_FORMAT_IQ4_XS_R16`.
    Iq4XsR16 = nn_cuda::NNCUDA_FORMAT_IQ4_XS_R16,
    /// `NNCUDA_FORMAT_Q2_K_R16`.
    Q2KR16 = nn_cuda::NNCUDA_FORMAT_Q2_K_R16,
    /// `NNCUDA_FORMAT_Q3_K_R16`.
    Q3KR16 = nn_cuda::NNCUDA_FORMAT_Q3_K_R16,
}

impl Format {
    /// The value of a number in the contract; `None` for one that is none.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        match code {
            nn_cuda::NNCUDA_FORMAT_F32 => Some(Self::F32),
            nn_cuda::NNCUDA_FORMAT_F16 => Some(Self::F16),
            nn_cuda::NNCUDA_FORMAT_BF16 => Some(Self::Bf16),
            nn_cuda::NNCUDA_FORMAT_Q4_0 => Some(Self::Q40),
            nn_cuda::NNCUDA_FORMAT_Q4_1 => Some(Self::Q41),
            nn_cuda::NNCUDA_FORMAT_Q5_0 => Some(Self::Q50),
            nn_cuda::NNCUDA_FORMAT_Q5_1 => Some(Self::Q51),
            nn_cuda::NNCUDA_FORMAT_Q8_0 => Some(Self::Q80),
            nn_cuda::NNCUDA_FORMAT_Q4_K => Some(Self::Q4K),
            nn_cuda::NNCUDA_FORMAT_Q5_K => Some(Self::Q5K),
            nn_cuda::NNCUDA_FORMAT_Q6_K => Some(Self::Q6K),
            nn_cuda::NNCUDA_FORMAT_IQ4_NL => Some(Self::Iq4Nl),
            nn_cuda::NNCUDA_FORMAT_MXFP4 => Some(Self::Mxfp4),
            nn_cuda::NNCUDA_FORMAT_E4M3 => Some(Self::E4m3),
            nn_cuda::NNCUDA_FORMAT_IQ4_XS => Some(Self::Iq4Xs),
            nn_cuda::NNCUDA_FORMAT_Q2_K => Some(Self::Q2K),
            nn_cuda::NNCUDA_FORMAT_Q3_K => Some(Self::Q3K),
            nn_cuda::NNCUDA_FORMAT_Q4_0_R16 => Some(Self::Q40R16),
            nn_cuda::NNCUDA_FORMAT_Q4_1_R16 => Some(Self::Q41R16),
            nn_cuda::NNCUDA_FORMAT_Q5_0_R16 => Some(Self::Q50R16),
            nn_cuda::NNCUDA_FORMAT_Q5_1_R16 => Some(Self::Q51R16),
            nn_cuda::NNCUDA_FORMAT_Q8_0_R16 => Some(Self::Q80R16),
            nn_cuda::NNCUDA_FORMAT_Q4_K_R16 => Some(Self::Q4KR16),
            nn_cuda::NNCUDA_FORMAT_Q5_K_R16 => Some(Self::Q5KR16),
            nn_cuda::NNCUDA_FORMAT_Q6_K_R16 => Some(Self::Q6KR16),
            nn_cuda::NNCUDA_FORMAT_IQ4_NL_R16 => Some(Self::Iq4NlR16),
            nn_cuda::NNCUDA_FORMAT_MXFP4_R16 => Some(Self::Mxfp4R16),
            nn_cuda::NNCUDA_FORMAT_IQ4_XS_R16 => Some(Self::Iq4XsR16),
            nn_cuda::NNCUDA_FORMAT_Q2_K_R16 => Some(Self::Q2KR16),
            nn_cuda::NNCUDA_FORMAT_Q3_K_R16 => Some(Self::Q3KR16),
            _ => None,
        }
    }
}

/// How the ranks of a communicator reach each other. Append-only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Transport {
    /// a rank alone
    #[default]
    Alone = nn_cuda::NNCUDA_TRANSPORT_SELF,
    /// contexts of one process, each in a thread of its own, on the CPU engine
    Threads = nn_cuda::NNCUDA_TRANSPORT_THREADS,
    /// processes that an MPI launcher started: MPI's standard ABI, libmpi_abi.so; CPU memory
    Mpi = nn_cuda::NNCUDA_TRANSPORT_MPI,
    /// GPUs: libnccl.so.2
    Nccl = nn_cuda::NNCUDA_TRANSPORT_NCCL,
    /// NCCL on a GPU where RANK and WORLD_SIZE are set; MPI where its launcher began the process; else a rank alone
    Auto = nn_cuda::NNCUDA_TRANSPORT_AUTO,
}

impl Transport {
    /// The value of a number in the contract; `None` for one that is none.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        match code {
            nn_cuda::NNCUDA_TRANSPORT_SELF => Some(Self::Alone),
            nn_cuda::NNCUDA_TRANSPORT_THREADS => Some(Self::Threads),
            nn_cuda::NNCUDA_TRANSPORT_MPI => Some(Self::Mpi),
            nn_cuda::NNCUDA_TRANSPORT_NCCL => Some(Self::Nccl),
            nn_cuda::NNCUDA_TRANSPORT_AUTO => Some(Self::Auto),
            _ => None,
        }
    }
}
