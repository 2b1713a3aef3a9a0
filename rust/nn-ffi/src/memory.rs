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

/// A piece of device memory; `None` when it has no bytes.
pub(crate) struct Allocation<'ctx> {
    context: &'ctx Context,
    pointer: Option<NonNull<c_void>>,
    bytes: usize,
    captured: Option<Rc<CapturedMemory>>,
}

impl<'ctx> Allocation<'ctx> {
    pub(crate) fn new(
        context: &'ctx Context,
        pointer: Option<NonNull<c_void>>,
        bytes: usize,
        captured: Option<Rc<CapturedMemory>>,
    ) -> Self {
        Self { context, pointer, bytes, captured }
    }

    pub(crate) fn pointer(&self) -> Option<NonNull<c_void>> {
        self.pointer
    }

    pub(crate) fn context(&self) -> &'ctx Context {
        self.context
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
            _ => self.context.release(pointer),
        }
    }
}

/// What was allocated while a graph was captured, and is used by no tensor now. Only later calls of the same capture may
/// use it again: every launch repeats their order.
#[derive(Default)]
pub(crate) struct CapturedMemory {
    open: Cell<bool>,
    free: RefCell<HashMap<usize, Vec<NonNull<c_void>>>>,
}

impl CapturedMemory {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self { open: Cell::new(true), free: RefCell::default() })
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
            context.release(pointer);
        }
    }
}
