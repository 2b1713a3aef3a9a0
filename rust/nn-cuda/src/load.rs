//! Finds libnncuda, opens it and checks its ABI version.

use std::env;
use std::error::Error as _;
use std::ffi::{CStr, OsString, c_void};
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::{Functions, NNCUDA_ABI_MAJOR, NNCUDA_ABI_MINOR, functions, places};

/// Names the library's file at run time, and nothing else is tried then: a test or a developer gets exactly that build.
pub const LIBRARY_VARIABLE: &str = "NNCUDA_LIBRARY";

/// What the build of this crate made or found; absent where it was told not to.
const BUILT_LIBRARY: Option<&str> = option_env!("NNCUDA_BUILT_LIBRARY");

/// The third place.
const PYTHON: &str = "the Python environment in use";

/// Why there is no library, in one sentence. `Debug` gives the same, so that a `main` that returns the error prints it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// In none of the places is a file, or none that can be opened.
    #[error("libnncuda.so was not found:\n  {}\n{}", tried.join("\n  "), remedy(tried))]
    NotFound {
        /// Each place, and what was wrong there.
        tried: Vec<String>,
    },
    /// A file could not be opened.
    #[error("{reason}")]
    NotOpened {
        /// What the system's loader said, which names the file.
        reason: String,
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

fn remedy(tried: &[String]) -> &'static str {
    if tried.len() == 1 {
        // Only what it names is tried alone.
        return "NNCUDA_LIBRARY is set, so no other place is tried: correct it or unset it";
    }
    "Install it (`pip install nncuda`, which is found while its environment is active, or `make install` in the source \
     tree), or set NNCUDA_LIBRARY to the file"
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
    /// [`LoadError::NotOpened`] when it cannot be opened, the others when it is no libnncuda of this ABI version.
    ///
    /// # Safety
    ///
    /// The file must be a libnncuda, or anything whose initialisers may run and whose `nncuda_abi_version`, if it has
    /// one, returns an i32: only the version stands between a foreign library and calls that it does not expect.
    pub unsafe fn open(path: &Path) -> Result<Self, LoadError> {
        // SAFETY: the caller vouches for the file.
        let opened = unsafe { libloading::Library::new(path) };
        let file = opened.map_err(|error| {
            // What the system's loader said is the source.
            LoadError::NotOpened { reason: error.source().map_or_else(|| error.to_string(), ToString::to_string) }
        })?;
        let file: &'static libloading::Library = Box::leak(Box::new(file));
        let address = |name: &CStr| -> Option<*const c_void> {
            // SAFETY: only the symbol's address is taken here, as a pointer that is not followed.
            unsafe { file.get::<*const c_void>(name) }.ok().map(|symbol| *symbol)
        };
        let version = address(c"nncuda_abi_version").ok_or(LoadError::NotTheLibrary { path: path.to_owned() })?;
        // SAFETY: the function has had this type in every version of the contract, so that it can always be asked.
        let version = unsafe { std::mem::transmute::<*const c_void, functions::nncuda_abi_version>(version)() };
        let abi = (version / 1000, version % 1000);
        check_abi(path, abi, (NNCUDA_ABI_MAJOR, NNCUDA_ABI_MINOR))?;
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
/// It is looked for in these places, and the first file that there is counts:
///
/// 1. the file that `NNCUDA_LIBRARY` names; when it is set, no other place is tried;
/// 2. beside the program: where it says with [`suggest`], in the folder of the executable, or in `../lib` from there;
/// 3. the Python environment in use, where `pip install nncuda` puts it: that of `VIRTUAL_ENV`, else of `CONDA_PREFIX`, else
///    of the first `python3` on `PATH`;
/// 4. the file that was found or made when this crate was built;
/// 5. `libnncuda.so` and `libnncuda.so.2` as the system's loader finds them.
///
/// # Errors
///
/// [`LoadError`] names the places that were tried and what to do. It stays what it was: a process opens the library once.
pub fn library() -> Result<&'static Library, LoadError> {
    static LIBRARY: OnceLock<Result<Library, LoadError>> = OnceLock::new();
    let search = || search(candidates(|name| env::var_os(name), SUGGESTED.get(), env::current_exe().ok().as_deref()));
    LIBRARY.get_or_init(search).as_ref().map_err(Clone::clone)
}

static SUGGESTED: OnceLock<PathBuf> = OnceLock::new();

/// Has [`library`] look for this file before others, unless `NNCUDA_LIBRARY` names one: for what is no program of its own,
/// such as a module of Python. Only the first suggestion counts, and only before the library is opened.
pub fn suggest(file: PathBuf) {
    let _ = SUGGESTED.set(file);
}

/// Where the library may be: the place in words, and a file, a bare name for the system's loader, or why there is neither.
type Candidate = (&'static str, Result<PathBuf, String>);

fn search(candidates: Vec<Candidate>) -> Result<Library, LoadError> {
    let mut tried = Vec::new();
    for (place, candidate) in candidates {
        let path = match candidate {
            Err(why) => {
                tried.push(format!("{place}: {why}"));
                continue;
            }
            Ok(path) => path,
        };
        if path.parent().is_some_and(|folder| !folder.as_os_str().is_empty()) && !path.exists() {
            tried.push(format!("{place}: {} does not exist", path.display()));
            continue;
        }
        // SAFETY: these are the places where a libnncuda belongs; whoever puts another file there, or names one, has
        // this process run what is in it, as with any shared library.
        match unsafe { Library::open(&path) } {
            Err(LoadError::NotOpened { reason }) => tried.push(format!("{place}: {reason}")),
            found_or_wrong => return found_or_wrong, // another place would hide what is wrong
        }
    }
    Err(LoadError::NotFound { tried })
}

fn candidates(
    variable: impl Fn(&str) -> Option<OsString>,
    suggested: Option<&PathBuf>,
    program: Option<&Path>,
) -> Vec<Candidate> {
    if let Some(chosen) = variable(LIBRARY_VARIABLE).filter(|value| !value.is_empty()) {
        return vec![(LIBRARY_VARIABLE, Ok(PathBuf::from(chosen)))];
    }
    let mut places: Vec<Candidate> = vec![(LIBRARY_VARIABLE, Err("is not set".to_owned()))];
    places.extend(suggested.map(|file| ("beside the program", Ok(file.clone()))));
    let folder = program.and_then(Path::parent);
    let beside = folder.into_iter().flat_map(|folder| [Some(folder), folder.parent()]);
    for (folder, below) in beside.flatten().zip(["", "lib"]) {
        places.push(("beside the program", Ok(folder.join(below).join(places::FILE))));
    }
    match places::in_python(variable) {
        Ok(files) => places.extend(files.into_iter().map(|file| (PYTHON, Ok(file)))),
        Err(why) => places.push((PYTHON, Err(why))),
    }
    places.extend(BUILT_LIBRARY.map(|path| ("the build of this program", Ok(PathBuf::from(path)))));
    let names = [places::FILE.to_owned(), format!("{}.{NNCUDA_ABI_MAJOR}", places::FILE)];
    places.extend(names.map(|name| ("the system", Ok(PathBuf::from(name)))));
    places
}

fn check_abi(path: &Path, found: (i32, i32), expected: (i32, i32)) -> Result<(), LoadError> {
    if found.0 != expected.0 || found.1 < expected.1 {
        return Err(LoadError::Abi { path: path.to_owned(), found, expected });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A folder of its own for a test.
    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("nn-cuda-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("there is room");
        folder
    }

    #[test]
    fn a_lower_minor_version_is_refused() {
        let (path, expected) = (Path::new("libnncuda.so"), (2, 3));
        assert_eq!(check_abi(path, (2, 3), expected), Ok(()));
        assert_eq!(check_abi(path, (2, 4), expected), Ok(()));
        for found in [(2, 2), (1, 9), (3, 3)] {
            let refused = LoadError::Abi { path: path.to_owned(), found, expected };
            assert_eq!(check_abi(path, found, expected), Err(refused));
        }
    }

    /// Makes a file and gives its path.
    fn file(path: PathBuf) -> PathBuf {
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("there is room");
        fs::write(&path, "no library").expect("there is room");
        path
    }

    fn environment(of: &[(&str, &Path)]) -> impl Fn(&str) -> Option<OsString> + use<> {
        let of: Vec<_> = of.iter().map(|(name, value)| ((*name).to_owned(), value.as_os_str().to_owned())).collect();
        move |name| of.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }

    fn in_python(of: &[(&str, &Path)]) -> Vec<PathBuf> {
        places::in_python(environment(of)).expect("there is an environment")
    }

    #[test]
    fn the_named_file_is_the_only_place() {
        let named = environment(&[(LIBRARY_VARIABLE, Path::new("/no/such/libnncuda.so"))]);
        let error = search(candidates(named, Some(&"/suggested.so".into()), None)).expect_err("there is no such file");
        let tried = "NNCUDA_LIBRARY: /no/such/libnncuda.so does not exist".to_owned();
        assert_eq!(error, LoadError::NotFound { tried: vec![tried] });
        assert!(
            error.to_string().ends_with("NNCUDA_LIBRARY is set, so no other place is tried: correct it or unset it")
        );
    }

    #[test]
    fn places_are_tried_in_order_and_all_are_named() {
        let (empty, program) = (folder("order"), Path::new("/opt/it/bin/program"));
        let named = environment(&[(LIBRARY_VARIABLE, Path::new("")), ("VIRTUAL_ENV", &empty)]);
        let places = candidates(&named, Some(&"/suggested.so".into()), Some(program));
        let words: Vec<_> = places.iter().map(|(place, _)| *place).collect();
        let beside = "beside the program";
        let first = [LIBRARY_VARIABLE, beside, beside, beside, PYTHON];
        let last = ["the build of this program", "the system", "the system"];
        assert_eq!(words, [&first[..], if BUILT_LIBRARY.is_some() { &last } else { &last[1..] }].concat());
        // Without what may be there: another build, and a library of the system's.
        let mut searched: Vec<_> = places.into_iter().take(first.len()).collect();
        searched.push(("the system", Ok("libnncuda-none.so".into())));
        let sentence = search(searched).expect_err("none of them is there").to_string();
        let python = format!("{}/lib/python3*/site-packages/nncuda/libnncuda.so", empty.display());
        let lines: Vec<_> = sentence.lines().collect();
        let expected = [
            "libnncuda.so was not found:",
            "  NNCUDA_LIBRARY: is not set",
            "  beside the program: /suggested.so does not exist",
            "  beside the program: /opt/it/bin/libnncuda.so does not exist",
            "  beside the program: /opt/it/lib/libnncuda.so does not exist",
            &format!("  the Python environment in use: {python} does not exist"),
        ];
        assert_eq!(lines[..6], expected);
        assert!(lines[6].starts_with("  the system: libnncuda-none.so: "), "{sentence}");
        for way in ["`pip install nncuda`", "`make install`", "set NNCUDA_LIBRARY"] {
            assert!(lines[7].contains(way), "{sentence}");
        }
    }

    #[test]
    fn a_python_environment_is_found_without_python() {
        let root = folder("python");
        let library = |prefix: &str, python: &str| file(root.join(prefix).join(python).join("nncuda/libnncuda.so"));
        let (venv, conda) = (root.join("venv"), root.join("conda"));
        let of_venv = library("venv", "lib/python3.12/site-packages");
        let of_conda = library("conda", "lib/python3.9/site-packages");
        assert_eq!(in_python(&[("VIRTUAL_ENV", &venv), ("CONDA_PREFIX", &conda)]), std::slice::from_ref(&of_venv));
        assert_eq!(in_python(&[("VIRTUAL_ENV", Path::new("")), ("CONDA_PREFIX", &conda)]), [of_conda]);
        // Of two versions the newer; a file that is not there is not given.
        let newer = library("conda", "lib64/python3.10/dist-packages");
        assert_eq!(in_python(&[("CONDA_PREFIX", &conda)])[0], newer);
        // An environment that is on PATH, but not activated, has no packages of the user or of the system.
        file(venv.join("bin/python3"));
        file(venv.join("pyvenv.cfg"));
        let of_user = library("home/.local", "lib/python3.12/site-packages");
        let (path, home) = (env::join_paths([root.join("none"), venv.join("bin")]).expect("a path"), root.join("home"));
        assert_eq!(in_python(&[("PATH", Path::new(&path)), ("HOME", &home)]), [of_venv]);
        // Another python3 has those of the user, and those of the prefix that it is a link to.
        file(root.join("opt/bin/python3"));
        fs::create_dir_all(root.join("usr/bin")).expect("there is room");
        std::os::unix::fs::symlink(root.join("opt/bin/python3"), root.join("usr/bin/python3")).expect("there is room");
        let of_opt = library("opt", "lib/python3.12/site-packages");
        let usr = root.join("usr/bin");
        assert_eq!(in_python(&[("PATH", &usr), ("HOME", &home)]), [of_user, of_opt]);
        let none = places::in_python(environment(&[("PATH", &root)])).expect_err("there is no python3");
        assert!(none.ends_with("there is no python3 on PATH"), "{none}");
    }
}
