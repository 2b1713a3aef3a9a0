//! Paths given as arguments, checked as such.

use std::path::{Component, Path, PathBuf};

/// A path as it is shown, and written into files: without what says nothing, but with each "..", since a link may lead it
/// elsewhere.
fn tidy(text: &str) -> PathBuf {
    let parts = Path::new(text).components().filter(|part| *part != Component::CurDir);
    let tidy: PathBuf = parts.collect();
    if tidy.as_os_str().is_empty() && !text.is_empty() { PathBuf::from(".") } else { tidy }
}

/// Any path, which the command itself looks at.
pub(crate) fn any(text: &str) -> Result<PathBuf, String> {
    Ok(tidy(text))
}

/// A file that exists.
pub(crate) fn file(text: &str) -> Result<PathBuf, String> {
    let path = tidy(text);
    match std::fs::metadata(&path) {
        Err(_) => Err(format!("file '{text}' does not exist")),
        Ok(data) if data.is_dir() => Err(format!("file '{text}' is a folder")),
        Ok(_) => Ok(path),
    }
}

/// A folder that exists.
pub(crate) fn folder(text: &str) -> Result<PathBuf, String> {
    let path = tidy(text);
    match std::fs::metadata(&path) {
        Err(_) => Err(format!("folder '{text}' does not exist")),
        Ok(data) if !data.is_dir() => Err(format!("folder '{text}' is a file")),
        Ok(_) => Ok(path),
    }
}

/// A file or a folder that exists.
pub(crate) fn file_or_folder(text: &str) -> Result<PathBuf, String> {
    let path = tidy(text);
    if path.exists() { Ok(path) } else { Err(format!("path '{text}' does not exist")) }
}

/// A folder that may come to exist.
pub(crate) fn new_folder(text: &str) -> Result<PathBuf, String> {
    let path = tidy(text);
    if path.is_file() { Err(format!("folder '{text}' is a file")) } else { Ok(path) }
}

/// A file that may come to exist, in a folder that does.
pub(crate) fn new_file(text: &str) -> Result<PathBuf, String> {
    let path = tidy(text);
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    if path.is_dir() {
        Err(format!("file '{text}' is a folder"))
    } else if !folder.is_dir() {
        Err(format!("there is no folder {}", folder.display()))
    } else {
        Ok(path)
    }
}
