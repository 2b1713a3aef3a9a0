//! Exceptions, named and built as those of `nncuda.errors` and `nncuda.formats`: `Error` is the base of what the library
//! reports and carries the status; its subclasses are also the built-in exception that fits.

use nn_core::Error;
use nn_ffi::Status;
use pyo3::exceptions::{PyException, PyFileExistsError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

/// Name, the built-in exception that it also is, documentation.
const CLASSES: [(&str, &str, &str); 8] = [
    ("ArgumentError", "ValueError", "An argument is of a wrong size, dtype, value or device, or overlaps another."),
    ("OutOfRangeError", "IndexError", "A token id, target, expert index or position is outside its range."),
    ("OutOfMemoryError", "MemoryError", "The device or the host has no memory left. The model stays usable."),
    ("UnsupportedError", "NotImplementedError", "The call is valid, but this engine cannot do it."),
    ("DeviceNotFoundError", "RuntimeError", "No such device on this machine, or no driver for it."),
    ("StateError", "RuntimeError", "Not allowed now."),
    ("DeviceError", "RuntimeError", "The device reported a fault, or the library has a defect."),
    ("LibraryError", "ImportError", "libnncuda was not found, cannot be loaded, or speaks another version of the ABI."),
];

/// Adds the classes to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let exception = py.get_type::<PyException>();
    let about = "A call of the library failed. `status` is its code, `name` the code's name.";
    let error = class(py, "Error", &[&exception], about)?;
    error.setattr("status", 0)?;
    error.setattr("name", "")?;
    module.add("Error", &error)?;
    for (name, builtin, about) in CLASSES {
        let builtin = py.import("builtins")?.getattr(builtin)?.cast_into()?;
        module.add(name, class(py, name, &[&error, &builtin], about)?)?;
    }
    let value_error = py.get_type::<PyValueError>();
    let about =
        "A file is corrupt, truncated, or of another kind. `path` is the file, `problem` what is wrong with it.";
    module.add("FormatError", class(py, "FormatError", &[&value_error], about)?)
}

fn class<'py>(py: Python<'py>, name: &str, bases: &[&Bound<'py, PyType>], about: &str) -> PyResult<Bound<'py, PyType>> {
    let body = PyDict::new(py);
    body.set_item("__doc__", about)?;
    body.set_item("__module__", "nncuda_rs")?;
    let made = py.get_type::<PyType>().call1((name, PyTuple::new(py, bases)?, body))?;
    Ok(made.cast_into()?)
}

/// The exception of an error.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let text = error.to_string();
    let made = match error {
        Error::Format { path, problem, .. } => {
            named(py, "FormatError", &text, &[("path", path.to_string_lossy().as_ref()), ("problem", problem)], 0)
        }
        Error::OutOfRange(_) => named(py, "OutOfRangeError", &text, &[], Status::OutOfRange.code()),
        Error::OutOfMemory(_) => named(py, "OutOfMemoryError", &text, &[], Status::OutOfMemory.code()),
        Error::Exists(_) => Ok(PyFileExistsError::new_err(text)),
        Error::Io { path, source } => Ok(match source.raw_os_error() {
            Some(number) => PyOSError::new_err((number, source.to_string(), path.to_string_lossy().into_owned())),
            None => PyOSError::new_err(text),
        }),
        Error::Diverged(_) => Ok(PyRuntimeError::new_err(text)),
        Error::Device(nn_ffi::Error::Call { status, .. }) => {
            named(py, class_of(*status), &text, &[("name", status.name())], status.code())
        }
        Error::Device(nn_ffi::Error::Load(_)) => named(py, "LibraryError", &text, &[], 0),
        _ => Ok(PyValueError::new_err(text)),
    };
    made.unwrap_or_else(|error| error)
}

fn named(py: Python<'_>, name: &str, text: &str, attributes: &[(&str, &str)], status: i32) -> PyResult<PyErr> {
    let made = py.import("nncuda_rs")?.getattr(name)?.call1((text,))?;
    if status != 0 {
        made.setattr("status", status)?;
    }
    for (attribute, value) in attributes {
        made.setattr(*attribute, value)?;
    }
    Ok(PyErr::from_value(made))
}

/// Which class a status becomes, as in `nncuda.errors`.
fn class_of(status: Status) -> &'static str {
    match status {
        Status::NullPointer
        | Status::InvalidSize
        | Status::InvalidDtype
        | Status::InvalidValue
        | Status::Misaligned
        | Status::WrongDevice
        | Status::Aliased => "ArgumentError",
        Status::OutOfRange => "OutOfRangeError",
        Status::OutOfMemory => "OutOfMemoryError",
        Status::Unsupported => "UnsupportedError",
        Status::NoDevice => "DeviceNotFoundError",
        Status::InvalidContext | Status::Capturing | Status::State | Status::Busy => "StateError",
        Status::Device | Status::Internal => "DeviceError",
        _ => "Error",
    }
}
