//! What belongs to the library: addresses of device memory, and its contexts, streams, events and graphs.

use std::fmt;
use std::ptr::NonNull;

/// An address that only the library follows.
pub(crate) struct Handle<T>(NonNull<T>);

// SAFETY: nothing in Rust ever reads or writes what is behind the address, so it may be known to any number of threads.
// The calls that it is handed to are made by `Turn`, of which a context gives one at a time.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// `None` for a null pointer.
    pub(crate) fn new(address: *mut T) -> Option<Self> {
        NonNull::new(address).map(Self)
    }

    pub(crate) fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }

    pub(crate) fn cast<U>(self) -> Handle<U> {
        Handle(self.0.cast())
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
