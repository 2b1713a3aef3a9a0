//! Raw bindings of `libnncuda`, and the library's build.
//!
//! The functions of `bindings.h` are reached through a table of pointers, [`Functions`], which is filled when the library
//! is opened at run time: the same program runs with any build of the library that [`library`] finds, and says what to do
//! when there is none. The constants, the functions' types and the table are made from the header;
//! `make generate` writes them again.
//!
//! ```
//! let library = nn_cuda::library().expect("the build made it");
//! // SAFETY: the function takes no pointer and may be called at any time.
//! let version = unsafe { (library.nncuda_abi_version)() };
//! assert_eq!(version / 1000, nn_cuda::NNCUDA_ABI_MAJOR);
//! ```
//!
//! Calling what is here is as unsafe as calling C. The crate `nn-ffi` is the safe way.
//!
//! # Unsafe code
//!
//! This crate opens a shared library and turns its symbols into function pointers, which no compiler can check. What it
//! relies on is that the file is a libnncuda of the ABI version that it reports, which is compared before any other
//! function is called.
#![allow(unsafe_code)]

mod bindings;
mod load;
mod places;

pub use bindings::*;
pub use load::{LIBRARY_VARIABLE, Library, LoadError, library, suggest};
