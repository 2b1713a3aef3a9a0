//! Device memory and who gives it back.
//!
//! Memory is freed when the last tensor over it is gone. Two things stand against doing so at once: while a graph is
//! captured nothing can be given back, and what captured calls use must stay as long as the graph can be launched.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::context::Released;
use crate::handle::Handle;
use crate::{Context, HostBytes};

/// A piece of device memory; `None` when it has no bytes.
#[derive(Debug)]
pub(crate) struct Allocation {
    context: Context,
    memory: Option<Handle<c_void>>,
    bytes: usize,
    captured: Option<Arc<CapturedMemory>>,
    /// What lives on the host and is looked at in place, so that there is nothing to give back.
    host: Option<HostBytes>,
    /// Copies that a stream has been given and may not have done yet.
    copies: AtomicUsize,
}

impl Allocation {
    pub(crate) fn new(
        context: &Context,
        memory: Option<Handle<c_void>>,
        bytes: usize,
        captured: Option<Arc<CapturedMemory>>,
    ) -> Self {
        Self { context: context.clone(), memory, bytes, captured, host: None, copies: AtomicUsize::new(0) }
    }

    /// Bytes of the host, which nobody may write to.
    pub(crate) fn over(context: &Context, host: &HostBytes) -> Self {
        let memory = Handle::new(host.as_ptr().cast_mut().cast()).filter(|_| !host.is_empty());
        Self {
            context: context.clone(),
            memory,
            bytes: host.len(),
            captured: None,
            host: Some(host.clone()),
            copies: AtomicUsize::new(0),
        }
    }

    /// Whether its bytes may be read alone.
    pub(crate) fn is_read_only(&self) -> bool {
        self.host.is_some()
    }

    pub(crate) fn memory(&self) -> Option<Handle<c_void>> {
        self.memory
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Whether a stream may be copying from or to it now. A copy begins only with the context's turn, so the answer "no"
    /// holds for as long as the caller has that.
    #[inline]
    pub(crate) fn in_flight(&self) -> bool {
        self.copies.load(Ordering::Acquire) != 0
    }

    /// Counts a copy that a stream was given.
    pub(crate) fn take_off(&self) {
        for copies in self.counters() {
            copies.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Counts a copy that is done.
    pub(crate) fn land(&self) {
        for copies in self.counters() {
            copies.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whoever counts its copies.
    fn counters(&self) -> impl Iterator<Item = &AtomicUsize> {
        [&self.copies].into_iter().chain(self.captured.as_ref().map(|capture| &capture.copies))
    }

    /// Whether it was allocated during this capture.
    pub(crate) fn is_of(&self, capture: &Arc<CapturedMemory>) -> bool {
        self.captured.as_ref().is_some_and(|own| Arc::ptr_eq(own, capture))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let Some(memory) = self.memory.filter(|_| self.host.is_none()) else { return };
        let taken = self.captured.as_ref().is_some_and(|capture| capture.put(self.bytes, memory));
        if !taken {
            self.context.release(Released::Memory(memory));
        }
    }
}

/// Pieces of memory by their size.
type Pieces = HashMap<usize, Vec<Handle<c_void>>>;

/// What was allocated while a graph was captured, and is used by no tensor now. Only later calls of the same capture may
/// use it again: every launch repeats their order.
#[derive(Debug)]
pub(crate) struct CapturedMemory {
    /// `None` when the graph is gone.
    free: Mutex<Option<Pieces>>,
    /// Copies of its memory that a stream has been given and may not have done yet.
    copies: AtomicUsize,
}

impl CapturedMemory {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(Some(Pieces::new())), copies: AtomicUsize::new(0) })
    }

    /// Whether a stream may be copying from or to some of it now.
    pub(crate) fn in_flight(&self) -> bool {
        self.copies.load(Ordering::Acquire) != 0
    }

    /// Nothing panics while it is held.
    fn free(&self) -> MutexGuard<'_, Option<Pieces>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a piece that no tensor uses any more; false when the graph is gone.
    fn put(&self, bytes: usize, memory: Handle<c_void>) -> bool {
        self.free().as_mut().map(|free| free.entry(bytes).or_default().push(memory)).is_some()
    }

    /// A piece of this size that no tensor uses now.
    pub(crate) fn take(&self, bytes: usize) -> Option<Handle<c_void>> {
        self.free().as_mut()?.get_mut(&bytes)?.pop()
    }

    /// Ends it: what is still in use is freed as any other memory from here on, and what is not is given to `context`.
    pub(crate) fn close(&self, context: &Context) {
        let free = self.free().take();
        for memory in free.into_iter().flat_map(HashMap::into_values).flatten() {
            context.release(Released::Memory(memory));
        }
    }
}
