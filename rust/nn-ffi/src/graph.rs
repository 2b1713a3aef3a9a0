//! Graphs: kernel calls that were recorded once and run again and again, and the memory that belongs to them.

use std::collections::HashSet;
use std::fmt;
use std::mem;
use std::ptr;
use std::sync::Arc;

use nn_cuda::nncuda_graph;

use crate::context::Turn;
use crate::handle::Handle;
use crate::memory::{Allocation, CapturedMemory};
use crate::{Comm, Context, Error, Result, Tensor};

/// A capture in progress: what its calls use, and what they allocated.
pub(crate) struct Capture {
    memory: Arc<CapturedMemory>,
    /// Memory of the tensors that captured calls name.
    kept: Vec<Arc<Allocation>>,
    known: HashSet<usize>,
    comms: Vec<Comm>,
}

impl Capture {
    pub(crate) fn memory(&self) -> Arc<CapturedMemory> {
        Arc::clone(&self.memory)
    }

    fn keep(&mut self, tensor: &Tensor) {
        let allocation = tensor.allocation();
        // Memory of this capture needs no keeping: its release gives it to `memory`, not to the pool.
        if !allocation.is_of(&self.memory) && self.known.insert(Arc::as_ptr(allocation).addr()) {
            self.kept.push(Arc::clone(allocation));
        }
    }
}

impl Context {
    /// Records the kernel calls that `calls` makes instead of running them; [`Graph::launch`] runs them.
    ///
    /// The tensors that they use stay allocated while the graph lives. What changes from launch to launch (step, rate,
    /// lengths, seeds) must lie in tensors. When `calls` fails or panics, nothing is kept.
    ///
    /// # Errors
    ///
    /// That of `calls`, or [`Error::Call`] when a capture is in progress or a call cannot be
    /// captured: copies to and from the host cannot, so what `calls` needs of the host must lie on the device before.
    pub fn capture<E: From<Error>>(&self, calls: impl FnOnce() -> Result<(), E>) -> Result<Graph, E> {
        let turn = self.turn(); // until the end: calls of other threads are none of the graph's
        turn.release_waiting(); // nothing can be given back while capturing
        // SAFETY: the context lives.
        let code = unsafe { (turn.functions().nncuda_graph_begin)(turn.handle()) };
        turn.check("nncuda_graph_begin", code)?;
        let memory = CapturedMemory::new();
        let capture =
            Capture { memory: Arc::clone(&memory), kept: Vec::new(), known: HashSet::new(), comms: Vec::new() };
        turn.capture().replace(Some(capture));
        // Made before the calls, so that a panic in them drops it, which ends the capture.
        let mut graph =
            Graph { context: self.clone(), open: true, handle: None, memory, kept: Vec::new(), comms: Vec::new() };
        let made = calls();
        let code = graph.end();
        made?;
        turn.check("nncuda_graph_end", code)?;
        Ok(graph)
    }
}

impl Turn<'_> {
    /// Has the capture in progress, if there is one, keep the memory of tensors that a call used.
    #[inline]
    pub(crate) fn keep(&self, tensors: &[Option<&Tensor>]) {
        if let Some(capture) = self.capture().borrow_mut().as_mut() {
            tensors.iter().copied().flatten().for_each(|tensor| capture.keep(tensor));
        }
    }

    /// The same of a communicator.
    pub(crate) fn keep_comm(&self, comm: &Comm) {
        if let Some(capture) = self.capture().borrow_mut().as_mut() {
            capture.comms.push(comm.clone());
        }
    }
}

/// Recorded kernel calls, with the memory that they use. Dropping it gives the memory back.
pub struct Graph {
    context: Context,
    /// Whether its capture is in progress.
    open: bool,
    handle: Option<Handle<nncuda_graph>>,
    memory: Arc<CapturedMemory>,
    kept: Vec<Arc<Allocation>>,
    /// Communicators of captured calls, which outlive the graph.
    comms: Vec<Comm>,
}

impl Graph {
    /// Runs the calls again: the same bits as the calls themselves.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: what any of the calls may fail with, or that a capture is in progress. [`Error::Shape`] while a stream
    /// copies one of its tensors.
    pub fn launch(&self) -> Result<()> {
        let turn = self.context.turn();
        if self.memory.in_flight() || self.kept.iter().any(|allocation| allocation.in_flight()) {
            let message = "a stream is copying a tensor of the graph: launch it when the scope of the copy has ended";
            return Err(Error::shape("launch", message.to_owned()));
        }
        // SAFETY: context and graph live, and so does all memory that the captured calls name.
        let code = unsafe { (turn.functions().nncuda_graph_launch)(turn.handle(), self.pointer()) };
        turn.check("nncuda_graph_launch", code)
    }

    /// How many calls it holds.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the library refuses.
    pub fn calls(&self) -> Result<usize> {
        let (turn, mut nodes) = (self.context.turn(), 0);
        // SAFETY: context and graph live, and `nodes` may be written.
        let code = unsafe { (turn.functions().nncuda_graph_size)(turn.handle(), self.pointer(), &raw mut nodes) };
        turn.check("nncuda_graph_size", code)?;
        Ok(usize::try_from(nodes).unwrap_or(0))
    }

    fn pointer(&self) -> *mut nncuda_graph {
        self.handle.map_or(ptr::null_mut(), Handle::as_ptr)
    }

    /// Ends the capture if it is still in progress, and takes over what it kept.
    fn end(&mut self) -> i32 {
        if !mem::take(&mut self.open) {
            return 0;
        }
        let turn = self.context.turn();
        let mut handle = ptr::null_mut();
        // SAFETY: the context lives and `handle` may be written.
        let code = unsafe { (turn.functions().nncuda_graph_end)(turn.handle(), &raw mut handle) };
        self.handle = Handle::new(handle);
        if let Some(capture) = turn.capture().take() {
            (self.kept, self.comms) = (capture.kept, capture.comms);
        }
        code
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.end();
        if let Some(handle) = self.handle {
            let turn = self.context.turn();
            // SAFETY: context and graph live; the graph is not used again.
            unsafe { (turn.functions().nncuda_graph_destroy)(turn.handle(), handle.as_ptr()) };
        }
        self.memory.close(&self.context);
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("kept", &self.kept.len()).field("comms", &self.comms).finish_non_exhaustive()
    }
}
