//! Devices and the CPU engine's instruction sets, by name.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// A device to make a context of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// The first GPU if there is one, else the CPU.
    Auto,
    /// The CPU engine.
    #[default]
    Cpu,
    /// A GPU by its index.
    Cuda(u32),
}

impl Device {
    /// Its kind and index in the contract; those of the CPU for what is not chosen yet.
    pub(crate) fn numbers(self) -> (i32, i32) {
        match self {
            Self::Cuda(index) => (nn_cuda::NNCUDA_DEVICE_CUDA, i32::try_from(index).unwrap_or(i32::MAX)),
            Self::Cpu | Self::Auto => (nn_cuda::NNCUDA_DEVICE_CPU, 0),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Reads "auto", "cpu", "cuda" or "cuda:1".
    fn from_str(text: &str) -> Result<Self> {
        let index =
            |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
        match text.split_once(':') {
            None if text == "auto" => Some(Self::Auto),
            None if text == "cpu" => Some(Self::Cpu),
            None if text == "cuda" => Some(Self::Cuda(0)),
            Some(("cuda", digits)) => index(digits).map(Self::Cuda),
            _ => None,
        }
        .ok_or_else(|| Error::Value(format!("device is '{text}'; it must be 'auto', 'cpu', 'cuda' or 'cuda:INDEX'")))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(0) => f.write_str("cuda"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// Instruction sets of the CPU engine, from the plainest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum InstructionSet {
    /// What every processor of the architecture has.
    Baseline = nn_cuda::NNCUDA_ISA_BASELINE,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2 = nn_cuda::NNCUDA_ISA_AVX2,
    /// AVX-512 F, BW, DQ, VL.
    Avx512 = nn_cuda::NNCUDA_ISA_AVX512,
    /// The above and `AVX512_BF16`.
    Avx512Bf16 = nn_cuda::NNCUDA_ISA_AVX512BF16,
    /// The above and AMX tiles of bf16.
    Amx = nn_cuda::NNCUDA_ISA_AMX,
    /// Every `AArch64` processor; the bits of `Avx2`.
    Neon = nn_cuda::NNCUDA_ISA_NEON,
    /// The above and dot products of bytes.
    DotProd = nn_cuda::NNCUDA_ISA_DOTPROD,
    /// The above and matrix products of bytes.
    I8mm = nn_cuda::NNCUDA_ISA_I8MM,
}

impl InstructionSet {
    /// All of them, from the plainest to the widest: those of x86-64, then those of `AArch64`.
    pub const ALL: [Self; 8] =
        [Self::Baseline, Self::Avx2, Self::Avx512, Self::Avx512Bf16, Self::Amx, Self::Neon, Self::DotProd, Self::I8mm];

    /// The name in configurations and messages: "avx2".
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512bf16",
            Self::Amx => "amx",
            Self::Neon => "neon",
            Self::DotProd => "dotprod",
            Self::I8mm => "i8mm",
        }
    }
}

impl FromStr for InstructionSet {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|isa| isa.name() == name).ok_or_else(|| {
            Error::Value(format!(
                "isa is '{name}'; it must be one of baseline, avx2, avx512, avx512bf16, amx, neon, dotprod, i8mm"
            ))
        })
    }
}
