//! What the generated kernel functions are made of: tensors with their shapes as the header counts them, and the checks
//! that make a call safe.

use std::ffi::c_void;
use std::ptr;

use nn_cuda::{Functions, nncuda_ctx};

use crate::context::Turn;
use crate::{Context, DType, Error, Result, Tensor};

/// A call of a kernel on the context of its first tensor, whose turn it has from the checks to the end.
pub(crate) struct Call<'t> {
    function: &'static str,
    turn: Turn<'t>,
}

impl<'t> Call<'t> {
    #[inline]
    pub(crate) fn new(function: &'static str, first: &'t Tensor) -> Self {
        Self::on(function, first.context())
    }

    /// A call on a context, whose tensors must be of it.
    #[inline]
    pub(crate) fn on(function: &'static str, context: &'t Context) -> Self {
        Self { function, turn: context.turn() }
    }

    /// A tensor that must be dense.
    #[inline(always)]
    pub(crate) fn dense<const N: usize>(
        &self,
        name: &'static str,
        shape: &'static str,
        tensor: &'t Tensor,
    ) -> Result<Operand<'t, N>> {
        if !tensor.layout().is_dense() {
            return Err(self.not_dense(name, tensor));
        }
        self.strided(name, shape, tensor)
    }

    /// A tensor whose rows may lie further apart than they are long.
    #[inline(always)]
    pub(crate) fn strided<const N: usize>(
        &self,
        name: &'static str,
        shape: &'static str,
        tensor: &'t Tensor,
    ) -> Result<Operand<'t, N>> {
        if !tensor.context().is(self.turn.context()) {
            return Err(self.foreign(name));
        }
        if tensor.allocation().in_flight() {
            return Err(self.in_flight(name));
        }
        let Some(dims) = fold(tensor) else { return Err(self.rank(name, shape, tensor)) };
        Ok(Operand { function: self.function, name, shape, tensor, dims })
    }

    /// Refuses tensors of different shapes where the header gives them one shape.
    #[inline]
    pub(crate) fn same(&self, tensors: &[Option<Named<'_>>]) -> Result<()> {
        let mut present = tensors.iter().flatten();
        let Some(first) = present.next() else { return Ok(()) };
        match present.find(|each| each.shape != first.shape) {
            None => Ok(()),
            Some(each) => Err(self.shapes_differ(first, each)),
        }
    }

    /// Refuses tensors that fold different sizes into a dimension that all of them have.
    #[inline]
    pub(crate) fn folds(&self, dim: &str, tensors: &[Option<Named<'_>>]) -> Result<()> {
        let mut folding = tensors.iter().flatten().filter(|each| each.folded.len() > 1);
        let Some(first) = folding.next() else { return Ok(()) };
        match folding.find(|each| each.folded != first.folded) {
            None => Ok(()),
            Some(each) => Err(self.folds_differ(dim, first, each)),
        }
    }

    /// The common row stride of tensors. One of at most one row has none of its own; if none has, it is the longest row.
    #[inline]
    pub(crate) fn stride(&self, rows: &[Rows]) -> Result<usize> {
        let mut known: Option<&Rows> = None;
        let mut longest = 0;
        for own in rows {
            longest = longest.max(own.len);
            if own.count <= 1 {
                continue;
            }
            match known {
                Some(other) if other.stride != own.stride => return Err(self.strides_differ(other, own)),
                _ => known = Some(own),
            }
        }
        Ok(known.map_or(longest, |own| own.stride))
    }

    #[inline]
    pub(crate) fn functions(&self) -> &'static Functions {
        self.turn.functions()
    }

    #[inline]
    pub(crate) fn handle(&self) -> *mut nncuda_ctx {
        self.turn.handle()
    }

    /// Turns the status of the call into a result, and has a capture in progress keep the memory of the tensors.
    #[inline]
    pub(crate) fn finish(&self, code: i32, tensors: &[Option<&Tensor>]) -> Result<()> {
        self.turn.check(self.function, code)?;
        self.turn.keep(tensors);
        Ok(())
    }

    #[cold]
    fn not_dense(&self, name: &str, tensor: &Tensor) -> Error {
        let (len, stride) = (tensor.layout().row_len(), tensor.layout().row_stride());
        let message = format!(
            "{name} must be dense, but its rows of {len} elements lie {stride} apart; contiguous() makes a dense copy"
        );
        Error::shape(kernel(self.function), message)
    }

    #[cold]
    fn foreign(&self, name: &str) -> Error {
        Error::shape(kernel(self.function), format!("{name} is of another context than the first tensor"))
    }

    #[cold]
    fn in_flight(&self, name: &str) -> Error {
        let message = format!("a stream is copying {name}: it can be used when the scope of the copy has ended");
        Error::shape(kernel(self.function), message)
    }

    #[cold]
    fn rank(&self, name: &str, shape: &str, tensor: &Tensor) -> Error {
        Error::shape(kernel(self.function), format!("{name} has shape {:?}; {shape} was expected", tensor.shape()))
    }

    #[cold]
    fn shapes_differ(&self, first: &Named<'_>, second: &Named<'_>) -> Error {
        let message = format!(
            "{} has shape {:?}, but {} has shape {:?}; both must have the same shape",
            second.name, second.shape, first.name, first.shape
        );
        Error::shape(kernel(self.function), message)
    }

    #[cold]
    fn folds_differ(&self, dim: &str, first: &Named<'_>, second: &Named<'_>) -> Error {
        let message = format!(
            "{} folds {:?} into {dim}, but {} folds {:?}; both must be the same, or one of them flat",
            second.name, second.folded, first.name, first.folded
        );
        Error::shape(kernel(self.function), message)
    }

    #[cold]
    fn strides_differ(&self, first: &Rows, second: &Rows) -> Error {
        let message = format!(
            "the rows of {} lie {} elements apart, but those of {} {}; both must be the same",
            second.name, second.stride, first.name, first.stride
        );
        Error::shape(kernel(self.function), message)
    }
}

/// The kernel of a function: "gemm" of "cuda_gemm".
fn kernel(function: &'static str) -> &'static str {
    function.strip_prefix("cuda_").unwrap_or(function)
}

/// The shape of a tensor with as many dimensions as the header's: one takes everything flattened, and more than those are
/// folded into the first. `None` when there are too few, or too many of a tensor that is not dense.
#[inline]
fn fold<const N: usize>(tensor: &Tensor) -> Option<[usize; N]> {
    let shape = tensor.shape();
    let mut dims = [1; N];
    if N == 1 {
        dims[0] = tensor.len();
        return Some(dims);
    }
    let extra = shape.len().checked_sub(N)?;
    if extra == 0 {
        dims.copy_from_slice(shape);
    } else if tensor.layout().is_dense() {
        dims[0] = shape[..=extra].iter().product();
        dims[1..].copy_from_slice(&shape[extra + 1..]);
    } else {
        return None;
    }
    Some(dims)
}

/// The rows of a tensor, as far as strides are concerned.
pub(crate) struct Rows {
    name: &'static str,
    count: usize,
    len: usize,
    stride: usize,
}

/// The shape of a tensor, as far as it must agree with those of others.
pub(crate) struct Named<'t> {
    name: &'static str,
    shape: &'t [usize],
    /// What is folded into the first dimension.
    folded: &'t [usize],
}

/// The sizes of a call, for messages: each one's name and what told it, and its value.
#[derive(Clone, Copy)]
pub(crate) struct Sizes<'a> {
    pub(crate) names: &'a [(&'static str, &'static str)],
    pub(crate) values: &'a [usize],
}

/// A tensor in a call, with its shape as the header counts it.
pub(crate) struct Operand<'t, const N: usize> {
    function: &'static str,
    name: &'static str,
    shape: &'static str,
    pub(crate) tensor: &'t Tensor,
    pub(crate) dims: [usize; N],
}

impl<'t, const N: usize> Operand<'t, N> {
    /// Requires a dtype that the header fixes.
    #[inline]
    pub(crate) fn of(self, dtype: DType) -> Result<Self> {
        if self.tensor.dtype() == dtype { Ok(self) } else { Err(self.wrong_dtype(dtype, "it must be")) }
    }

    /// Requires the dtype that another tensor has told.
    #[inline]
    pub(crate) fn same(&self, dtype: DType, other: &'static str) -> Result<()> {
        if self.tensor.dtype() == dtype { Ok(()) } else { Err(self.wrong_dtype(dtype, other)) }
    }

    /// With the last two dimensions in the header's order, where a flag says that they are stored the other way round.
    #[inline]
    pub(crate) fn swapped(mut self, swapped: bool) -> Result<Self> {
        if swapped {
            // What was folded into the first dimension belongs to the one that is swapped.
            if N == 2 && self.tensor.shape().len() > N {
                return Err(self.wrong_rank());
            }
            self.dims.swap(N - 2, N - 1);
        }
        Ok(self)
    }

    #[inline]
    pub(crate) fn dtype(&self) -> DType {
        self.tensor.dtype()
    }

    #[inline]
    pub(crate) fn pointer(&self) -> *mut c_void {
        self.tensor.pointer()
    }

    /// Its rows as they lie in memory.
    #[inline]
    pub(crate) fn rows(&self) -> Rows {
        let (shape, layout) = (self.tensor.shape(), self.tensor.layout());
        let (count, len, stride) = if shape.len() == N {
            (shape[0], layout.row_len(), layout.row_stride())
        } else {
            // Of folded dimensions, which are dense, the last one counts the rows.
            let (outer, inner) = shape.split_at(shape.len() + 1 - N);
            let len = inner.iter().product();
            (outer.iter().product(), len, len)
        };
        let count = if layout.is_empty() { 0 } else { count };
        Rows { name: self.name, count, len, stride }
    }

    /// Its shape as it is, beside what is folded into the first dimension.
    #[inline]
    pub(crate) fn named(&self) -> Named<'t> {
        let shape = self.tensor.shape();
        Named { name: self.name, shape, folded: &shape[..(shape.len() + 1).saturating_sub(N)] }
    }

    /// Refuses sizes folded into a dimension that is not the first one of another tensor.
    #[inline]
    pub(crate) fn unfolded(&self, dim: &str, other: &str) -> Result<()> {
        if self.tensor.shape().len() <= N { Ok(()) } else { Err(self.folds_inner(dim, other)) }
    }

    /// Requires what is folded into a product of as many sizes. Where the product is nothing, no factor matters.
    #[inline]
    pub(crate) fn expect_factors(&self, factors: &[usize], sizes: Sizes<'_>) -> Result<()> {
        let folded = self.named().folded;
        let fits = folded.len() != factors.len() || folded == factors || self.tensor.is_empty();
        if fits { Ok(()) } else { Err(self.unexpected(sizes)) }
    }

    /// Solves a size from the dimension `at`, which is `known * size / divisor + offset`.
    #[inline]
    pub(crate) fn solve(&self, at: usize, size: &str, known: usize, divisor: usize, offset: usize) -> Result<usize> {
        let extent = self.dims[at];
        let scaled = extent.checked_sub(offset).and_then(|extent| extent.checked_mul(divisor));
        match scaled {
            // Nothing times anything is nothing: such a call does nothing, whatever the other factor is.
            Some(0) if known == 0 => Ok(1),
            Some(scaled) if known != 0 && scaled % known == 0 => Ok(scaled / known),
            _ => Err(self.unsolvable(at, size, known)),
        }
    }

    /// Requires a shape.
    #[inline]
    pub(crate) fn expect(&self, dims: [usize; N], sizes: Sizes<'_>) -> Result<()> {
        if self.dims == dims { Ok(()) } else { Err(self.unexpected(sizes)) }
    }

    #[cold]
    fn wrong_dtype(&self, dtype: DType, other: &str) -> Error {
        let rule = if other == "it must be" { format!("{other} {dtype}") } else { format!("{other} is {dtype}") };
        Error::shape(kernel(self.function), format!("{} is {}; {rule}", self.name, self.tensor.dtype()))
    }

    #[cold]
    fn wrong_rank(&self) -> Error {
        let message = format!("{} has shape {:?}; {} was expected", self.name, self.tensor.shape(), self.shape);
        Error::shape(kernel(self.function), message)
    }

    #[cold]
    fn folds_inner(&self, dim: &str, other: &str) -> Error {
        let message = format!(
            "{} has shape {:?}; {} was expected, where {dim} cannot be folded, since {other} has it as an inner dimension",
            self.name,
            self.tensor.shape(),
            self.shape
        );
        Error::shape(kernel(self.function), message)
    }

    #[cold]
    fn unsolvable(&self, at: usize, size: &str, known: usize) -> Error {
        let message = format!(
            "{} has shape {:?}; {} was expected, but no {size} gives the {} entries of dimension {at}, with {known} for \
             the rest of it",
            self.name,
            self.tensor.shape(),
            self.shape,
            self.dims[at]
        );
        Error::shape(kernel(self.function), message)
    }

    #[cold]
    fn unexpected(&self, sizes: Sizes<'_>) -> Error {
        let named = sizes.names.iter().zip(sizes.values);
        let values: Vec<_> = named
            .filter(|((name, _), _)| {
                self.shape.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == *name)
            })
            .map(|((name, origin), value)| format!("{name} = {value} ({origin})"))
            .collect();
        let expected = if values.is_empty() {
            "one element".to_owned()
        } else {
            format!("{} with {}", self.shape, values.join(", "))
        };
        let message = format!("{} has shape {:?}; {expected} was expected", self.name, self.tensor.shape());
        Error::shape(kernel(self.function), message)
    }
}

/// The pointer of a tensor that may be absent.
#[inline]
pub(crate) fn pointer<const N: usize>(operand: &Option<Operand<'_, N>>) -> *mut c_void {
    operand.as_ref().map_or(ptr::null_mut(), Operand::pointer)
}

/// The shape of an operand that may be absent.
#[inline]
pub(crate) fn named<'t, const N: usize>(operand: &Option<Operand<'t, N>>) -> Option<Named<'t>> {
    operand.as_ref().map(Operand::named)
}

/// The tensor of an operand that may be absent.
#[inline]
pub(crate) fn tensor<'t, const N: usize>(operand: &Option<Operand<'t, N>>) -> Option<&'t Tensor> {
    operand.as_ref().map(|operand| operand.tensor)
}

/// A product of sizes. What does not fit is not the dimension of any tensor, so any other such number will do.
#[inline]
pub(crate) fn times(factors: &[usize]) -> usize {
    factors.iter().fold(1, |product, factor| product.saturating_mul(*factor))
}

/// A size and some more.
#[inline]
pub(crate) fn plus(size: usize, more: usize) -> usize {
    size.saturating_add(more)
}
