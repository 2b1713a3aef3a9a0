//! Opening what has to be a regular file of a sane size: a pipe or a device in a folder from elsewhere must not stop a
//! reader, nor a file without end take its memory.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nn_ffi::HostBytes;

use super::limits::LINE_BYTES;
use super::{Table, Value, parse_json};
use crate::error::{Error, Result};

/// Whether a folder has an entry of this name.
///
/// A link that leads nowhere, or in a circle, is one: to read it is then an error, where passing over it would give
/// another model or run than the folder was meant to hold.
pub fn present(path: &Path) -> bool {
    !matches!(std::fs::symlink_metadata(path), Err(error) if error.kind() == ErrorKind::NotFound)
}

/// The file, open for reading, and its size. `Error::Format` when it is a folder, a pipe or a device.
pub fn open_regular(path: &Path) -> Result<(File, u64)> {
    let unreadable = |error: std::io::Error| Error::unreadable(path, error);
    // A pipe is opened at once, and not when somebody writes to it.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(unreadable)?;
    let data = file.metadata().map_err(unreadable)?;
    if !data.is_file() {
        return Err(Error::format(path, "cannot be read: it is not a regular file"));
    }
    Ok((file, data.len()))
}

/// The whole of a regular file, mapped for reading. `Error::Format` when it cannot be, or has fewer than `least` bytes, the
/// fewest that a file of this `kind` has.
pub fn map_file(path: &Path, kind: &str, least: u64) -> Result<HostBytes> {
    let (file, size) = open_regular(path)?;
    if size < least {
        return Err(Error::format(path, format!("has {size} bytes; a {kind} has {least} or more")));
    }
    HostBytes::map(&file).map_err(|error| Error::unreadable(path, error))
}

/// All bytes of a regular file that has at most `most` of them.
pub fn read_regular(path: &Path, most: u64) -> Result<Vec<u8>> {
    let (file, size) = open_regular(path)?;
    if size > most {
        return Err(Error::format(path, format!("has {size} bytes; a file of its kind may have at most {most}")));
    }
    let mut content = Vec::new();
    file.take(size + 1).read_to_end(&mut content).map_err(|error| Error::unreadable(path, error))?;
    if content.len() as u64 > size {
        // It may be one without end, whose size the system does not know.
        return Err(Error::format(path, format!("has more than the {size} bytes that the system gives as its size")));
    }
    Ok(content)
}

/// A line of a JSONL file.
#[derive(Debug)]
pub struct Line {
    /// Its bytes, with its end, which the last line may lack.
    pub text: Vec<u8>,
    /// Its object; `None` where it holds none, or one that breaks the rules of `parse_json`.
    pub record: Option<Table>,
}

/// The lines of a JSONL file. An error is the last thing to come: of a file that cannot be read, or that has a line
/// longer than any record.
pub fn json_lines(path: &Path) -> Result<impl Iterator<Item = Result<Line>>> {
    let mut reader = Some(BufReader::new(open_regular(path)?.0));
    let (path, mut number) = (path.to_owned(), 0);
    Ok(std::iter::from_fn(move || {
        number += 1;
        let line = read_line(reader.as_mut()?, &path, number).transpose();
        if !matches!(line, Some(Ok(_))) {
            reader = None;
        }
        line
    }))
}

fn read_line(reader: &mut BufReader<File>, path: &Path, number: u64) -> Result<Option<Line>> {
    let mut text = Vec::new();
    let read = reader.take(LINE_BYTES + 1).read_until(b'\n', &mut text);
    let length = read.map_err(|error| Error::unreadable(path, error))?;
    if length as u64 > LINE_BYTES {
        return Err(Error::format(path, format!("line {number} has more than {LINE_BYTES} bytes")));
    }
    let record = match parse_json(&text) {
        Ok(Value::Table(record)) => Some(record),
        _ => None,
    };
    Ok((length > 0).then_some(Line { text, record }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{TokenShard, TomlFile, read_json};
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn what_is_no_regular_file_is_refused() {
        for (kind, words) in [
            ("pipe", "it is not a regular file"),
            ("device", "it is not a regular file"),
            ("folder", "it is not a regular file"),
            ("circle", "Too many levels of symbolic links"),
            ("nothing", "No such file or directory"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join("x");
            match kind {
                "pipe" => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
                "device" => symlink("/dev/zero", &path).unwrap(),
                "folder" => std::fs::create_dir(&path).unwrap(),
                "circle" => symlink(&path, &path).unwrap(),
                _ => symlink("nowhere", &path).unwrap(),
            }
            assert!(present(&path));
            type Read = fn(&Path) -> Option<Error>;
            let readers: [(&str, Read); 5] = [
                ("bytes", |path| read_regular(path, 1 << 20).err()),
                ("json", |path| read_json(path).err()),
                ("toml", |path| TomlFile::read(path).err()),
                ("shard", |path| TokenShard::open(path).err()),
                ("lines", |path| json_lines(path).err()),
            ];
            for (reader, read) in readers {
                let error = read(&path).unwrap_or_else(|| panic!("{reader} took a {kind}"));
                assert!(error.to_string().ends_with(&format!("x: cannot be read: {words}")), "{reader}: {error}");
                assert_eq!(error.exit_code(), 3);
            }
        }
        assert!(!present(Path::new("/nowhere/at/all")));
        assert!(read_regular(Path::new("/proc/self/status"), 1 << 20).unwrap_err().to_string().contains("the 0 bytes"));
    }

    #[test]
    fn lines_come_with_their_objects() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x");
        std::fs::write(&path, "{\"a\": 1}\r\n\n[1]\n{\"a\": 1, \"a\": 2}\n{\"a\": 3}").unwrap();
        let lines: Vec<Line> = json_lines(&path).unwrap().collect::<Result<_>>().unwrap();
        let records: Vec<bool> = lines.iter().map(|line| line.record.is_some()).collect();
        assert_eq!(records, [true, false, false, false, true]);
        assert_eq!((&lines[0].text[..], &lines[4].text[..]), (&b"{\"a\": 1}\r\n"[..], &b"{\"a\": 3}"[..]));
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap(); // a line without end
        let last = json_lines(&path).unwrap().last().unwrap().unwrap_err().to_string();
        assert!(last.ends_with("x: line 5 has more than 16777216 bytes"), "{last}");
        let refused = read_json(&path).unwrap_err().to_string();
        assert!(refused.ends_with("has 1099511627776 bytes; a file of its kind may have at most 4194304"), "{refused}");
    }
}
