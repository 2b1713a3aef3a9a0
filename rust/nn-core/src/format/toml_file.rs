//! TOML files: their tables, and where in them an entry stands, for messages.

use std::path::{Path, PathBuf};

use super::value::{Table, Value};
use super::{limits, read_regular};
use crate::error::{Error, Result};

/// A TOML file; that of no path is empty.
#[derive(Debug, Default)]
pub struct TomlFile {
    path: PathBuf,
    text: String,
    tables: Table,
}

impl TomlFile {
    /// Reads a file. `Error::Format` names the line of what is wrong with it.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = read_regular(path, limits::TOML_BYTES)?;
        let most = limits::TOML_LINE_BYTES;
        if let Some((at, line)) = bytes.split(|byte| *byte == b'\n').enumerate().find(|(_, line)| line.len() > most) {
            let problem = format!("line {} has {} bytes; a line may have at most {most}", at + 1, line.len());
            return Err(Error::format(path, problem));
        }
        let wrong = |problem: String| Error::format(path, format!("is not TOML ({})", problem.replace('\n', ", ")));
        let text = String::from_utf8(bytes).map_err(|error| wrong(error.utf8_error().to_string()))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            wrong(format!("{} at line {line}", error.message()))
        })?;
        let tables = table.into_iter().map(|(name, value)| (name, value.into())).collect();
        Ok(Self { path: path.to_owned(), text, tables })
    }

    /// Its place.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds.
    pub fn tables(&self) -> &Table {
        &self.tables
    }

    /// One of its tables, empty where it has it not.
    pub fn table(&self, name: &str) -> Table {
        self.tables.get(name).and_then(Value::as_table).cloned().unwrap_or_default()
    }

    /// The error of an entry of a table, or with an empty name of the table itself.
    pub fn wrong(&self, problem: &str, table: &str, name: &str) -> Error {
        match self.line(table, name) {
            Some(line) => Error::format(&self.path, format!("line {line}: {problem}")),
            None => Error::format(&self.path, problem),
        }
    }

    /// Where `name` is set, else where its table begins; none where neither is found, as in unusual notations.
    fn line(&self, table: &str, name: &str) -> Option<usize> {
        let mut header = Vec::new();
        let mut first = None;
        for (line, number) in self.text.split('\n').map(str::trim).zip(1..) {
            let key = if let Some(within) = line.strip_prefix('[') {
                header = parts(within.trim_start_matches('[').split(']').next().unwrap_or_default());
                header.clone()
            } else if let Some((before, _)) = line.split_once('=') {
                [&header[..], &parts(before)].concat()
            } else {
                continue;
            };
            if key.len() > 1 && key[0] == table && key[1] == name {
                return Some(number);
            }
            if key[0] == table {
                first = first.or(Some(number));
            }
        }
        first
    }
}

fn parts(key: &str) -> Vec<&str> {
    key.split('.').map(|part| part.trim_matches([' ', '\t', '"', '\''])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: impl AsRef<[u8]>) -> Result<TomlFile> {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.toml");
        std::fs::write(&path, text).unwrap();
        TomlFile::read(&path)
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_line() {
        let error = file("[train]\nsteps = \n").unwrap_err().to_string();
        assert!(error.contains("a.toml: is not TOML (") && error.ends_with(" at line 2)"), "{error}");
        assert_eq!(file(b"\xff").unwrap_err().exit_code(), 3);
    }

    #[test]
    fn an_entry_is_found_however_it_is_written() {
        for (text, line) in [
            ("[train]\nseed = 1\n[model]\n\n  seed = 1", Some(5)),
            ("[ \"model\" ]\n# seed = 1\n'seed' = 1", Some(3)),
            ("model.seed = 1", Some(1)),
            ("\n[model.seed]\nx = 1", Some(2)),
            ("[model]\nseed.x = 1", Some(2)),
            ("\nmodel = { seed = 1 }", Some(2)),
            ("[train]\nseed = 1", None),
        ] {
            assert_eq!(file(text).unwrap().line("model", "seed"), line, "{text}");
        }
    }
}
