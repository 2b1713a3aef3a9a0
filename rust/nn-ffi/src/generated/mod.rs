// Generated from bindings.h by `make generate`. Do not edit.

//! What the header says beside the kernels' functions: enums, statuses, and the table of the kernels.

pub(crate) mod catalogue;
mod checked;
pub(crate) mod options;
pub(crate) mod status;
