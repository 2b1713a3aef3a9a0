//! What gradients are rounded to between replicas.

use std::fmt;

use nn_ffi::DType;

use crate::format::Value;
use crate::options::{Kind, OptionType};

/// What the gradient of a replica, and each sum of them but the whole, is rounded to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReduceDtype {
    /// f32: nothing is rounded.
    #[default]
    F32,
    /// bfloat16.
    BF16,
    /// IEEE binary16, for gradients that are scaled.
    F16,
}

const ALL: [ReduceDtype; 3] = [ReduceDtype::F32, ReduceDtype::BF16, ReduceDtype::F16];
const NAMES: [&str; 3] = ["f32", "bf16", "f16"];

impl ReduceDtype {
    /// The dtype of what ranks send.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::BF16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}

impl fmt::Display for ReduceDtype {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(NAMES[*self as usize])
    }
}

impl OptionType for ReduceDtype {
    const KIND: Kind = Kind::Choice(&NAMES);
    fn read(value: &Value) -> Option<Self> {
        let name = value.as_text()?;
        NAMES.iter().position(|known| *known == name).map(|at| ALL[at])
    }
    fn write(&self) -> Value {
        NAMES[*self as usize].into()
    }
}
