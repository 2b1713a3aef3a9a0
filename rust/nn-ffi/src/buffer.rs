//! Typed memory: of the device, and of the host for copies at full speed.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;

use crate::context::Released;
use crate::handle::Handle;
use crate::{Context, Element, Result, Tensor};

/// Device memory for elements of a type: a [`Tensor`] of one dimension whose dtype the compiler knows.
#[derive(Clone)]
pub struct DeviceBuffer<T: Element> {
    tensor: Tensor,
    _element: PhantomData<T>,
}

impl Context {
    /// Zeros for `len` elements of a type.
    ///
    /// # Errors
    ///
    /// [`Status::OutOfMemory`](crate::Status::OutOfMemory) when the device has no more; the context stays usable.
    pub fn buffer<T: Element>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        Ok(DeviceBuffer { tensor: self.zeros(&[len], T::DTYPE)?, _element: PhantomData })
    }

    /// A copy of the host's values.
    ///
    /// # Errors
    ///
    /// As [`buffer`](Self::buffer).
    pub fn buffer_of<T: Element>(&self, values: &[T]) -> Result<DeviceBuffer<T>> {
        Ok(DeviceBuffer { tensor: self.tensor(values, &[values.len()])?, _element: PhantomData })
    }

    /// Zeros on the host, in memory that the device copies from and to at full speed (page-locked on a GPU).
    ///
    /// # Errors
    ///
    /// [`Status::OutOfMemory`](crate::Status::OutOfMemory) when the host has no more.
    pub fn pinned<T: Element>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        let bytes = crate::Layout::dense(&[len], T::DTYPE)?.bytes();
        let turn = self.turn();
        turn.release_waiting();
        let mut pointer = ptr::null_mut();
        // SAFETY: the context lives and `pointer` may be written.
        let code = unsafe { (turn.functions().nncuda_malloc_host)(turn.handle(), bytes as i64, &raw mut pointer) };
        turn.check("nncuda_malloc_host", code)?;
        // SAFETY: the memory was just allocated with this many bytes; of none there is nothing to write.
        unsafe { ptr::write_bytes(pointer.cast::<u8>(), 0, bytes) };
        Ok(PinnedBuffer { context: self.clone(), memory: Handle::new(pointer.cast()), len })
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tensor.len()
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensor.is_empty()
    }

    /// The same memory as a tensor of one dimension, as kernels take it.
    #[must_use]
    pub fn as_tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The same memory as a tensor of a shape.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) when the shape has another number of elements.
    pub fn view(&self, shape: &[usize]) -> Result<Tensor> {
        self.tensor.view(shape)
    }

    /// Overwrites the elements with values of the host.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) when there are not as many.
    pub fn copy_from_slice(&self, values: &[T]) -> Result<()> {
        self.tensor.copy_from_slice(values)
    }

    /// Copies the elements to the host, after all work given to the context is done.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.tensor.to_vec()
    }
}

impl<T: Element> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({:?})", self.tensor)
    }
}

/// Host memory that the device copies from and to at full speed; a slice otherwise.
pub struct PinnedBuffer<T: Element> {
    context: Context,
    memory: Option<Handle<T>>,
    len: usize,
}

impl<T: Element> PinnedBuffer<T> {
    fn first(&self) -> *mut T {
        self.memory.map_or(NonNull::dangling().as_ptr(), Handle::as_ptr)
    }
}

impl<T: Element> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory is this buffer's alone, aligned for every element type, and holds `len` elements, which
        // were zeros at first; of no elements there is no memory, and any pointer will do. Elements are numbers, which
        // any thread may read.
        unsafe { slice::from_raw_parts(self.first(), self.len) }
    }
}

impl<T: Element> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.first(), self.len) }
    }
}

impl<T: Element> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory {
            self.context.release(Released::HostMemory(memory.cast()));
        }
    }
}

impl<T: Element> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer({} of {})", self.len, T::DTYPE)
    }
}
