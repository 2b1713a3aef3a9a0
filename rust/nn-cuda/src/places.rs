//! Where an installed libnncuda lies. `build.rs` looks there too, before it builds one.

use std::cmp::Reverse;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The library's file.
pub(crate) const FILE: &str = "libnncuda.so";

/// Which file in the Python environment in use is the library's: where pip puts it. Python is not run.
///
/// The environment is that of `VIRTUAL_ENV`, else of `CONDA_PREFIX`, else of the first `python3` on `PATH`. Where there is
/// no such file this gives the paths of those that could be, with `python3*` for any version. `Err` says why there is no
/// environment.
pub(crate) fn in_python(variable: impl Fn(&str) -> Option<OsString>) -> Result<Vec<PathBuf>, String> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let prefixes = match set("VIRTUAL_ENV").or_else(|| set("CONDA_PREFIX")) {
        Some(prefix) => vec![PathBuf::from(prefix)],
        None => {
            let found = set("PATH").and_then(|path| env::split_paths(&path).find(|folder| has_python(folder)));
            let none = "neither VIRTUAL_ENV nor CONDA_PREFIX is set, and there is no python3 on PATH";
            prefixes_of(&found.ok_or(none)?, set("HOME").map(PathBuf::from))
        }
    };
    let found: Vec<PathBuf> = prefixes.iter().flat_map(|prefix| installed(prefix)).collect();
    let could_be = |prefix: &PathBuf| package(&prefix.join("lib/python3*/site-packages"));
    Ok(if found.is_empty() { prefixes.iter().map(could_be).collect() } else { found })
}

fn has_python(folder: &Path) -> bool {
    folder.is_absolute() && folder.join("python3").is_file()
}

/// Prefixes under which the python3 in a folder finds packages, the first first.
fn prefixes_of(bin: &Path, home: Option<PathBuf>) -> Vec<PathBuf> {
    let Some(prefix) = bin.parent() else { return Vec::new() };
    if prefix.join("pyvenv.cfg").is_file() {
        return vec![prefix.to_owned()]; // a virtual environment that was not activated
    }
    let mut prefixes: Vec<PathBuf> = home.map(|home| home.join(".local")).into_iter().collect(); // of pip install --user
    if prefix == Path::new("/usr") {
        prefixes.push("/usr/local".into()); // where Debian's pip installs
    }
    prefixes.push(prefix.to_owned());
    // A link such as /usr/local/bin/python3 leads to another prefix.
    let real = fs::canonicalize(bin.join("python3")).ok();
    prefixes.extend(real.and_then(|file| Some(file.parent()?.parent()?.to_owned())));
    prefixes.into_iter().fold(Vec::new(), |mut unique, prefix| {
        if !unique.contains(&prefix) {
            unique.push(prefix);
        }
        unique
    })
}

/// The library's files below a prefix, that of the newest Python first.
fn installed(prefix: &Path) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for lib in ["lib", "lib64"] {
        for entry in fs::read_dir(prefix.join(lib)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(version) = name.to_str().and_then(|name| name.strip_prefix("python3")) else { continue };
            let minor: u32 = version.strip_prefix('.').and_then(|minor| minor.parse().ok()).unwrap_or(0);
            let packages = ["site-packages", "dist-packages"].map(|kind| package(&entry.path().join(kind)));
            found.extend(packages.into_iter().filter(|file| file.is_file()).map(|file| (minor, file)));
        }
    }
    found.sort_by_key(|(minor, _)| Reverse(*minor));
    found.into_iter().map(|(_, file)| file).collect()
}

fn package(packages: &Path) -> PathBuf {
    packages.join("nncuda").join(FILE)
}
