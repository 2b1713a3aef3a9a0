//! What is said when there is no library, or a wrong one. The wrong ones are made with the compiler that built the test.
#![allow(unsafe_code)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nn_cuda::{Library, LoadError, NNCUDA_ABI_MAJOR, NNCUDA_ABI_MINOR};

/// A shared library of some Rust.
fn library(name: &str, source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("the folder can be made");
    let (from, to) = (folder.join("source.rs"), folder.join("libnncuda.so"));
    fs::write(&from, source).expect("the source can be written");
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let done =
        Command::new(compiler).args(["--crate-type", "cdylib", "-C", "panic=abort", "-o"]).arg(&to).arg(&from).output();
    let done = done.expect("the compiler runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    to
}

fn with_version(name: &str, version: i32) -> PathBuf {
    let source =
        format!("#[unsafe(no_mangle)]\npub extern \"C\" fn nncuda_abi_version() -> i32 {{\n    {version}\n}}\n");
    library(name, &source)
}

fn open(path: &Path) -> Result<Library, LoadError> {
    // SAFETY: the files are made above, have no initialisers, and no function but the version.
    unsafe { Library::open(path) }
}

#[test]
fn a_missing_file_is_named() {
    let error = open(Path::new("/no/such/libnncuda.so")).expect_err("there is no such file");
    assert!(error.to_string().contains("/no/such/libnncuda.so: "), "{error}");
    assert!(matches!(error, LoadError::NotOpened { .. }));
}

#[test]
fn a_library_that_is_another_is_refused() {
    let path = library("another", "#[unsafe(no_mangle)]\npub extern \"C\" fn other() {}\n");
    assert_eq!(open(&path).err(), Some(LoadError::NotTheLibrary { path }));
}

#[test]
fn another_major_version_is_refused_and_both_are_named() {
    let path = with_version("major", (NNCUDA_ABI_MAJOR + 1) * 1000);
    let error = open(&path).expect_err("the major version is another");
    let sentence = error.to_string();
    let versions = format!(
        "has ABI version {}.0, but this program was made for {NNCUDA_ABI_MAJOR}.{NNCUDA_ABI_MINOR}",
        NNCUDA_ABI_MAJOR + 1
    );
    assert!(sentence.contains(&versions), "{sentence}");
}

#[test]
fn a_library_that_lacks_a_function_is_refused_and_it_is_named() {
    let path = with_version("lacking", NNCUDA_ABI_MAJOR * 1000 + NNCUDA_ABI_MINOR);
    let function = "nncuda_build_info";
    assert_eq!(open(&path).err(), Some(LoadError::MissingFunction { path, function }));
}

#[test]
fn the_library_of_the_process_is_opened_once() {
    let (first, second) = (nn_cuda::library().expect("the build made it"), nn_cuda::library().expect("as before"));
    assert!(std::ptr::eq(first, second));
    assert_eq!(first.abi().0, NNCUDA_ABI_MAJOR);
    assert!(first.abi().1 >= NNCUDA_ABI_MINOR);
}
