//! What the library says of itself and of the machine, without a context.

use std::ffi::{CStr, c_char};

use nn_cuda::Library;

use crate::{Device, Error, Format, Result, Status};

/// Version, compiler, instruction sets and CUDA architectures of the library's build, as one line.
pub fn build_info() -> Result<String> {
    let library = nn_cuda::library()?;
    // SAFETY: the function takes nothing and returns a string that stays.
    Ok(unsafe { text((library.nncuda_build_info)()) })
}

/// Major and minor version of the contract that the library speaks.
pub fn abi_version() -> Result<(i32, i32)> {
    Ok(nn_cuda::library()?.abi())
}

/// How many GPUs the machine offers; 0 when there is no driver for them.
pub fn gpus() -> Result<usize> {
    Ok(device_count(nn_cuda::library()?, nn_cuda::NNCUDA_DEVICE_CUDA))
}

/// A device in words: processor or GPU, instruction sets or compute capability, memory.
///
/// # Errors
///
/// [`Status::NoDevice`] with the reason: no such index, no driver, one too old, a library without the GPU engine.
pub fn device_text(device: Device) -> Result<String> {
    let (kind, index) = device.numbers();
    let (code, words) = describe(nn_cuda::library()?, kind, index);
    match Status::from_code(code) {
        None => Ok(words),
        Some(status) => Err(Error::Call { status, function: "nncuda_device_describe", message: words }),
    }
}

/// What a status means and what to do about it, in one sentence.
pub fn status_text(status: Status) -> Result<String> {
    Ok(meaning(nn_cuda::library()?, status.code()))
}

/// Bytes that a row of that many elements takes in a format.
///
/// # Errors
///
/// [`Status::InvalidSize`] when the row does not end with a whole block, [`Error::Load`] when there is no library.
pub fn row_bytes(format: Format, elements: i64) -> Result<i64> {
    let library = nn_cuda::library()?;
    let mut bytes = 0;
    // SAFETY: `bytes` may be written.
    let code = unsafe { (library.nncuda_format_row_bytes)(format as i32, elements, &raw mut bytes) };
    without_context(library, "nncuda_format_row_bytes", code).map(|()| bytes)
}

/// Turns the status of a function that takes no context into a result.
pub(crate) fn without_context(library: &Library, function: &'static str, code: i32) -> Result<()> {
    match Status::from_code(code) {
        None => Ok(()),
        Some(status) => Err(Error::Call { status, function, message: meaning(library, code) }),
    }
}

/// A C string as a `String`; empty for a null pointer.
///
/// # Safety
///
/// The pointer is null, or that of a string which ends in a zero and stays for the time of the call.
pub(crate) unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the caller vouches for it.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// What a status means, for failures without a context that knows more.
pub(crate) fn meaning(library: &Library, code: i32) -> String {
    // SAFETY: the function takes any number and returns a string that stays.
    unsafe { text((library.nncuda_status_string)(code)) }
}

/// How many devices of a kind the machine offers.
pub(crate) fn device_count(library: &Library, kind: i32) -> usize {
    let mut count = 0;
    // SAFETY: `count` may be written.
    let code = unsafe { (library.nncuda_device_count)(kind, &raw mut count) };
    if code == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
}

/// A device in words, or why there is none; the status says which.
pub(crate) fn describe(library: &Library, kind: i32, index: i32) -> (i32, String) {
    let mut words = [0 as c_char; 512];
    // SAFETY: `words` has the room that is given, and ends in a zero, whatever is written before it.
    unsafe {
        let code = (library.nncuda_device_describe)(kind, index, words.as_mut_ptr(), words.len() as i64 - 1);
        (code, text(words.as_ptr()))
    }
}
