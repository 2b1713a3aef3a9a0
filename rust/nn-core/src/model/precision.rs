//! What a model computes in.

use std::fmt;
use std::str::FromStr;

use nn_ffi::DType;

use crate::error::{Error, Result};
use crate::format::Value;
use crate::format::value::quoted;
use crate::options::{Kind, OptionType};

/// What a model computes in: the dtype of its weights and activations, and what its experts multiply. What is trained and
/// saved is f32 in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// IEEE binary32.
    #[default]
    F32,
    /// bfloat16.
    BF16,
    /// IEEE binary16; in training its losses are scaled.
    F16,
    /// bfloat16, but the factors of experts' products are rounded to 8 bits.
    FP8,
}

impl Precision {
    /// The names of all.
    pub const NAMES: [&str; 4] = ["f32", "bf16", "f16", "fp8"];

    /// Its name in options.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The dtype of weights and activations.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::BF16 | Self::FP8 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found =
            [Self::F32, Self::BF16, Self::F16, Self::FP8].into_iter().find(|precision| precision.name() == name);
        let wrong =
            || Error::value(format!("precision is {}; it must be one of {}", quoted(name), Self::NAMES.join(", ")));
        found.ok_or_else(wrong)
    }
}

impl OptionType for Precision {
    const KIND: Kind = Kind::Choice(&Self::NAMES);
    fn read(value: &Value) -> Option<Self> {
        value.as_text()?.parse().ok()
    }
    fn write(&self) -> Value {
        self.name().into()
    }
}
