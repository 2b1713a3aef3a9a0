//! The kernels as data: what each takes, and how it is called when only its name is known.
//!
//! The golden tests run on it, so that a new kernel or fixture needs no new code. Programs call the functions in
//! [`kernels`](crate::kernels).

use crate::{DType, Error, Result, Tensor};

pub use crate::generated::catalogue::KERNELS;

/// What kind of argument a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pointer to a tensor's elements.
    Tensor {
        /// Their dtype: a name such as "f32", or that of the parameter that says it.
        dtype: &'static str,
        /// Their shape over the sizes, as bindings.h has it: `[rows:ld, dim]`.
        shape: &'static str,
        /// The parameter that is the stride of its rows; empty when it is dense.
        stride: &'static str,
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
        dtype: &'static str,
        shape: &'static str,
        stride: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Tensor { dtype, shape, stride } }
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
pub enum Argument<'a> {
    /// A tensor, or none where there may be none.
    Tensor(Option<&'a Tensor>),
    /// A size, flag, enum, option or dtype code.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
}

impl<'a> Argument<'a> {
    pub(crate) fn tensor(self) -> Result<&'a Tensor> {
        self.optional()?.ok_or_else(|| self.wrong("tensor"))
    }

    pub(crate) fn optional(self) -> Result<Option<&'a Tensor>> {
        if let Self::Tensor(tensor) = self { Ok(tensor) } else { Err(self.wrong("tensor")) }
    }

    pub(crate) fn int64(self) -> Result<i64> {
        if let Self::Integer(number) = self { Ok(number) } else { Err(self.wrong("whole number")) }
    }

    pub(crate) fn int32(self) -> Result<i32> {
        i32::try_from(self.int64()?).map_err(|_| self.wrong("number of 32 bits"))
    }

    pub(crate) fn size(self) -> Result<usize> {
        usize::try_from(self.int64()?).map_err(|_| self.wrong("size"))
    }

    pub(crate) fn flag(self) -> Result<bool> {
        Ok(self.int64()? != 0)
    }

    pub(crate) fn choice<T>(self, of: impl FnOnce(i32) -> Option<T>) -> Result<T> {
        of(self.int32()?).ok_or_else(|| self.wrong("value of the option"))
    }

    pub(crate) fn dtype(self) -> Result<DType> {
        self.choice(DType::of_code)
    }

    pub(crate) fn double(self) -> Result<f64> {
        if let Self::Float(number) = self { Ok(number) } else { Err(self.wrong("number")) }
    }

    pub(crate) fn float(self) -> Result<f32> {
        Ok(self.double()? as f32)
    }

    fn wrong(self, wanted: &str) -> Error {
        Error::Value(format!("{self:?} was given where a {wanted} belongs"))
    }
}

/// A kernel: its name, and what it takes.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The name, without `cuda_`.
    pub name: &'static str,
    /// What it takes after the context.
    pub parameters: &'static [Parameter],
    pub(crate) call: fn(&[Argument<'_>]) -> Result<()>,
}

impl Kernel {
    /// The kernel of a name, without `cuda_`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        KERNELS.iter().find(|kernel| kernel.name == name)
    }

    /// Calls its function in [`kernels`](crate::kernels) with an argument a parameter. Sizes, strides and dtypes that the
    /// tensors tell do not matter.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when the arguments are not as many or of other kinds than the parameters, and what the function
    /// may end with.
    pub fn call(&self, arguments: &[Argument<'_>]) -> Result<()> {
        if arguments.len() != self.parameters.len() {
            let wanted: Vec<_> = self.parameters.iter().map(|parameter| parameter.name).collect();
            return Err(Error::Value(format!("{} takes {}, not {arguments:?}", self.name, wanted.join(", "))));
        }
        (self.call)(arguments)
    }
}
