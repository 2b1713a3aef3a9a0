//! Writing that a kill at any moment cannot spoil: what stands under the final name is always whole.
//!
//! Everything is written under a temporary name on the same file system, synced to the disk, then renamed, which POSIX
//! makes one step. The folder that holds the name is synced too, so that the rename itself survives a power cut.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// What names of unfinished files and folders begin with.
pub const TEMPORARY_PREFIX: &str = ".partial-";

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The folder that holds a name; "." for a bare name.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

fn beside(path: &Path, infix: &str) -> PathBuf {
    temporary(path, std::process::id(), infix)
}

/// Under which name `process` writes what becomes `path`.
pub(crate) fn temporary(path: &Path, process: u32, infix: &str) -> PathBuf {
    let mut name = OsString::from(format!("{TEMPORARY_PREFIX}{process}-{infix}"));
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// Replaces `path` by a file with these bytes, in one step.
pub fn write_file(path: &Path, data: &[u8]) -> Result<()> {
    write_file_with(path, |file| file.write_all(data).map_err(|error| Error::io(path, error)))
}

/// Replaces `path` by a file that `write` fills, in one step. When it fails, nothing is left and `path` is as it was.
pub fn write_file_with<T>(path: &Path, write: impl FnOnce(&mut File) -> Result<T>) -> Result<T> {
    let temporary = beside(path, "");
    let fill = || -> Result<T> {
        let mut file = File::create(&temporary).map_err(|error| Error::io(path, error))?;
        let made = write(&mut file)?;
        file.sync_all().and_then(|()| fs::rename(&temporary, path)).map_err(|error| Error::io(path, error))?;
        Ok(made)
    };
    let made = fill().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })?;
    sync(parent(path)).map_err(|error| Error::io(path, error))?;
    Ok(made)
}

/// Gives `write` an empty folder beside `path`; afterwards it becomes `path`, in one step.
///
/// `Error::Exists` when `path` exists: a whole folder is never overwritten. When `write` fails, nothing is left.
pub fn write_folder<T>(path: &Path, write: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    if path.exists() {
        return Err(Error::Exists(format!("{} exists already", path.display())));
    }
    let temporary = beside(path, "");
    let failed = |error| Error::io(path, error);
    let fill = || -> Result<T> {
        remove_all(&temporary).and_then(|()| fs::create_dir_all(&temporary)).map_err(failed)?;
        let made = write(&temporary)?;
        sync_below(&temporary).and_then(|()| fs::rename(&temporary, path)).map_err(failed)?;
        Ok(made)
    };
    let made = fill().inspect_err(|_| {
        let _ = fs::remove_dir_all(&temporary);
    })?;
    sync(parent(path)).map_err(failed)?;
    Ok(made)
}

fn sync_below(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { sync_below(&entry.path())? } else { sync(&entry.path())? }
    }
    sync(folder)
}

fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes a folder so that a kill half-way leaves no half folder under its name: it is renamed first.
pub fn remove_folder(path: &Path) -> Result<()> {
    let doomed = beside(path, "old-");
    remove_all(&doomed)
        .and_then(|()| fs::rename(path, &doomed))
        .and_then(|()| fs::remove_dir_all(&doomed))
        .map_err(|error| Error::io(path, error))
}

/// Removes what killed writers left in `folder`. Call it only where nobody else is writing.
pub fn remove_leftovers(folder: &Path) -> Result<()> {
    let remove = || {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX) {
                if entry.file_type()?.is_dir() {
                    fs::remove_dir_all(entry.path())?;
                } else {
                    fs::remove_file(entry.path())?;
                }
            }
        }
        Ok(())
    };
    remove().map_err(|error| Error::io(folder, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("deep/step");
        let failed: Result<()> = write_folder(&path, |folder| {
            fs::write(folder.join("half"), "x").unwrap();
            Err(Error::value("no"))
        });
        assert!(failed.is_err() && !path.exists());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
        write_folder(&path, |folder| fs::write(folder.join("whole"), "x").map_err(|error| Error::io(folder, error)))
            .unwrap();
        assert!(path.join("whole").exists());
        assert!(matches!(write_folder(&path, |_| Ok(())), Err(Error::Exists(_))));
        remove_folder(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn leftovers_of_killed_writers_go_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(".partial-1-step-00000001/deeper")).unwrap();
        fs::write(root.path().join(".partial-2-x"), "").unwrap();
        fs::write(root.path().join("step-00000001"), "").unwrap();
        remove_leftovers(root.path()).unwrap();
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["step-00000001"]);
    }

    #[test]
    fn a_file_is_replaced_or_left_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        write_file(&path, b"old").unwrap();
        let failed: Result<()> = write_file_with(&path, |_| Err(Error::value("no")));
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write_file(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
