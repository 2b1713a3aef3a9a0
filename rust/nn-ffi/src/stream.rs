//! Streams and events: copies beside the kernels, which run on the context's own stream, and what orders the two.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use nn_cuda::{nncuda_event, nncuda_stream};

use crate::context::{Released, Turn};
use crate::handle::Handle;
use crate::memory::Allocation;
use crate::{Context, Element, Error, PinnedBuffer, Result, Tensor};

/// Carries copies beside the kernels.
pub struct Stream {
    context: Context,
    handle: Handle<nncuda_stream>,
}

/// A point in a stream's work.
pub struct Event {
    context: Context,
    handle: Handle<nncuda_event>,
}

impl Context {
    /// A new stream for copies.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] while a graph is captured, or when the device has no more of them.
    pub fn stream(&self) -> Result<Stream> {
        let turn = self.turn();
        turn.release_waiting();
        let mut handle = ptr::null_mut();
        // SAFETY: the context lives and `handle` may be written.
        let code = unsafe { (turn.functions().nncuda_stream_create)(turn.handle(), &raw mut handle) };
        let handle = made(&turn, "nncuda_stream_create", code, handle)?;
        Ok(Stream { context: self.clone(), handle })
    }

    /// A new event. Until it is recorded it counts as happened.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] while a graph is captured, or when the device has no more of them.
    pub fn event(&self) -> Result<Event> {
        let turn = self.turn();
        turn.release_waiting();
        let mut handle = ptr::null_mut();
        // SAFETY: the context lives and `handle` may be written.
        let code = unsafe { (turn.functions().nncuda_event_create)(turn.handle(), &raw mut handle) };
        let handle = made(&turn, "nncuda_event_create", code, handle)?;
        Ok(Event { context: self.clone(), handle })
    }

    /// Kernels and copies of the context's own stream wait for the event from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] while a graph is captured, or when the event is of another context.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.order(ptr::null_mut(), event)
    }

    fn order(&self, stream: *mut nncuda_stream, event: &Event) -> Result<()> {
        let turn = self.turn();
        // SAFETY: context, stream and event live; an event of another context is refused.
        let code = unsafe { (turn.functions().nncuda_stream_wait_event)(turn.handle(), stream, event.handle.as_ptr()) };
        turn.check("nncuda_stream_wait_event", code)
    }
}

/// What a function has made, which reported `code`.
fn made<T>(turn: &Turn<'_>, function: &'static str, code: i32, handle: *mut T) -> Result<Handle<T>> {
    turn.check(function, code)?;
    Handle::new(handle).ok_or_else(|| {
        let none = turn.check(function, nn_cuda::NNCUDA_ERROR_INTERNAL);
        none.expect_err("the status is no success")
    })
}

impl Stream {
    /// Waits until the stream has done all that was given to it.
    ///
    /// # Errors
    ///
    /// The first that the device met.
    pub fn synchronize(&self) -> Result<()> {
        let turn = self.context.turn();
        // SAFETY: context and stream live.
        let code = unsafe { (turn.functions().nncuda_stream_synchronize)(turn.handle(), self.handle.as_ptr()) };
        turn.check("nncuda_stream_synchronize", code)
    }

    /// What is given to the stream from now on waits for the event.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] while a graph is captured, or when the event is of another context.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.context.order(self.handle.as_ptr(), event)
    }

    /// Copies a dense tensor's values to the host without waiting.
    ///
    /// # Safety
    ///
    /// Until the stream has been waited for, nothing writes to the tensor, nobody looks at the buffer, and neither is freed.
    pub(crate) unsafe fn copy_to_pinned<T: Element>(
        &self,
        target: &mut PinnedBuffer<T>,
        source: &Tensor,
    ) -> Result<()> {
        source.matches::<T>("copy_to_pinned", target.len())?;
        let (turn, bytes) = (self.context.turn(), size_of_val(&target[..]) as i64);
        let (from, to) = (source.pointer(), target.as_mut_ptr().cast());
        let kind = nn_cuda::NNCUDA_DEVICE_TO_HOST;
        // SAFETY: context, stream and both sides live and hold as many bytes; the caller sees to the rest.
        let code = unsafe {
            (turn.functions().nncuda_memcpy_async)(turn.handle(), self.handle.as_ptr(), to, from, bytes, kind)
        };
        turn.check("nncuda_memcpy_async", code)
    }

    /// Runs `work`, which may give the stream copies between tensors and memory of the host; returns when both `work` and
    /// the copies are done. What `work` does in the meantime on the context runs beside the copies.
    ///
    /// The host's slices are borrowed until then, and the tensors may not be used: kernels refuse them. Each copy waits
    /// for the kernels that were called before it. So nothing is read while it is written, whatever `work` does.
    ///
    /// ```
    /// # use nn_ffi::{Context, DType, Device, kernels};
    /// # fn main() -> nn_ffi::Result<()> {
    /// let context = Context::new(Device::Cpu)?;
    /// let (now, next) = (context.zeros(&[4], DType::F32)?, context.empty(&[4], DType::F32)?);
    /// let batch = [1.0_f32, 2.0, 3.0, 4.0];
    /// context.stream()?.scope(|copies| {
    ///     copies.upload(&next, &batch)?;
    ///     kernels::scale(&now, &now, 2.0) // runs beside the copy
    /// })??;
    /// assert_eq!(next.to_vec::<f32>()?, batch);
    /// # Ok(()) }
    /// ```
    ///
    /// The borrow checker keeps a slice alive as long:
    ///
    /// ```compile_fail,E0597
    /// # use nn_ffi::{Context, DType, Device};
    /// # let context = Context::new(Device::Cpu).unwrap();
    /// # let tensor = context.empty(&[4], DType::F32).unwrap();
    /// context.stream().unwrap().scope(|copies| {
    ///     let batch = vec![0.0_f32; 4];
    ///     copies.upload(&tensor, &batch).unwrap(); // `batch` is gone before the copy is done
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device failed while it copied.
    pub fn scope<'env, R>(&'env self, work: impl for<'s> FnOnce(&'s Copies<'s, 'env>) -> R) -> Result<R> {
        // If `work` panics, the drop of `given` waits; nobody but this function owns it, so that it cannot be leaked.
        let given = Given { stream: self, kept: RefCell::default() };
        let copies = Copies { given: &given, scope: PhantomData, environment: PhantomData };
        let result = work(&copies);
        given.wait()?;
        Ok(result)
    }
}

/// The copies that a stream was given in a scope.
struct Given<'env> {
    stream: &'env Stream,
    /// Memory that is copied from or to, which must not be freed before that is done.
    kept: RefCell<Vec<Arc<Allocation>>>,
}

impl Given<'_> {
    fn wait(&self) -> Result<()> {
        // A stream that cannot be waited for has failed with its device, and copies nothing any more.
        let waited = if self.kept.borrow().is_empty() { Ok(()) } else { self.stream.synchronize() };
        for allocation in self.kept.take() {
            allocation.land();
        }
        waited
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        // Only after a panic is there anything left to wait for; its error could reach nobody.
        let _ = self.wait();
    }
}

/// The copies of a [`Stream::scope`].
pub struct Copies<'scope, 'env: 'scope> {
    given: &'scope Given<'env>,
    // As in `std::thread::Scope`: 'scope is neither longer nor shorter than the scope, 'env neither than what is around.
    scope: PhantomData<&'scope mut &'scope ()>,
    environment: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Copies<'scope, '_> {
    /// Copies values of the host into a dense tensor without waiting. From a [`PinnedBuffer`](crate::PinnedBuffer) a GPU
    /// copies at full speed.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when dtype or number differ, or the tensor is not dense; [`Error::Call`] while a graph is captured.
    pub fn upload<T: Element>(&'scope self, target: &Tensor, source: &'scope [T]) -> Result<()> {
        target.writable("upload")?;
        target.matches::<T>("upload", source.len())?;
        let bytes = size_of_val(source);
        let kind = nn_cuda::NNCUDA_HOST_TO_DEVICE;
        // SAFETY: the slice is borrowed for the scope, at whose end this waits for the copy.
        unsafe { self.copy("upload", target, target.pointer(), source.as_ptr().cast(), bytes, kind) }
    }

    /// Copies a dense tensor's values to the host without waiting; they are there when the scope has ended.
    ///
    /// # Errors
    ///
    /// As [`upload`](Self::upload).
    pub fn download<T: Element>(&'scope self, target: &'scope mut [T], source: &Tensor) -> Result<()> {
        source.matches::<T>("download", target.len())?;
        let bytes = size_of_val(target);
        let kind = nn_cuda::NNCUDA_DEVICE_TO_HOST;
        // SAFETY: the slice is borrowed for the scope, at whose end this waits for the copy.
        unsafe { self.copy("download", source, target.as_mut_ptr().cast(), source.pointer(), bytes, kind) }
    }

    /// # Safety
    ///
    /// One side is the tensor's memory, the other a slice of `bytes` bytes that is borrowed for the scope.
    unsafe fn copy(
        &'scope self,
        operation: &'static str,
        tensor: &Tensor,
        target: *mut c_void,
        source: *const c_void,
        bytes: usize,
        kind: i32,
    ) -> Result<()> {
        let stream = self.given.stream;
        let (context, allocation) = (&stream.context, tensor.allocation());
        if !tensor.layout().is_dense() {
            return Err(Error::shape(operation, format!("{tensor:?} must be dense")));
        }
        if !tensor.context().is(context) {
            return Err(Error::shape(operation, "the tensor is of another context than the stream".to_owned()));
        }
        let turn = context.turn();
        // Copies of one stream are in order; beside one of another stream this would find half of it.
        let own = self.given.kept.borrow().iter().any(|kept| Arc::ptr_eq(kept, allocation));
        if allocation.in_flight() && !own {
            return Err(Error::shape(operation, "another stream is copying the tensor".to_owned()));
        }
        // Kernels that were called before may use the memory still.
        let before = context.event()?;
        before.record(None)?;
        stream.wait(&before)?;
        let (handle, bytes) = (stream.handle.as_ptr(), bytes as i64);
        // SAFETY: context and stream live; the memory is kept, and the slice borrowed, until the stream has been waited
        // for at the end of the scope. Kernels and other copies refuse the tensor until then.
        let code =
            unsafe { (turn.functions().nncuda_memcpy_async)(turn.handle(), handle, target, source, bytes, kind) };
        turn.check("nncuda_memcpy_async", code)?;
        allocation.take_off();
        self.given.kept.borrow_mut().push(Arc::clone(allocation));
        Ok(())
    }
}

impl Event {
    /// Happens when the stream (without one: the context's own) has done all that was given to it so far.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] while a graph is captured, or when the stream is of another context.
    pub fn record(&self, stream: Option<&Stream>) -> Result<()> {
        let (turn, stream) = (self.context.turn(), stream.map_or(ptr::null_mut(), |stream| stream.handle.as_ptr()));
        // SAFETY: context, stream and event live; a stream of another context is refused.
        let code = unsafe { (turn.functions().nncuda_event_record)(turn.handle(), stream, self.handle.as_ptr()) };
        turn.check("nncuda_event_record", code)
    }

    /// Waits until the event has happened.
    ///
    /// # Errors
    ///
    /// The first that the device met.
    pub fn synchronize(&self) -> Result<()> {
        let turn = self.context.turn();
        // SAFETY: context and event live.
        let code = unsafe { (turn.functions().nncuda_event_synchronize)(turn.handle(), self.handle.as_ptr()) };
        turn.check("nncuda_event_synchronize", code)
    }

    /// Whether the event has happened.
    ///
    /// # Errors
    ///
    /// The first that the device met.
    pub fn happened(&self) -> Result<bool> {
        let (turn, mut happened) = (self.context.turn(), 0);
        // SAFETY: context and event live and `happened` may be written.
        let code =
            unsafe { (turn.functions().nncuda_event_query)(turn.handle(), self.handle.as_ptr(), &raw mut happened) };
        turn.check("nncuda_event_query", code).map(|()| happened != 0)
    }

    /// Milliseconds from this event to a later one; both must have happened.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when one of them has not.
    pub fn milliseconds_to(&self, end: &Event) -> Result<f32> {
        let (turn, mut milliseconds) = (self.context.turn(), 0.0);
        let (start, end) = (self.handle.as_ptr(), end.handle.as_ptr());
        // SAFETY: context and events live and `milliseconds` may be written; an event of another context is refused.
        let code = unsafe { (turn.functions().nncuda_event_elapsed)(turn.handle(), start, end, &raw mut milliseconds) };
        turn.check("nncuda_event_elapsed", code).map(|()| milliseconds)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.context.release(Released::Stream(self.handle));
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.context.release(Released::Event(self.handle));
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl fmt::Debug for Copies<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("given", &self.given.kept.borrow().len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}
