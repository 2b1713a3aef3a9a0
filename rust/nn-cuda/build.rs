//! Decides which libnncuda the crate loads at run time, and builds it when there is none to take.
//!
//! In this order: the file that `NNCUDA_LIBRARY` names; the library that pkg-config knows as `nncuda`; a build from the
//! source tree that holds this crate, through CMake, with the GPU engine when a CUDA compiler is found. Set
//! `NNCUDA_NO_BUILD` to do without the last. Nothing is linked: the path is handed to the crate, which opens the file
//! when the first context is made, so that the same program runs with another library, or says that it finds none.

use std::env;
use std::path::{Path, PathBuf};

/// What a build of the library reads, from the root of the source tree.
const SOURCES: [&str; 4] = ["CMakeLists.txt", "bindings.h", "cmake", "cuda"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for variable in ["NNCUDA_LIBRARY", "NNCUDA_NO_BUILD", "CUDACXX", "CUDA_HOME"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    match library(&root) {
        Ok(Some(path)) => println!("cargo:rustc-env=NNCUDA_BUILT_LIBRARY={}", path.display()),
        Ok(None) => {}
        Err(sentence) => {
            // Cargo shows what a build script that fails has printed; a panic's backtrace would bury the sentence.
            eprintln!("{sentence}");
            std::process::exit(1);
        }
    }
}

/// The library's file, or nothing when it shall be looked for by the system at run time.
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
    if let Ok(found) = pkg_config::Config::new().cargo_metadata(false).probe("nncuda") {
        let file = found.link_paths.iter().map(|folder| folder.join("libnncuda.so")).find(|file| file.exists());
        if file.is_some() {
            return Ok(file);
        }
    }
    if env::var_os("NNCUDA_NO_BUILD").is_some_and(|value| !value.is_empty() && value != "0") {
        return Ok(None);
    }
    if !root.join("CMakeLists.txt").exists() {
        return Err(format!(
            "there is no libnncuda: pkg-config does not know nncuda, and {} is not the library's source tree. Set \
             NNCUDA_LIBRARY to the file, or NNCUDA_NO_BUILD=1 to leave it to the system's loader at run time",
            root.display()
        ));
    }
    for source in SOURCES {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    // The profile is the library's own in every build of the crate: unoptimised kernels are of no use to anybody.
    let built =
        cmake::Config::new(root).profile("Release").define("NNCUDA_CUDA", "AUTO").build_target("nncuda").build();
    Ok(Some(built.join("build/libnncuda.so")))
}
