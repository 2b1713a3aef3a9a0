//! Graphs: kernel calls that were recorded once and run again and again, and the memory that belongs to them.

use std::collections::HashSet;
use std::fmt;
use std::mem;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use nn_cuda::nncuda_graph;

use crate::memory::{Allocation, CapturedMemory};
use crate::{Context, Error, GpuTensor, Result};

/// A capture that goes on: what its calls use, and what they allocated.
pub(crate) struct Capture {
    memory: Rc<CapturedMemory>,
    /// Memory of the tensors that captured calls name. The lifetime is that of the context, which holds this.
    kept: Vec<Rc<Allocation<'static>>>,
    known: HashSet<*const ()>,
}

impl Capture {
    pub(crate) fn memory(&self) -> Rc<CapturedMemory> {
        Rc::clone(&self.memory)
    }

    fn keep(&mut self, tensor: &GpuTensor<'_>) {
        let allocation = tensor.allocation();
        // Memory of this capture needs no keeping: its release gives it to `memory`, not to the pool.
        if allocation.is_of(&self.memory) || !self.known.insert(Rc::as_ptr(allocation).cast()) {
            return;
        }
        // SAFETY: only the lifetime of the reference to the context changes. The context holds this capture while
        // `Context::capture` runs, and so lives; when that ends, what is kept is dropped or given the graph's lifetime.
        let kept = unsafe { mem::transmute::<Rc<Allocation<'_>>, Rc<Allocation<'static>>>(Rc::clone(allocation)) };
        self.kept.push(kept);
    }
}

impl Context {
    /// Records the kernel calls that `calls` makes instead of running them; [`CudaGraph::launch`] runs them.
    ///
    /// The tensors that they use stay allocated while the graph lives. What changes from launch to launch (step, rate,
    /// lengths, seeds) must lie in tensors. When `calls` fails or panics, nothing is kept.
    ///
    /// # Errors
    ///
    /// That of `calls`, or [`Error::Call`] when a capture goes on already or a call cannot be
    /// captured: copies to and from the host cannot, so what `calls` needs of the host must lie on the device before.
    pub fn capture<E: From<Error>>(&self, calls: impl FnOnce() -> Result<(), E>) -> Result<CudaGraph<'_>, E> {
        self.release_waiting(); // nothing can be given back while capturing
        // SAFETY: the context lives.
        let code = unsafe { (self.library().nncuda_graph_begin)(self.handle()) };
        self.check("nncuda_graph_begin", code)?;
        let memory = CapturedMemory::new();
        let capture = Capture { memory: Rc::clone(&memory), kept: Vec::new(), known: HashSet::new() };
        self.capture.replace(Some(capture));
        self.capturing.set(true);
        // Made before the calls, so that a panic in them drops it, which ends the capture.
        let mut graph = CudaGraph { context: self, open: true, handle: None, memory, kept: Vec::new() };
        let made = calls();
        let code = graph.end();
        made?;
        self.check("nncuda_graph_end", code)?;
        Ok(graph)
    }

    /// Has the capture that goes on, if one does, keep the memory of tensors that a call used.
    #[cold]
    pub(crate) fn keep(&self, tensors: &[Option<&GpuTensor<'_>>]) {
        if let Some(capture) = self.capture.borrow_mut().as_mut() {
            tensors.iter().copied().flatten().for_each(|tensor| capture.keep(tensor));
        }
    }
}

/// Recorded kernel calls, with the memory that they use. Dropping it gives the memory back.
pub struct CudaGraph<'ctx> {
    context: &'ctx Context,
    /// Whether its capture goes on.
    open: bool,
    handle: Option<NonNull<nncuda_graph>>,
    memory: Rc<CapturedMemory>,
    kept: Vec<Rc<Allocation<'ctx>>>,
}

impl CudaGraph<'_> {
    /// Runs the calls again: the same bits as the calls themselves.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: what any of the calls may fail with, or that a capture goes on. [`Error::Shape`] while a stream
    /// copies one of its tensors.
    pub fn launch(&self) -> Result<()> {
        if self.memory.in_flight() || self.kept.iter().any(|allocation| allocation.in_flight()) {
            let message = "a stream is copying a tensor of the graph: launch it when the scope of the copy has ended";
            return Err(Error::shape("launch", message.to_owned()));
        }
        let handle = self.handle.map_or(ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: context and graph live, and so does all memory that the captured calls name.
        let code = unsafe { (self.context.library().nncuda_graph_launch)(self.context.handle(), handle) };
        self.context.check("nncuda_graph_launch", code)
    }

    /// How many calls it holds.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the library refuses.
    pub fn calls(&self) -> Result<usize> {
        let handle = self.handle.map_or(ptr::null_mut(), NonNull::as_ptr);
        let mut nodes = 0;
        // SAFETY: context and graph live, and `nodes` may be written.
        let code = unsafe { (self.context.library().nncuda_graph_size)(self.context.handle(), handle, &raw mut nodes) };
        self.context.check("nncuda_graph_size", code)?;
        Ok(usize::try_from(nodes).unwrap_or(0))
    }

    /// Ends the capture if it still goes on, and takes over what it kept.
    fn end(&mut self) -> i32 {
        if !mem::take(&mut self.open) {
            return 0;
        }
        let capture = self.context.capture.take();
        let mut handle = ptr::null_mut();
        // SAFETY: the context lives and `handle` may be written.
        let code = unsafe { (self.context.library().nncuda_graph_end)(self.context.handle(), &raw mut handle) };
        self.context.capturing.set(false);
        self.handle = NonNull::new(handle);
        let kept = capture.map_or(Vec::new(), |capture| capture.kept);
        // SAFETY: the references are to the context that this graph borrows: it is alive and stays where it is for as
        // long as the graph, whose lifetime they get here.
        self.kept = unsafe { mem::transmute::<Vec<Rc<Allocation<'static>>>, Vec<Rc<Allocation<'_>>>>(kept) };
        code
    }
}

impl Drop for CudaGraph<'_> {
    fn drop(&mut self) {
        self.end();
        if let Some(handle) = self.handle {
            // SAFETY: context and graph live; the graph is not used again.
            unsafe { (self.context.library().nncuda_graph_destroy)(self.context.handle(), handle.as_ptr()) };
        }
        self.memory.close(self.context);
    }
}

impl fmt::Debug for CudaGraph<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaGraph").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}
