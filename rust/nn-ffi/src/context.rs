//! The context: a device with its stream, workers, memory pool and scratch arena.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use nn_cuda::{Library, nncuda_ctx, nncuda_event, nncuda_stream};

use crate::graph::Capture;
use crate::library::{describe, device_count, meaning, text};
use crate::memory::Allocation;
use crate::{Device, Error, InstructionSet, Result, Status};

/// A device to compute on, with its stream, worker threads, pool of freed memory and scratch arena.
///
/// Calls on one context happen in order, one thread at a time; different contexts are independent. A context may be made
/// in one thread and used in another (`Send`), but not shared between threads (it is not `Sync`): the library would
/// refuse the second of two calls at once, and its sentence about a failure lasts only until the next call, so that no
/// two threads could have both a context and its errors.
///
/// Tensors, streams, events and graphs borrow their context, which therefore cannot be dropped or moved while they live:
///
/// ```compile_fail,E0597
/// let tensor = {
///     let context = nn_ffi::Context::new(nn_ffi::Device::Cpu).unwrap();
///     context.zeros(&[2], nn_ffi::DType::F32).unwrap()
/// };
/// println!("{:?}", tensor.shape());
/// ```
///
/// ```compile_fail,E0277
/// let context = nn_ffi::Context::new(nn_ffi::Device::Cpu).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| context.synchronize());
/// });
/// ```
pub struct Context {
    library: &'static Library,
    handle: NonNull<nncuda_ctx>,
    device: Device,
    /// What the capture that goes on, if one does, has to keep.
    pub(crate) capture: RefCell<Option<Capture>>,
    /// Whether one goes on, which every kernel call asks.
    pub(crate) capturing: Cell<bool>,
    /// How many copies streams have been given that are not known to be done.
    pub(crate) copies: Cell<usize>,
    /// What could not be given back while a graph was captured.
    waiting: RefCell<Vec<Released>>,
}

// SAFETY: the library lets any thread use a context, one at a time, which `!Sync` ensures. Everything that shares
// ownership of what is inside (tensors, graphs) borrows the context, so that none of it exists when it moves; what was
// leaked by `mem::forget` is never touched again. `capture` is empty then, since a capture borrows the context too.
unsafe impl Send for Context {}

impl Context {
    /// A context of a device.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] when there is no library, [`Status::NoDevice`] when the machine has no such device.
    pub fn new(device: Device) -> Result<Self> {
        Self::with_library(nn_cuda::library()?, device)
    }

    /// A context of a device, with a number of worker threads and an instruction set of the CPU engine where given.
    /// When [`Device::Auto`] finds a GPU they do not matter.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and when the processor does not have that many threads or that instruction set.
    pub fn open(device: Device, threads: Option<usize>, isa: Option<InstructionSet>) -> Result<Self> {
        let context = Self::new(device)?;
        if device == Device::Auto && context.device != Device::Cpu {
            return Ok(context);
        }
        threads.map_or(Ok(()), |threads| context.set_threads(threads))?;
        isa.map_or(Ok(()), |isa| context.set_isa(isa))?;
        Ok(context)
    }

    /// A context of a device by another library than that of the process: a stand-in, for tests.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_library(library: &'static Library, device: Device) -> Result<Self> {
        let device = match device {
            Device::Auto if device_count(library, nn_cuda::NNCUDA_DEVICE_CUDA) > 0 => Device::Cuda(0),
            Device::Auto => Device::Cpu,
            chosen => chosen,
        };
        let (kind, index) = device.numbers();
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` may be written.
        let code = unsafe { (library.nncuda_ctx_create)(kind, index, &raw mut handle) };
        match (Status::from_code(code), NonNull::new(handle)) {
            (None, Some(handle)) => Ok(Self {
                library,
                handle,
                device,
                capture: RefCell::default(),
                capturing: Cell::new(false),
                copies: Cell::new(0),
                waiting: RefCell::default(),
            }),
            (status, _) => {
                let status = status.unwrap_or(Status::Internal);
                let why =
                    if status == Status::NoDevice { describe(library, kind, index).1 } else { meaning(library, code) };
                let message = format!("device '{device}': {why}");
                Err(Error::Call { status, function: "nncuda_ctx_create", message })
            }
        }
    }

    /// Waits until all work of the context, on all its streams, is done.
    ///
    /// # Errors
    ///
    /// The first that the device met since the last time: on a GPU, indices out of range are found here.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the context lives.
        let code = unsafe { (self.library.nncuda_ctx_synchronize)(self.handle()) };
        self.check("nncuda_ctx_synchronize", code)
    }

    // What it is

    /// The device that it is of; never `Auto`.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The device in words: processor or GPU, instruction sets or compute capability, memory.
    #[must_use]
    pub fn device_text(&self) -> String {
        let (kind, index) = self.device.numbers();
        describe(self.library, kind, index).1
    }

    fn get(&self, attribute: i32) -> Result<i64> {
        let mut value = 0;
        // SAFETY: the context lives and `value` may be written.
        let code = unsafe { (self.library.nncuda_ctx_get)(self.handle(), attribute, &raw mut value) };
        self.check("nncuda_ctx_get", code).map(|()| value)
    }

    fn set(&self, attribute: i32, value: i64) -> Result<()> {
        // SAFETY: the context lives.
        let code = unsafe { (self.library.nncuda_ctx_set)(self.handle(), attribute, value) };
        self.check("nncuda_ctx_set", code)
    }

    fn count(&self, attribute: i32) -> Result<usize> {
        Ok(usize::try_from(self.get(attribute)?).unwrap_or(0))
    }

    /// Worker threads of the CPU engine, the caller included; 0 on a GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device has failed. So has each attribute below.
    pub fn threads(&self) -> Result<usize> {
        self.count(nn_cuda::NNCUDA_CTX_THREADS)
    }

    /// Sets the number of worker threads, 1 to 256. Results do not depend on it.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidValue`] for another number.
    pub fn set_threads(&self, threads: usize) -> Result<()> {
        self.set(nn_cuda::NNCUDA_CTX_THREADS, i64::try_from(threads).unwrap_or(i64::MAX))
    }

    /// The instruction set of the CPU engine; `None` on a GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device has failed.
    pub fn isa(&self) -> Result<Option<InstructionSet>> {
        let number = self.get(nn_cuda::NNCUDA_CTX_ISA)?;
        let named = InstructionSet::ALL.into_iter().find(|isa| *isa as i64 == number);
        Ok(named.filter(|_| self.device == Device::Cpu))
    }

    /// Sets the instruction set of the CPU engine.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when this processor does not have it.
    pub fn set_isa(&self, isa: InstructionSet) -> Result<()> {
        self.set(nn_cuda::NNCUDA_CTX_ISA, isa as i64)
    }

    /// Compute capability of the GPU, 90 for 9.0; `None` on the CPU engine.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device has failed.
    pub fn compute_capability(&self) -> Result<Option<u32>> {
        let number = self.get(nn_cuda::NNCUDA_CTX_ISA)?;
        Ok(u32::try_from(number).ok().filter(|_| self.device != Device::Cpu))
    }

    /// Whether f32 products on a GPU may round their factors to tf32, 10 bits of mantissa; they may not unless set.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device has failed.
    pub fn tf32(&self) -> Result<bool> {
        Ok(self.get(nn_cuda::NNCUDA_CTX_TF32)? != 0)
    }

    /// Allows or forbids tf32.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device has failed.
    pub fn set_tf32(&self, allowed: bool) -> Result<()> {
        self.set(nn_cuda::NNCUDA_CTX_TF32, i64::from(allowed))
    }

    /// Bytes of tensors now.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device has failed.
    pub fn bytes_used(&self) -> Result<usize> {
        self.count(nn_cuda::NNCUDA_CTX_BYTES_USED)
    }

    /// The most bytes that tensors and scratch together ever took, since [`reset_peak`](Self::reset_peak).
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device has failed.
    pub fn bytes_peak(&self) -> Result<usize> {
        self.count(nn_cuda::NNCUDA_CTX_BYTES_PEAK)
    }

    /// Bytes freed and kept for reuse; [`trim`](Self::trim) returns them to the system.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device has failed.
    pub fn bytes_pooled(&self) -> Result<usize> {
        self.count(nn_cuda::NNCUDA_CTX_BYTES_POOLED)
    }

    /// Bytes of the scratch arena, that of graphs included.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device has failed.
    pub fn bytes_arena(&self) -> Result<usize> {
        self.count(nn_cuda::NNCUDA_CTX_BYTES_ARENA)
    }

    /// Starts counting the peak of memory again.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device has failed.
    pub fn reset_peak(&self) -> Result<()> {
        self.set(nn_cuda::NNCUDA_CTX_BYTES_PEAK, 0)
    }

    /// Returns pooled memory to the system.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device has failed.
    pub fn trim(&self) -> Result<()> {
        self.set(nn_cuda::NNCUDA_CTX_BYTES_POOLED, 0)
    }

    /// Bytes free and in all on the device (the machine's memory on the CPU engine).
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the device has failed.
    pub fn memory_info(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context lives and both numbers may be written.
        let code = unsafe { (self.library.nncuda_memory_info)(self.handle(), &raw mut free, &raw mut total) };
        self.check("nncuda_memory_info", code)?;
        Ok((usize::try_from(free).unwrap_or(0), usize::try_from(total).unwrap_or(0)))
    }

    // Data

    /// Which windows of training data stand at positions `first .. first + count` of the endless shuffled sequence of a
    /// seed: each epoch of `windows` positions visits every window once. A function of its arguments alone, the same in
    /// every language.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidValue`] when `first` is negative or `windows` below 1.
    pub fn data_order(&self, seed: i64, first: i64, count: usize, windows: i64) -> Result<Vec<i64>> {
        let mut indices = vec![0_i64; count];
        let room = i64::try_from(count).unwrap_or(i64::MAX);
        // SAFETY: the context lives and `indices` has room for `count` numbers.
        let code = unsafe {
            (self.library.nncuda_data_order)(self.handle(), seed, first, room, windows, indices.as_mut_ptr())
        };
        self.check("nncuda_data_order", code).map(|()| indices)
    }

    // For the rest of the crate

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    pub(crate) fn handle(&self) -> *mut nncuda_ctx {
        self.handle.as_ptr()
    }

    /// Turns a status into a result, with the context's own sentence.
    #[inline]
    pub(crate) fn check(&self, function: &'static str, code: i32) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.failure(function, code)) }
    }

    #[cold]
    fn failure(&self, function: &'static str, code: i32) -> Error {
        // SAFETY: the context lives, and the sentence lasts until its next call, of which there is none before it is
        // copied.
        let sentence = unsafe { text((self.library.nncuda_last_error)(self.handle())) };
        let message = if sentence.is_empty() { meaning(self.library, code) } else { sentence };
        Error::Call { status: Status::from_code(code).unwrap_or(Status::Internal), function, message }
    }

    /// Uninitialised memory; `None` for no bytes.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Rc<Allocation<'_>>> {
        let captured = self.capture.borrow().as_ref().map(Capture::memory);
        if captured.is_none() {
            self.release_waiting();
        }
        let reused = captured.as_ref().and_then(|capture| capture.take(bytes));
        let pointer = match reused {
            Some(pointer) => Some(pointer),
            None => {
                let mut pointer = ptr::null_mut();
                // No layout is larger than isize::MAX bytes.
                let wanted = bytes as i64;
                // SAFETY: the context lives and `pointer` may be written.
                let code = unsafe { (self.library.nncuda_malloc)(self.handle(), wanted, &raw mut pointer) };
                self.check("nncuda_malloc", code)?;
                NonNull::new(pointer)
            }
        };
        Ok(Rc::new(Allocation::new(self, pointer, bytes, captured)))
    }

    /// Gives something back, now or when the capture that goes on has ended.
    pub(crate) fn release(&self, what: Released) {
        if self.capturing.get() || !self.try_release(what) {
            self.waiting.borrow_mut().push(what);
        }
    }

    pub(crate) fn release_waiting(&self) {
        if !self.waiting.borrow().is_empty() {
            let waiting = self.waiting.take();
            let left = waiting.into_iter().filter(|what| !self.try_release(*what)).collect();
            self.waiting.replace(left);
        }
    }

    fn try_release(&self, what: Released) -> bool {
        let (library, handle) = (self.library, self.handle());
        // SAFETY: the context lives; what is given back is its own, and whoever gave it to `release` uses it no more.
        let code = unsafe {
            match what {
                Released::Memory(pointer) => (library.nncuda_free)(handle, pointer.as_ptr()),
                Released::HostMemory(pointer) => (library.nncuda_free_host)(handle, pointer.as_ptr()),
                Released::Stream(stream) => (library.nncuda_stream_destroy)(handle, stream.as_ptr()),
                Released::Event(event) => (library.nncuda_event_destroy)(handle, event.as_ptr()),
            }
        };
        code == 0
    }
}

/// Something of a context that its owner has let go.
#[derive(Clone, Copy)]
pub(crate) enum Released {
    Memory(NonNull<c_void>),
    HostMemory(NonNull<c_void>),
    Stream(NonNull<nncuda_stream>),
    Event(NonNull<nncuda_event>),
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context lives, and nothing borrows it any more. It frees its memory, what waits included.
        unsafe { (self.library.nncuda_ctx_destroy)(self.handle()) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.device).finish_non_exhaustive()
    }
}
