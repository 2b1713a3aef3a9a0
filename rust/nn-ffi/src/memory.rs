//! Device memory and who gives it back.
//!
//! Memory is freed when the last tensor over it is gone. Two things stand against doing so at once: while a graph is
//! captured nothing can be given back, and what captured calls use must stay as long as the graph can be launched.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;

use crate::Context;
use crate::context::Released;

/// A piece of device memory; `None` when it has no bytes.
pub(crate) struct Allocation<'ctx> {
    context: &'ctx Context,
    pointer: Option<NonNull<c_void>>,
    bytes: usize,
    captured: Option<Rc<CapturedMemory>>,
    /// Copies that a stream has been given and may not have done yet.
    copies: Cell<usize>,
}

impl<'ctx> Allocation<'ctx> {
    pub(crate) fn new(
        context: &'ctx Context,
        pointer: Option<NonNull<c_void>>,
        bytes: usize,
        captured: Option<Rc<CapturedMemory>>,
    ) -> Self {
        Self { context, pointer, bytes, captured, copies: Cell::new(0) }
    }

    pub(crate) fn pointer(&self) -> Option<NonNull<c_void>> {
        self.pointer
    }

    pub(crate) fn context(&self) -> &'ctx Context {
        self.context
    }

    /// Whether a stream may be copying from or to it now.
    #[inline]
    pub(crate) fn in_flight(&self) -> bool {
        self.context.copies.get() != 0 && self.copies.get() != 0
    }

    /// Counts a copy that a stream was given.
    pub(crate) fn take_off(&self) {
        for count in self.counts() {
            count.set(count.get() + 1);
        }
    }

    /// Counts a copy that is done.
    pub(crate) fn land(&self) {
        for count in self.counts() {
            count.set(count.get() - 1);
        }
    }

    /// Whoever counts its copies.
    fn counts(&self) -> impl Iterator<Item = &Cell<usize>> {
        [&self.copies, &self.context.copies].into_iter().chain(self.captured.as_ref().map(|capture| &capture.copies))
    }

    /// Whether it was allocated while this capture went on.
    pub(crate) fn is_of(&self, capture: &Rc<CapturedMemory>) -> bool {
        self.captured.as_ref().is_some_and(|own| Rc::ptr_eq(own, capture))
    }
}

impl Drop for Allocation<'_> {
    fn drop(&mut self) {
        let Some(pointer) = self.pointer else { return };
        match &self.captured {
            Some(capture) if capture.open.get() => capture.put(self.bytes, pointer),
            _ => self.context.release(Released::Memory(pointer)),
        }
    }
}

/// What was allocated while a graph was captured, and is used by no tensor now. Only later calls of the same capture may
/// use it again: every launch repeats their order.
#[derive(Default)]
pub(crate) struct CapturedMemory {
    open: Cell<bool>,
    /// Copies of its memory that a stream has been given and may not have done yet.
    copies: Cell<usize>,
    free: RefCell<HashMap<usize, Vec<NonNull<c_void>>>>,
}

impl CapturedMemory {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self { open: Cell::new(true), ..Self::default() })
    }

    /// Whether a stream may be copying from or to some of it now.
    pub(crate) fn in_flight(&self) -> bool {
        self.copies.get() != 0
    }

    fn put(&self, bytes: usize, pointer: NonNull<c_void>) {
        self.free.borrow_mut().entry(bytes).or_default().push(pointer);
    }

    /// A piece of this size that no tensor uses now.
    pub(crate) fn take(&self, bytes: usize) -> Option<NonNull<c_void>> {
        self.free.borrow_mut().get_mut(&bytes)?.pop()
    }

    /// Ends it: what is still in use is freed as any other memory from here on, and what is not is given to `context`.
    pub(crate) fn close(&self, context: &Context) {
        self.open.set(false);
        for pointer in self.free.take().into_values().flatten() {
            context.release(Released::Memory(pointer));
        }
    }
}
