//! The rank that something is trained on.

use nn_ffi::{Comm, Context};

/// Where something is trained: on a context, by a rank alone, or on one of the ranks of a communicator, with its context.
#[derive(Clone, Copy, Debug)]
pub struct Rank<'a> {
    context: &'a Context,
    comm: Option<&'a Comm>,
}

impl<'a> Rank<'a> {
    /// The device.
    pub fn context(&self) -> &'a Context {
        self.context
    }

    /// The communicator.
    pub fn comm(&self) -> Option<&'a Comm> {
        self.comm
    }
}

impl<'a> From<&'a Context> for Rank<'a> {
    fn from(context: &'a Context) -> Self {
        Self { context, comm: None }
    }
}

impl<'a> From<&'a Comm> for Rank<'a> {
    fn from(comm: &'a Comm) -> Self {
        Self { context: comm.context(), comm: Some(comm) }
    }
}
