//! Finds libnncuda, opens it and checks its ABI version.

use std::env;
use std::ffi::{CStr, OsString, c_void};
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::{Functions, NNCUDA_ABI_MAJOR, NNCUDA_ABI_MINOR, functions};

/// Names the library's file at run time, and nothing else is tried then: a test or a developer gets exactly that build.
pub const LIBRARY_VARIABLE: &str = "NNCUDA_LIBRARY";

/// What the build of this crate made or found; absent where it was told not to.
const BUILT_LIBRARY: Option<&str> = option_env!("NNCUDA_BUILT_LIBRARY");

/// What the system's loader is asked for.
const SYSTEM_NAMES: [&str; 2] = ["libnncuda.so", "libnncuda.so.1"];

/// Why there is no library, in one sentence. `Debug` gives the same, so that a `main` that returns the error prints it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No file was found, or none that could be opened.
    #[error(
        "libnncuda.so was not found. Tried: {}. Build it with `make lib` and set NNCUDA_LIBRARY to the file",
        tried.join("; ")
    )]
    NotFound {
        /// Each place, and what was wrong there.
        tried: Vec<String>,
    },
    /// The file was opened, but it is no libnncuda.
    #[error("{} is no libnncuda: it has no nncuda_abi_version", path.display())]
    NotTheLibrary {
        /// The file.
        path: PathBuf,
    },
    /// The library speaks another version of the contract.
    #[error(
        "{} has ABI version {}.{}, but this program was made for {}.{}: the major version must be the same and the \
         minor version not lower. Install matching versions of both",
        path.display(), found.0, found.1, expected.0, expected.1
    )]
    Abi {
        /// The file.
        path: PathBuf,
        /// Its major and minor version.
        found: (i32, i32),
        /// Those of the header that this crate was made from.
        expected: (i32, i32),
    },
    /// The library reports the right version, but lacks a function of it.
    #[error("{} has no {function}, which its ABI version promises: build it again", path.display())]
    MissingFunction {
        /// The file.
        path: PathBuf,
        /// The function's name.
        function: &'static str,
    },
}

impl fmt::Debug for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The open library: its functions, where it came from and which version of the contract it speaks.
#[derive(Clone, Debug)]
pub struct Library {
    functions: Functions,
    path: PathBuf,
    abi: (i32, i32),
}

impl Library {
    /// Opens a file. What is opened stays open for the rest of the process, since nobody can know when the last of its
    /// threads has left it.
    ///
    /// # Errors
    ///
    /// [`LoadError::NotFound`] when it cannot be opened, the others when it is no libnncuda of this ABI version.
    ///
    /// # Safety
    ///
    /// The file must be a libnncuda, or anything whose initialisers may run and whose `nncuda_abi_version`, if it has
    /// one, returns an i32: only the version stands between a foreign library and calls that it does not expect.
    pub unsafe fn open(path: &Path) -> Result<Self, LoadError> {
        // SAFETY: the caller vouches for the file.
        let opened = unsafe { libloading::Library::new(path) };
        let file =
            opened.map_err(|error| LoadError::NotFound { tried: vec![format!("{}: {error}", path.display())] })?;
        let file: &'static libloading::Library = Box::leak(Box::new(file));
        let address = |name: &CStr| -> Option<*const c_void> {
            // SAFETY: only the symbol's address is taken here, as a pointer that is not followed.
            unsafe { file.get::<*const c_void>(name) }.ok().map(|symbol| *symbol)
        };
        let version = address(c"nncuda_abi_version").ok_or(LoadError::NotTheLibrary { path: path.to_owned() })?;
        // SAFETY: the function has had this type in every version of the contract, so that it can always be asked.
        let version = unsafe { std::mem::transmute::<*const c_void, functions::nncuda_abi_version>(version)() };
        let abi = (version / 1000, version % 1000);
        check_abi(path, abi)?;
        // SAFETY: the library speaks this version of the contract, and is never closed.
        let functions = unsafe {
            Functions::resolve(|name| {
                let function = name.to_str().expect("names are ASCII");
                address(name).ok_or_else(|| LoadError::MissingFunction { path: path.to_owned(), function })
            })
        }?;
        Ok(Self { functions, path: path.to_owned(), abi })
    }

    /// A library that is a table of functions and no file: a stand-in, for tests of the code above it.
    ///
    /// # Safety
    ///
    /// The functions must do what bindings.h says of them.
    #[must_use]
    pub unsafe fn from_functions(functions: Functions, name: &str) -> Self {
        Self { functions, path: PathBuf::from(name), abi: (NNCUDA_ABI_MAJOR, NNCUDA_ABI_MINOR) }
    }

    /// The file, or the name that the system's loader knew it by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor version of the contract that it speaks.
    #[must_use]
    pub fn abi(&self) -> (i32, i32) {
        self.abi
    }
}

impl Deref for Library {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

/// The library of this process, opened by the first call.
///
/// In this order: the file that `NNCUDA_LIBRARY` names, and then nothing else; the one that the build of this crate made
/// or found; `libnncuda.so` and `libnncuda.so.1` as the system's loader finds them.
///
/// # Errors
///
/// [`LoadError`] names the places that were tried and what to do. It stays what it was: a process opens the library once.
pub fn library() -> Result<&'static Library, LoadError> {
    static LIBRARY: OnceLock<Result<Library, LoadError>> = OnceLock::new();
    LIBRARY.get_or_init(|| search(env::var_os(LIBRARY_VARIABLE))).as_ref().map_err(Clone::clone)
}

fn search(chosen: Option<OsString>) -> Result<Library, LoadError> {
    let mut tried = Vec::new();
    for (place, path) in candidates(chosen) {
        if path.parent().is_some_and(|folder| !folder.as_os_str().is_empty()) && !path.exists() {
            tried.push(format!("{place}: {} does not exist", path.display()));
            continue;
        }
        // SAFETY: these are the places where a libnncuda belongs; whoever puts another file there, or names one, has
        // this process run what is in it, as with any shared library.
        match unsafe { Library::open(&path) } {
            Err(LoadError::NotFound { tried: reasons }) => tried.push(format!("{place}: {}", reasons.join("; "))),
            found_or_wrong => return found_or_wrong,
        }
    }
    Err(LoadError::NotFound { tried })
}

/// Where the library is looked for, in order: (place, file or name for the system's loader).
fn candidates(chosen: Option<OsString>) -> Vec<(String, PathBuf)> {
    if let Some(chosen) = chosen.filter(|value| !value.is_empty()) {
        return vec![(format!("the environment variable {LIBRARY_VARIABLE}"), PathBuf::from(chosen))];
    }
    let built = BUILT_LIBRARY.map(|path| ("the build".to_owned(), PathBuf::from(path)));
    let system = SYSTEM_NAMES.map(|name| ("the system".to_owned(), PathBuf::from(name)));
    built.into_iter().chain(system).collect()
}

fn check_abi(path: &Path, found: (i32, i32)) -> Result<(), LoadError> {
    let expected = (NNCUDA_ABI_MAJOR, NNCUDA_ABI_MINOR);
    if found.0 != expected.0 || found.1 < expected.1 {
        return Err(LoadError::Abi { path: path.to_owned(), found, expected });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_file_is_the_only_place() {
        let error = search(Some("/no/such/libnncuda.so".into())).expect_err("there is no such file");
        let tried = "the environment variable NNCUDA_LIBRARY: /no/such/libnncuda.so does not exist".to_owned();
        assert_eq!(error, LoadError::NotFound { tried: vec![tried] });
    }

    #[test]
    fn without_a_name_the_build_comes_first_and_the_system_last() {
        let places: Vec<_> = candidates(None).into_iter().map(|(place, _)| place).collect();
        assert_eq!(places.last().map(String::as_str), Some("the system"));
        assert_eq!(
            places.first().map(String::as_str),
            Some(if BUILT_LIBRARY.is_some() { "the build" } else { "the system" })
        );
        assert_eq!(candidates(Some(OsString::new())), candidates(None), "an empty name is none");
    }
}
