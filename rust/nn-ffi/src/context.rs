//! The context: a device with its stream, workers, memory pool and scratch arena.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nn_cuda::{Functions, Library, nncuda_comm, nncuda_ctx, nncuda_event, nncuda_stream};
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

use crate::graph::Capture;
use crate::handle::Handle;
use crate::library::{describe, device_count, meaning, text};
use crate::memory::Allocation;
use crate::{Device, Error, InstructionSet, Result, Status};

/// A device to compute on, with its stream, worker threads, pool of freed memory and scratch arena.
///
/// A `Context` is a handle: clones are the same context. Tensors, streams, events and graphs hold one, too, and the device
/// is given up when the last of them is dropped, on whichever thread.
///
/// Any number of threads may share a context and what was made on it. Its calls are made one at a time: a thread waits
/// while another one is inside a call, or [captures](Self::capture) a graph. Threads that shall compute at the same time
/// need a context each.
///
/// ```
/// use nn_ffi::{Context, DType, Device, kernels};
///
/// # fn main() -> nn_ffi::Result<()> {
/// let sum = Context::new(Device::Cpu)?.zeros(&[2], DType::F32)?; // keeps its context
/// let one = sum.context().tensor(&[1.0_f32, 1.0], &[2])?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| kernels::add(&sum, &one, &sum));
///     }
/// });
/// assert_eq!(sum.to_vec::<f32>()?, [4.0, 4.0]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Context(Arc<Shared>);

struct Shared {
    library: &'static Library,
    handle: Handle<nncuda_ctx>,
    device: Device,
    /// Whoever holds it may call the library; the thread that does may take it again, as calls inside a capture do.
    turn: ReentrantMutex<State>,
    /// Whether a trace runs that reports labels.
    tracing: AtomicBool,
}

/// What goes with the turn.
#[derive(Default)]
struct State {
    /// What the running capture, if any, has to keep.
    capture: RefCell<Option<Capture>>,
    /// What could not be given back while a graph was captured.
    waiting: RefCell<Vec<Released>>,
}

/// The right to call the library with a context. Another thread waits until it is dropped.
pub(crate) struct Turn<'c> {
    context: &'c Context,
    state: ReentrantMutexGuard<'c, State>,
}

impl<'c> Turn<'c> {
    #[inline]
    pub(crate) fn context(&self) -> &'c Context {
        self.context
    }

    #[inline]
    pub(crate) fn functions(&self) -> &'static Functions {
        self.context.0.library
    }

    /// What the library's functions take first. No pointer to it may outlive the turn.
    #[inline]
    pub(crate) fn handle(&self) -> *mut nncuda_ctx {
        self.context.0.handle.as_ptr()
    }

    /// Turns a status into a result, with the context's own sentence.
    #[inline]
    pub(crate) fn check(&self, function: &'static str, code: i32) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.failure(function, code)) }
    }

    #[cold]
    fn failure(&self, function: &'static str, code: i32) -> Error {
        // SAFETY: the context lives, and the sentence lasts until its next call, which needs the turn.
        let sentence = unsafe { text((self.functions().nncuda_last_error)(self.handle())) };
        let message = if sentence.is_empty() { meaning(self.context.0.library, code) } else { sentence };
        Error::Call { status: Status::from_code(code).unwrap_or(Status::Internal), function, message }
    }

    /// The running capture, if any.
    #[inline]
    pub(crate) fn capture(&self) -> &RefCell<Option<Capture>> {
        &self.state.capture
    }

    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        self.state.capture.borrow().is_some()
    }

    pub(crate) fn release_waiting(&self) {
        if !self.state.waiting.borrow().is_empty() {
            let waiting = self.state.waiting.take();
            let left = waiting.into_iter().filter(|what| !self.try_release(*what)).collect();
            self.state.waiting.replace(left);
        }
    }

    fn try_release(&self, what: Released) -> bool {
        let (library, handle) = (self.functions(), self.handle());
        // SAFETY: the context lives; what is given back is its own, and whoever gave it to `release` uses it no more.
        let code = unsafe {
            match what {
                Released::Memory(pointer) => (library.nncuda_free)(handle, pointer.as_ptr()),
                Released::HostMemory(pointer) => (library.nncuda_free_host)(handle, pointer.as_ptr()),
                Released::Stream(stream) => (library.nncuda_stream_destroy)(handle, stream.as_ptr()),
                Released::Event(event) => (library.nncuda_event_destroy)(handle, event.as_ptr()),
                Released::Comm(comm) => (library.nncuda_comm_destroy)(handle, comm.as_ptr()),
            }
        };
        code == 0
    }
}

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
        if device == Device::Auto && context.device() != Device::Cpu {
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
        Self::made(library, device, handle, code).map_err(|status| {
            let why =
                if status == Status::NoDevice { describe(library, kind, index).1 } else { meaning(library, code) };
            Error::Call { status, function: "nncuda_ctx_create", message: format!("device '{device}': {why}") }
        })
    }

    /// The context that the library made, or why it made none.
    pub(crate) fn made(
        library: &'static Library,
        device: Device,
        handle: *mut nncuda_ctx,
        code: i32,
    ) -> std::result::Result<Self, Status> {
        match (Status::from_code(code), Handle::new(handle)) {
            (None, Some(handle)) => Ok(Self(Arc::new(Shared {
                library,
                handle,
                device,
                turn: ReentrantMutex::default(),
                tracing: AtomicBool::new(false),
            }))),
            (status, _) => Err(status.unwrap_or(Status::Internal)),
        }
    }

    pub(crate) fn is_tracing(&self) -> bool {
        self.0.tracing.load(Ordering::Relaxed)
    }

    pub(crate) fn set_tracing(&self, tracing: bool) {
        self.0.tracing.store(tracing, Ordering::Relaxed);
    }

    /// Waits until all work of the context, on all its streams, is done.
    ///
    /// # Errors
    ///
    /// The first that the device met since the last time: on a GPU, indices out of range are found here.
    pub fn synchronize(&self) -> Result<()> {
        let turn = self.turn();
        // SAFETY: the context lives.
        let code = unsafe { (turn.functions().nncuda_ctx_synchronize)(turn.handle()) };
        turn.check("nncuda_ctx_synchronize", code)
    }

    // What it is

    /// The device that it is of; never `Auto`.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// The device in words: processor or GPU, instruction sets or compute capability, memory.
    #[must_use]
    pub fn device_text(&self) -> String {
        let (kind, index) = self.device().numbers();
        describe(self.0.library, kind, index).1
    }

    pub(crate) fn get(&self, attribute: i32) -> Result<i64> {
        let (turn, mut value) = (self.turn(), 0);
        // SAFETY: the context lives and `value` may be written.
        let code = unsafe { (turn.functions().nncuda_ctx_get)(turn.handle(), attribute, &raw mut value) };
        turn.check("nncuda_ctx_get", code).map(|()| value)
    }

    fn set(&self, attribute: i32, value: i64) -> Result<()> {
        let turn = self.turn();
        // SAFETY: the context lives.
        let code = unsafe { (turn.functions().nncuda_ctx_set)(turn.handle(), attribute, value) };
        turn.check("nncuda_ctx_set", code)
    }

    fn count(&self, attribute: i32) -> Result<usize> {
        Ok(usize::try_from(self.get(attribute)?).unwrap_or(0))
    }

    /// Worker threads of the CPU engine, the caller included; 0 on a GPU.
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

    /// Memory nodes (NUMA) over which worker threads are spread; 0 on a GPU.
    pub fn nodes(&self) -> Result<usize> {
        self.count(nn_cuda::NNCUDA_CTX_NODES)
    }

    /// Spreads worker threads over memory nodes, 1 to as many as this process may use. With more than 1 each thread stays
    /// on one, and what a copy or a kernel writes first lies on the node whose threads read it later. With 1, as it is
    /// unless set, the system decides. Results do not depend on it.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidValue`] for another number.
    pub fn set_nodes(&self, nodes: usize) -> Result<()> {
        self.set(nn_cuda::NNCUDA_CTX_NODES, i64::try_from(nodes).unwrap_or(i64::MAX))
    }

    /// The instruction set of the CPU engine; `None` on a GPU.
    pub fn isa(&self) -> Result<Option<InstructionSet>> {
        let number = self.get(nn_cuda::NNCUDA_CTX_ISA)?;
        let named = InstructionSet::ALL.into_iter().find(|isa| *isa as i64 == number);
        Ok(named.filter(|_| self.device() == Device::Cpu))
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
    pub fn compute_capability(&self) -> Result<Option<u32>> {
        let number = self.get(nn_cuda::NNCUDA_CTX_ISA)?;
        Ok(u32::try_from(number).ok().filter(|_| self.device() != Device::Cpu))
    }

    /// Whether f32 products on a GPU may round their factors to tf32, 10 bits of mantissa; they may not unless set.
    pub fn tf32(&self) -> Result<bool> {
        Ok(self.get(nn_cuda::NNCUDA_CTX_TF32)? != 0)
    }

    /// Allows or forbids tf32.
    pub fn set_tf32(&self, allowed: bool) -> Result<()> {
        self.set(nn_cuda::NNCUDA_CTX_TF32, i64::from(allowed))
    }

    /// Whether the backward pass of attention in 16 bits multiplies probabilities and their gradients as two 16-bit
    /// numbers each on every GPU, however long a sequence is: on Hopper slower, and closer where few keys count. It does
    /// not unless set.
    pub fn two_parts(&self) -> Result<bool> {
        Ok(self.get(nn_cuda::NNCUDA_CTX_TWO_PARTS)? != 0)
    }

    /// Asks for two parts or not.
    pub fn set_two_parts(&self, wanted: bool) -> Result<()> {
        self.set(nn_cuda::NNCUDA_CTX_TWO_PARTS, i64::from(wanted))
    }

    /// Bytes of tensors now.
    pub fn bytes_used(&self) -> Result<usize> {
        self.count(nn_cuda::NNCUDA_CTX_BYTES_USED)
    }

    /// The most bytes that tensors and scratch together ever took, since [`reset_peak`](Self::reset_peak).
    pub fn bytes_peak(&self) -> Result<usize> {
        self.count(nn_cuda::NNCUDA_CTX_BYTES_PEAK)
    }

    /// [`bytes_peak`](Self::bytes_peak) in the pages that a GPU gives at once; on the CPU engine the same.
    pub fn bytes_held(&self) -> Result<usize> {
        self.count(nn_cuda::NNCUDA_CTX_BYTES_HELD)
    }

    /// Bytes freed and kept for reuse; [`trim`](Self::trim) returns them to the system.
    pub fn bytes_pooled(&self) -> Result<usize> {
        self.count(nn_cuda::NNCUDA_CTX_BYTES_POOLED)
    }

    /// Bytes of the scratch arena, that of graphs included.
    pub fn bytes_arena(&self) -> Result<usize> {
        self.count(nn_cuda::NNCUDA_CTX_BYTES_ARENA)
    }

    /// Starts counting the peak of memory again.
    pub fn reset_peak(&self) -> Result<()> {
        self.set(nn_cuda::NNCUDA_CTX_BYTES_PEAK, 0)
    }

    /// Returns pooled memory to the system.
    pub fn trim(&self) -> Result<()> {
        self.set(nn_cuda::NNCUDA_CTX_BYTES_POOLED, 0)
    }

    /// Bytes free and in all on the device (the machine's memory on the CPU engine).
    pub fn memory_info(&self) -> Result<(usize, usize)> {
        let (turn, mut free, mut total) = (self.turn(), 0, 0);
        // SAFETY: the context lives and both numbers may be written.
        let code = unsafe { (turn.functions().nncuda_memory_info)(turn.handle(), &raw mut free, &raw mut total) };
        turn.check("nncuda_memory_info", code)?;
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
        let (turn, room) = (self.turn(), i64::try_from(count).unwrap_or(i64::MAX));
        // SAFETY: the context lives and `indices` has room for `count` numbers.
        let code = unsafe {
            (turn.functions().nncuda_data_order)(turn.handle(), seed, first, room, windows, indices.as_mut_ptr())
        };
        turn.check("nncuda_data_order", code).map(|()| indices)
    }

    // For the rest of the crate

    /// Waits until no other thread is inside a call.
    #[inline]
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { context: self, state: self.0.turn.lock() }
    }

    /// The same for who has a turn on another context: who waited there might be waited for. `None` while another thread
    /// has it.
    pub(crate) fn try_turn(&self) -> Option<Turn<'_>> {
        Some(Turn { context: self, state: self.0.turn.try_lock()? })
    }

    /// Whether both are the same context.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Uninitialised memory; `None` for no bytes.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Arc<Allocation>> {
        let turn = self.turn();
        let captured = turn.capture().borrow().as_ref().map(Capture::memory);
        if captured.is_none() {
            turn.release_waiting();
        }
        let reused = captured.as_ref().and_then(|capture| capture.take(bytes));
        let memory = match reused {
            Some(memory) => Some(memory),
            None => {
                let mut pointer = ptr::null_mut();
                // No layout is larger than isize::MAX bytes.
                let wanted = bytes as i64;
                // SAFETY: the context lives and `pointer` may be written.
                let code = unsafe { (turn.functions().nncuda_malloc)(turn.handle(), wanted, &raw mut pointer) };
                turn.check("nncuda_malloc", code)?;
                Handle::new(pointer)
            }
        };
        Ok(Arc::new(Allocation::new(self, memory, bytes, captured)))
    }

    /// Zeroed memory of some ranges of bytes among as many addresses; `None` for no bytes.
    pub(crate) fn allocate_parts(&self, bytes: usize, ranges: &[[i64; 2]]) -> Result<Arc<Allocation>> {
        let (turn, mut pointer) = (self.turn(), ptr::null_mut());
        if !turn.is_capturing() {
            turn.release_waiting();
        }
        // SAFETY: the context lives, there are as many ranges as is said, and `pointer` may be written. No layout is larger
        // than isize::MAX bytes.
        let code = unsafe {
            (turn.functions().nncuda_malloc_parts)(
                turn.handle(),
                bytes as i64,
                ranges.as_ptr().cast(),
                ranges.len() as i64,
                &raw mut pointer,
            )
        };
        turn.check("nncuda_malloc_parts", code)?;
        // Of no capture: nothing else could use the memory again.
        Ok(Arc::new(Allocation::new(self, Handle::new(pointer), bytes, None)))
    }

    /// Frees something, now or when the running capture has ended.
    pub(crate) fn release(&self, what: Released) {
        let turn = self.turn();
        if turn.is_capturing() || !turn.try_release(what) {
            turn.state.waiting.borrow_mut().push(what);
        }
    }
}

/// Something of a context whose owner is gone.
#[derive(Clone, Copy)]
pub(crate) enum Released {
    Memory(Handle<c_void>),
    HostMemory(Handle<c_void>),
    Stream(Handle<nncuda_stream>),
    Event(Handle<nncuda_event>),
    Comm(Handle<nncuda_comm>),
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the context lives, and whatever was made on it held it and so is gone. It frees its memory, what waits
        // included.
        unsafe { (self.library.nncuda_ctx_destroy)(self.handle.as_ptr()) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.device()).finish_non_exhaustive()
    }
}
