// Generated from bindings.h by `python -m nncuda.binding.rust rust`. Do not edit.

//! What the header says beside the kernels' functions: enums, statuses, and the table of the kernels.

pub(crate) mod catalogue;
mod checked;
pub(crate) mod options;
pub(crate) mod status;
