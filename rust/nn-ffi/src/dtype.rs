//! Element types, and the Rust types that hold their values on the host.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// The type of a tensor's elements. Kernels compute with the first five; `I64` and `U8` only hold seeds and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// IEEE binary32.
    #[default]
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
    /// Signed 32-bit integers.
    I32,
    /// Signed 8-bit integers.
    I8,
    /// Signed 64-bit integers.
    I64,
    /// Bytes.
    U8,
}

impl DType {
    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::I8 | Self::U8 => 1,
        }
    }

    /// The name in configurations and messages: "f32".
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I32 => "i32",
            Self::I8 => "i8",
            Self::I64 => "i64",
            Self::U8 => "u8",
        }
    }

    /// The code in the contract; -1, which every kernel refuses, for the types that none computes with.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::F32 => nn_cuda::NNCUDA_F32,
            Self::F16 => nn_cuda::NNCUDA_F16,
            Self::BF16 => nn_cuda::NNCUDA_BF16,
            Self::I32 => nn_cuda::NNCUDA_I32,
            Self::I8 => nn_cuda::NNCUDA_I8,
            Self::I64 | Self::U8 => -1,
        }
    }

    /// That of a code in the contract.
    pub(crate) fn of_code(code: i32) -> Option<Self> {
        [Self::F32, Self::F16, Self::BF16, Self::I32, Self::I8].into_iter().find(|dtype| dtype.code() == code)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        [Self::F32, Self::F16, Self::BF16, Self::I32, Self::I8, Self::I64, Self::U8]
            .into_iter()
            .find(|dtype| dtype.name() == name)
            .ok_or_else(|| {
                Error::Value(format!("dtype is '{name}'; it must be one of f32, f16, bf16, i32, i8, i64, u8"))
            })
    }
}

/// A 16-bit IEEE number, as its bits. Arithmetic on it is the device's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// A bfloat16 number, as its bits: the upper half of an f32. Arithmetic on it is the device's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl From<F16> for f32 {
    /// The same number, exactly.
    fn from(half: F16) -> Self {
        let bits = u32::from(half.0);
        let (sign, exponent, fraction) = ((bits & 0x8000) << 16, (bits >> 10) & 0x1f, bits & 0x3ff);
        let magnitude = match exponent {
            // A subnormal is a multiple of 2^-24, which a product with a power of two gives without rounding.
            0 => (fraction as Self * Self::from_bits((127 - 24) << 23)).to_bits(),
            0x1f => 0x7f80_0000 | (fraction << 13),
            _ => ((exponent + 127 - 15) << 23) | (fraction << 13),
        };
        Self::from_bits(sign | magnitude)
    }
}

impl From<Bf16> for f32 {
    /// The same number, exactly.
    fn from(number: Bf16) -> Self {
        Self::from_bits(u32::from(number.0) << 16)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that holds the elements of one dtype on the host.
///
/// # Safety
///
/// Every pattern of `DTYPE.size()` bytes must be a value of the type, which has no padding: bytes are copied into it.
pub unsafe trait Element: Copy + Default + fmt::Debug + Send + Sync + sealed::Sealed + 'static {
    /// The dtype whose elements it holds.
    const DTYPE: DType;
}

macro_rules! element {
    ($($kind:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $kind {}
        // SAFETY: a number, or bits of one: each pattern is a value, of as many bytes as an element of the dtype.
        unsafe impl Element for $kind {
            const DTYPE: DType = DType::$dtype;
        }
        const _: () = assert!(size_of::<$kind>() == DType::$dtype.size());
    )*};
}

element!(f32 => F32, F16 => F16, Bf16 => BF16, i32 => I32, i8 => I8, i64 => I64, u8 => U8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_widen_exactly() {
        let wide = |bits: u16| f32::from(F16(bits));
        assert_eq!([wide(0x3c00), wide(0xc000), wide(0x7bff)], [1.0, -2.0, 65504.0]);
        // 2^-24, and -1023 of them.
        let smallest = f32::from_bits((127 - 24) << 23);
        assert_eq!([wide(0x0001), wide(0x83ff)], [smallest, -1023.0 * smallest]);
        assert_eq!([wide(0x7c00), wide(0xfc00)], [f32::INFINITY, f32::NEG_INFINITY]);
        assert!(wide(0x7e01).is_nan() && wide(0x8000).is_sign_negative());
        assert_eq!(f32::from(Bf16(0x3fc0)), 1.5);
        assert!(f32::from(Bf16(0x7fc0)).is_nan());
    }
}
