//! Finds a libnncuda for the crate to load at run time, and builds one when there is none.
//!
//! In this order: the file that `NNCUDA_LIBRARY` names; the one of the Python environment in use; `build/lib` of the source
//! tree that holds this crate, where `make lib` puts it; the one that pkg-config knows as `nncuda`; a build of the library's
//! sources through CMake, with the GPU engine when a CUDA compiler is found. With `NNCUDA_NO_BUILD=1` only the first counts: what is
//! built has no path of this machine in it, and looks for the library when it runs.
//!
//! The sources are in `csrc`: links to the source tree that holds this crate, or, in a crate from a registry, the files
//! themselves, since `cargo package` follows links.
//!
//! Nothing is linked: the path is handed to the crate, which opens the file when the first context is made, so that the same
//! program runs with another library, or says that it finds none.

#[path = "src/places.rs"]
mod places;

use std::env;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a build of the library reads, from the root of its sources.
const SOURCES: [&str; 4] = ["CMakeLists.txt", "bindings.h", "cmake", "cuda"];

/// How not to build it.
const INSTALL: &str = "install one (`pip install nncuda` in the Python environment in use, or `make install` in the source \
                       tree), or set NNCUDA_LIBRARY to the file";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/places.rs");
    for variable in ["NNCUDA_LIBRARY", "NNCUDA_NO_BUILD", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDACXX", "CUDA_HOME"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    match library(&sources()) {
        Ok(Some(path)) => println!("cargo::rustc-env=NNCUDA_BUILT_LIBRARY={}", path.display()),
        Ok(None) => {}
        Err(sentence) => {
            // Cargo shows what a build script that fails has printed; a panic's backtrace would bury the sentence.
            eprintln!("{sentence}");
            std::process::exit(1);
        }
    }
}

/// The root of the library's sources: of the source tree, or `csrc` of a crate that left it.
fn sources() -> PathBuf {
    let carried = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("csrc");
    let real = carried.join("CMakeLists.txt").canonicalize();
    real.ok().and_then(|file| Some(file.parent()?.to_owned())).unwrap_or(carried)
}

/// The library's file, or nothing when it shall be looked for at run time alone.
fn library(root: &Path) -> Result<Option<PathBuf>, String> {
    if let Some(chosen) = env::var_os("NNCUDA_LIBRARY").filter(|value| !value.is_empty()) {
        let path = PathBuf::from(&chosen);
        // At run time a relative path would mean another file in another working folder.
        return match path.canonicalize() {
            Ok(path) => Ok(Some(path)),
            Err(error) => {
                Err(format!("NNCUDA_LIBRARY is {}, which is no file that can be read: {error}", path.display()))
            }
        };
    }
    let told_not_to = env::var_os("NNCUDA_NO_BUILD").is_some_and(|value| !value.is_empty() && value != "0");
    if told_not_to || env::var_os("DOCS_RS").is_some() {
        return Ok(None); // docs.rs runs nothing of what it builds
    }
    if let Some(installed) = installed(root) {
        println!("cargo::rerun-if-changed={}", installed.display()); // it may be taken away
        return Ok(Some(installed));
    }
    if !root.join("CMakeLists.txt").exists() {
        return Err(format!(
            "There is no libnncuda, and {} does not hold the library's sources. To mend that, {INSTALL}. With NNCUDA_NO_BUILD=1 the crate \
             builds without one, and the program looks for it when it runs.",
            root.display()
        ));
    }
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let began = Instant::now();
    // The profile is the library's own in every build of the crate: unoptimised kernels are of no use to anybody.
    let built =
        cmake::Config::new(root).profile("Release").define("NNCUDA_CUDA", "AUTO").build_target("nncuda").build();
    // Cargo shows this when the script has ended, and never what it prints before.
    println!(
        "cargo::warning=no libnncuda is installed, so CMake built one from {}, in {:.0} s. To skip this, {INSTALL}",
        root.display(),
        began.elapsed().as_secs_f64()
    );
    Ok(Some(built.join("build/libnncuda.so")))
}

/// A library that is there already.
fn installed(root: &Path) -> Option<PathBuf> {
    let of_python = places::in_python(|name| env::var_os(name)).unwrap_or_default();
    let of_the_tree = root.join("build/lib").join(places::FILE);
    let at_hand = of_python.into_iter().chain([of_the_tree]).find(|file| file.is_file());
    at_hand.and_then(|file| file.canonicalize().ok()).or_else(|| {
        let found = pkg_config::Config::new().cargo_metadata(false).probe("nncuda").ok()?;
        found.link_paths.iter().map(|folder| folder.join(places::FILE)).find(|file| file.exists())
    })
}
