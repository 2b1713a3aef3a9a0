//! The kernels as data: what each takes, and how it is called when only its name is known.
//!
//! The golden tests run on it, so that a new kernel or fixture needs no new code. Programs call the functions in
//! [`kernels`](crate::kernels), which check what they are given.

use std::ffi::c_void;

use nn_cuda::{Functions, nncuda_ctx};

use crate::{Context, Error, Result};

pub use crate::generated::catalogue::KERNELS;

/// What a kernel does with the memory behind a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Reads it.
    In,
    /// Overwrites it.
    Out,
    /// Reads and overwrites it.
    InOut,
    /// Adds to it.
    Accumulated,
}

impl Direction {
    /// Whether what was there before matters.
    #[must_use]
    pub fn reads(self) -> bool {
        self != Self::Out
    }

    /// Whether it is written.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Self::In
    }
}

/// What kind of argument a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pointer to a tensor's elements.
    Tensor {
        /// What happens to them.
        direction: Direction,
        /// Their dtype: a name such as "f32", or that of the parameter that says it.
        dtype: &'static str,
        /// The parameter that is the stride of its rows; empty when it is dense.
        stride: &'static str,
        /// The inputs whose pointer it may be.
        alias: &'static [&'static str],
    },
    /// The code of a dtype.
    DType,
    /// A size, flag, enum or any other whole number.
    Integer,
    /// A floating-point number.
    Float,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name in bindings.h.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
}

impl Parameter {
    pub(crate) const fn tensor(
        name: &'static str,
        direction: Direction,
        dtype: &'static str,
        stride: &'static str,
        alias: &'static [&'static str],
    ) -> Self {
        Self { name, kind: Kind::Tensor { direction, dtype, stride, alias } }
    }

    pub(crate) const fn dtype(name: &'static str) -> Self {
        Self { name, kind: Kind::DType }
    }

    pub(crate) const fn integer(name: &'static str) -> Self {
        Self { name, kind: Kind::Integer }
    }

    pub(crate) const fn float(name: &'static str) -> Self {
        Self { name, kind: Kind::Float }
    }
}

/// An argument of a call by name.
#[derive(Clone, Copy, Debug)]
pub enum Slot {
    /// An address in the context's memory, or null.
    Pointer(*mut c_void),
    /// A size, flag, enum or dtype code.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
}

impl Slot {
    pub(crate) fn pointer(self) -> *mut c_void {
        match self {
            Self::Pointer(pointer) => pointer,
            Self::Integer(_) | Self::Float(_) => std::ptr::null_mut(),
        }
    }

    pub(crate) fn int64(self) -> i64 {
        match self {
            Self::Integer(number) => number,
            Self::Pointer(_) | Self::Float(_) => 0,
        }
    }

    /// What does not fit becomes a number that no parameter allows.
    pub(crate) fn int32(self) -> i32 {
        i32::try_from(self.int64()).unwrap_or(i32::MIN)
    }

    pub(crate) fn double(self) -> f64 {
        match self {
            Self::Float(number) => number,
            Self::Pointer(_) | Self::Integer(_) => 0.0,
        }
    }

    pub(crate) fn float(self) -> f32 {
        self.double() as f32
    }

    fn fits(self, kind: Kind) -> bool {
        matches!(
            (self, kind),
            (Self::Pointer(_), Kind::Tensor { .. })
                | (Self::Integer(_), Kind::DType | Kind::Integer)
                | (Self::Float(_), Kind::Float)
        )
    }
}

type RawCall = unsafe fn(&Functions, *mut nncuda_ctx, &[Slot]) -> i32;

/// A kernel: its name, and what it takes.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The name, without `cuda_`.
    pub name: &'static str,
    /// The section of bindings.h that it stands in.
    pub section: &'static str,
    /// What it takes after the context.
    pub parameters: &'static [Parameter],
    pub(crate) call: RawCall,
}

impl Kernel {
    /// The kernel of a name, without `cuda_`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        KERNELS.iter().find(|kernel| kernel.name == name)
    }

    /// Calls it with an argument a parameter, which nobody has checked.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when the arguments are not as many or of other kinds than the parameters, [`Error::Call`] when
    /// the library refuses them.
    ///
    /// # Safety
    ///
    /// Each pointer must be null or that of memory of this context which holds the shape that bindings.h gives it, for
    /// the sizes and dtypes among the arguments.
    pub unsafe fn call(&self, context: &Context, arguments: &[Slot]) -> Result<()> {
        let fit = arguments.len() == self.parameters.len()
            && arguments.iter().zip(self.parameters).all(|(slot, parameter)| slot.fits(parameter.kind));
        if !fit {
            let wanted: Vec<_> = self.parameters.iter().map(|parameter| parameter.name).collect();
            return Err(Error::Value(format!("{} takes {}, not {arguments:?}", self.name, wanted.join(", "))));
        }
        // SAFETY: the context lives, and the caller vouches for the pointers.
        let code = unsafe { (self.call)(context.library(), context.handle(), arguments) };
        context.check(self.name, code)
    }
}
