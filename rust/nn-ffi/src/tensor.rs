//! Tensors: memory of a context with a shape and a dtype.
//!
//! # Why this is sound
//!
//! The elements of a tensor are device memory, not Rust memory: no reference into it is ever handed out, on the CPU engine
//! neither. Values cross by copies. So several tensors may look at the same memory (`view`, `narrow`, `clone`), and
//! kernels take inputs and outputs alike as `&Tensor`, without a rule of Rust about aliasing being touched; which
//! outputs may be which inputs is the kernels' contract, and the library checks it.
//!
//! Threads may share tensors, and so memory. A context makes its calls one at a time, so a thread that reads what another
//! one writes finds the values from before that call or from after it.
//!
//! What must hold for memory safety is that no call reads or writes outside of its tensors' memory. A tensor's layout
//! never describes more than the memory that it keeps alive; a kernel's function checks all shapes against each other
//! before it hands sizes to the library; indices that lie in memory are checked by the library, on every engine. Of a tensor
//! in parts (`zeros_parts`) the rest keeps its addresses to itself, so that touching it ends the program. A tensor over bytes
//! of the host (`tensor_over`) is of pages that cannot be written, so that a kernel that tries ends the program, too.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use crate::context::Turn;
use crate::handle::Handle;
use crate::memory::Allocation;
use crate::{Context, DType, Device, Element, Error, HostBytes, Layout, Result};

/// Memory of a context with a shape and a dtype.
///
/// Clones, views and narrowed tensors share memory, which is freed when the last of them is gone. Each keeps its context,
/// and may be used by any thread.
#[derive(Clone)]
pub struct Tensor {
    allocation: Arc<Allocation>,
    /// The first element; `None` when there is none.
    first: Option<Handle<c_void>>,
    layout: Layout,
}

impl Context {
    /// A tensor whose values are not set: what was in its memory before.
    ///
    /// # Errors
    ///
    /// [`Status::OutOfMemory`](crate::Status::OutOfMemory) when the device has no more; the context stays usable.
    pub fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let layout = Layout::dense(shape, dtype)?;
        let allocation = self.allocate(layout.bytes())?;
        Ok(Tensor { first: allocation.memory(), allocation, layout })
    }

    /// A tensor of zeros.
    ///
    /// # Errors
    ///
    /// As [`empty`](Self::empty).
    pub fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let tensor = self.empty(shape, dtype)?;
        tensor.zero()?;
        Ok(tensor)
    }

    /// A tensor of zeros of which only some elements are memory: those of the ranges, in ascending order. The others have
    /// addresses alone, and on the CPU a program that touches them ends.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidValue`](crate::Status::InvalidValue) when a range begins before the one before it ends, or does not lie within the
    /// tensor, and as [`empty`](Self::empty).
    pub fn zeros_parts(&self, shape: &[usize], dtype: DType, ranges: &[Range<usize>]) -> Result<Tensor> {
        let layout = Layout::dense(shape, dtype)?;
        let bytes = |element: usize| i64::try_from(element.saturating_mul(dtype.size())).unwrap_or(i64::MAX);
        let ranges: Vec<_> = ranges.iter().map(|range| [bytes(range.start), bytes(range.end)]).collect();
        let allocation = self.allocate_parts(layout.bytes(), &ranges)?;
        Ok(Tensor { first: allocation.memory(), allocation, layout })
    }

    /// A tensor with values of the host, of which there must be as many as the shape has elements.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when there are not, and as [`empty`](Self::empty).
    pub fn tensor<T: Element>(&self, values: &[T], shape: &[usize]) -> Result<Tensor> {
        let layout = Layout::dense(shape, T::DTYPE)?;
        if layout.len() != values.len() {
            let message = format!("{} values cannot fill a tensor of shape {shape:?}", values.len());
            return Err(Error::shape("tensor", message));
        }
        let tensor = self.empty(shape, T::DTYPE)?;
        tensor.copy_from_slice(values)?;
        Ok(tensor)
    }
}

impl Context {
    /// A tensor over bytes of the host, in place: the elements as they lie in the memory of a little-endian machine. It can
    /// be read alone, and keeps the bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] on a GPU, when there are not as many bytes as the shape takes, or when they do not begin at an
    /// address that suits the dtype.
    pub fn tensor_over(&self, bytes: &HostBytes, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let layout = Layout::dense(shape, dtype)?;
        let wrong = |message: String| Err(Error::shape("tensor_over", message));
        if self.device() != Device::Cpu {
            return wrong(format!("device {} cannot read memory of the host; copy it", self.device()));
        }
        if bytes.len() != layout.bytes() {
            return wrong(format!("{} bytes are not the {} of a tensor of {layout:?}", bytes.len(), layout.bytes()));
        }
        if !bytes.as_ptr().addr().is_multiple_of(dtype.size()) {
            return wrong(format!("the bytes do not begin at a multiple of {}, the size of {dtype}", dtype.size()));
        }
        let allocation = Arc::new(Allocation::over(self, bytes));
        Ok(Tensor { first: allocation.memory(), allocation, layout })
    }
}

impl Tensor {
    // What it is

    /// The context whose memory it is.
    #[must_use]
    pub fn context(&self) -> &Context {
        self.allocation.context()
    }

    /// Shape, row stride and dtype.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The size of each dimension.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.layout.dtype()
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    /// Address of the first element on the device; null when there is none. For calls by name.
    #[must_use]
    pub fn pointer(&self) -> *mut c_void {
        self.first.map_or(ptr::null_mut(), Handle::as_ptr)
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    // Other tensors over the same memory

    /// The same elements in another shape, without a copy. Of a tensor with a row stride only the dimensions after the
    /// first may change.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when the number of elements differs or the stride is in the way.
    pub fn view(&self, shape: &[usize]) -> Result<Self> {
        Ok(Self { layout: self.layout.view(shape)?, ..self.clone() })
    }

    /// Elements `start .. start + len` of dimension 0 or 1, without a copy. In dimension 1 it gives rows that lie further
    /// apart than they are long.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for another dimension, or a range that is not inside the tensor.
    pub fn narrow(&self, dim: usize, start: usize, len: usize) -> Result<Self> {
        let (layout, offset) = self.layout.narrow(dim, start, len)?;
        // The address is only ever followed by the library, which wrapping arithmetic suits as well as any.
        let first = Handle::new(self.pointer().wrapping_byte_add(offset * self.dtype().size()));
        Ok(Self { allocation: Arc::clone(&self.allocation), first, layout })
    }

    /// The memory of each entry of the first dimension, u8 `[entries, bytes]`, without a copy.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when the tensor is not dense, or has no dimensions.
    pub fn as_bytes(&self) -> Result<Self> {
        let entries = self.shape().first().filter(|_| self.layout.is_dense());
        let Some(entries) = entries else {
            let message = format!("{self:?} has no bytes of entries: it must be dense, and have a first dimension");
            return Err(Error::shape("as_bytes", message));
        };
        let shape = [*entries, self.layout.row_len() * self.dtype().size()];
        Ok(Self { layout: Layout::dense(&shape, DType::U8)?, ..self.clone() })
    }

    /// Itself when it is dense, else a dense copy.
    ///
    /// # Errors
    ///
    /// As [`Context::empty`].
    pub fn contiguous(&self) -> Result<Self> {
        if self.layout.is_dense() {
            return Ok(self.clone());
        }
        let copy = self.context().empty(self.shape(), self.dtype())?;
        copy.copy_from(self)?;
        Ok(copy)
    }

    // Values

    /// Sets every value to zero.
    pub fn zero(&self) -> Result<()> {
        let turn = self.writing("zero")?;
        for (offset, bytes) in self.runs() {
            let target = self.pointer().wrapping_byte_add(offset);
            // SAFETY: context and memory live, and the bytes are this tensor's.
            let code = unsafe { (turn.functions().nncuda_memset)(turn.handle(), target, 0, bytes as i64) };
            turn.check("nncuda_memset", code)?;
        }
        turn.keep(&[Some(self)]);
        Ok(())
    }

    /// Overwrites the values with those of another tensor of the same shape, dtype and context, on the device.
    /// `kernels::cast` converts.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when shape, dtype or context differ.
    pub fn copy_from(&self, source: &Tensor) -> Result<()> {
        if !source.context().is(self.context()) {
            return Err(Error::shape("copy_from", "the tensors are of different contexts".to_owned()));
        }
        if source.shape() != self.shape() || source.dtype() != self.dtype() {
            let message = format!("{source:?} cannot be copied into {self:?}: shape and dtype must be the same");
            return Err(Error::shape("copy_from", message));
        }
        let turn = self.writing("copy_from")?;
        source.on_ground("copy_from")?;
        let whole = self.layout.is_dense() && source.layout.is_dense();
        let (rows, bytes) = if whole { (1, self.layout.bytes()) } else { (self.shape()[0], self.row_bytes()) };
        for row in 0..rows {
            let target = self.address(row * self.layout.row_stride());
            let from = source.address(row * source.layout.row_stride());
            copy(&turn, target, from, bytes, nn_cuda::NNCUDA_DEVICE_TO_DEVICE)?;
        }
        turn.keep(&[Some(self), Some(source)]);
        Ok(())
    }

    /// Overwrites the values with those of the host, in the order of the elements.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when the type is that of another dtype or there are not as many values as elements.
    pub fn copy_from_slice<T: Element>(&self, values: &[T]) -> Result<()> {
        self.matches::<T>("copy_from_slice", values.len())?;
        self.upload("copy_from_slice", values.as_ptr().cast())
    }

    /// Overwrites the values with bytes of the host: the elements as they lie in the memory of a little-endian machine.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when there are not as many bytes as the elements have.
    pub fn copy_from_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.matches_bytes("copy_from_bytes", bytes.len())?;
        self.upload("copy_from_bytes", bytes.as_ptr().cast())
    }

    /// Copies the values to the host, after all work given to the context is done.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when the type is that of another dtype or there is not room for exactly the elements.
    pub fn copy_to_slice<T: Element>(&self, values: &mut [T]) -> Result<()> {
        self.matches::<T>("copy_to_slice", values.len())?;
        self.download(values.as_mut_ptr().cast())
    }

    /// Copies the values to the host as bytes, after all work given to the context is done.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when there is not room for exactly the elements.
    pub fn copy_to_bytes(&self, bytes: &mut [u8]) -> Result<()> {
        self.matches_bytes("copy_to_bytes", bytes.len())?;
        self.download(bytes.as_mut_ptr().cast())
    }

    /// The values, after all work given to the context is done.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when the type is that of another dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.matches::<T>("to_vec", self.len())?;
        let mut values = vec![T::default(); self.len()];
        self.download(values.as_mut_ptr().cast())?;
        Ok(values)
    }

    /// The value of a tensor of one element, after all work given to the context is done.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when there are more or fewer elements, or the type is that of another dtype.
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.len() != 1 {
            let message = format!("this is for tensors of one element, not of shape {:?}", self.shape());
            return Err(Error::shape("item", message));
        }
        let mut value = [T::default()];
        self.copy_to_slice(&mut value)?;
        Ok(value[0])
    }

    // Behind the copies

    /// The context's turn, for work on this tensor.
    fn turn(&self, operation: &'static str) -> Result<Turn<'_>> {
        let turn = self.context().turn();
        self.on_ground(operation)?;
        Ok(turn)
    }

    /// The same for work that writes to it.
    fn writing(&self, operation: &'static str) -> Result<Turn<'_>> {
        self.writable(operation)?;
        self.turn(operation)
    }

    /// Requires memory that may be written.
    pub(crate) fn writable(&self, operation: &'static str) -> Result<()> {
        if !self.allocation.is_read_only() {
            return Ok(());
        }
        Err(Error::shape(operation, "the tensor looks at bytes of the host, which can be read alone".to_owned()))
    }

    /// Requires that no stream is copying the memory: a copy beside another would find half of it.
    fn on_ground(&self, operation: &'static str) -> Result<()> {
        if !self.allocation.in_flight() {
            return Ok(());
        }
        let message = "a stream is copying the tensor: it can be used when the scope of the copy has ended".to_owned();
        Err(Error::shape(operation, message))
    }

    pub(crate) fn matches<T: Element>(&self, operation: &'static str, len: usize) -> Result<()> {
        if T::DTYPE != self.dtype() {
            let message = format!("values of {} cannot be those of a tensor of {}", T::DTYPE, self.dtype());
            return Err(Error::shape(operation, message));
        }
        if len != self.len() {
            let message = format!("{len} values are not those of a tensor of shape {:?}", self.shape());
            return Err(Error::shape(operation, message));
        }
        Ok(())
    }

    fn matches_bytes(&self, operation: &'static str, bytes: usize) -> Result<()> {
        let wanted = self.len() * self.dtype().size();
        if bytes == wanted {
            return Ok(());
        }
        let message = format!("{bytes} bytes are not the {wanted} of a tensor of {:?}", self.layout);
        Err(Error::shape(operation, message))
    }

    fn row_bytes(&self) -> usize {
        self.layout.row_len() * self.dtype().size()
    }

    fn address(&self, element: usize) -> *mut c_void {
        self.pointer().wrapping_byte_add(element * self.dtype().size())
    }

    /// Offset and length in bytes of each dense run.
    fn runs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let dense = self.layout.is_dense();
        let rows = if self.is_empty() || dense { 1 } else { self.shape()[0] };
        let step = self.layout.row_stride() * self.dtype().size();
        let bytes = if dense { self.layout.bytes() } else { self.row_bytes() };
        (0..rows).map(move |row| (row * step, bytes))
    }

    /// `values` must be readable for as many bytes as the elements have.
    fn upload(&self, operation: &'static str, values: *const c_void) -> Result<()> {
        let (turn, mut from) = (self.writing(operation)?, values);
        for (offset, bytes) in self.runs() {
            let target = self.pointer().wrapping_byte_add(offset);
            copy(&turn, target, from, bytes, nn_cuda::NNCUDA_HOST_TO_DEVICE)?;
            from = from.wrapping_byte_add(bytes);
        }
        Ok(())
    }

    /// `values` must be writable for as many bytes as the elements have.
    fn download(&self, values: *mut c_void) -> Result<()> {
        let (turn, mut target) = (self.turn("copy to the host")?, values);
        for (offset, bytes) in self.runs() {
            let from = self.pointer().wrapping_byte_add(offset);
            copy(&turn, target, from, bytes, nn_cuda::NNCUDA_DEVICE_TO_HOST)?;
            target = target.wrapping_byte_add(bytes);
        }
        Ok(())
    }
}

fn copy(turn: &Turn<'_>, target: *mut c_void, source: *const c_void, bytes: usize, kind: i32) -> Result<()> {
    // SAFETY: the context lives; both sides were computed from tensors that live, or are slices of the caller's that hold
    // as many bytes, and the call is done with the host's side when it returns.
    let code = unsafe { (turn.functions().nncuda_memcpy)(turn.handle(), target, source, bytes as i64, kind) };
    turn.check("nncuda_memcpy", code)
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?}, {})", self.layout, self.context().device())
    }
}
