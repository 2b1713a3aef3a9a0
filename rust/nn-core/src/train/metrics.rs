//! Metrics of a run: one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{Table, Value, atomic, parse_json};

/// The lines of a metrics file as they stand there, with their values; what a kill cut off is left out.
fn read_lines(path: &Path) -> Result<Vec<(String, Table)>> {
    let bytes = std::fs::read(path).map_err(|error| Error::unreadable(path, error))?;
    let text = String::from_utf8(bytes).map_err(|error| Error::format(path, format!("is not text ({error})")))?;
    let mut records = Vec::new();
    for line in text.lines() {
        match parse_json(line.as_bytes()) {
            Ok(Value::Table(record)) => records.push((line.to_owned(), record)),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Ok(records)
}

/// The records of a metrics file; a last line that a kill cut off is left out.
pub fn read_metrics(path: &Path) -> Result<Vec<Table>> {
    Ok(read_lines(path)?.into_iter().map(|(_, record)| record).collect())
}

/// Appends records to `metrics.jsonl` in a run folder.
#[derive(Debug)]
pub struct MetricsLog {
    path: PathBuf,
    file: File,
}

impl MetricsLog {
    /// Opens the log of a run that goes on behind `step`: what an earlier process wrote beyond it is dropped, since
    /// those steps will come again.
    pub fn open(folder: &Path, step: usize) -> Result<Self> {
        let path = folder.join("metrics.jsonl");
        if path.exists() {
            let mut kept = String::new();
            for (line, record) in read_lines(&path)? {
                let at = record.get("step").and_then(Value::as_number).unwrap_or(0.0);
                if at <= step as f64 {
                    kept.push_str(&line);
                    kept.push('\n');
                }
            }
            atomic::write_file(&path, kept.as_bytes())?;
        }
        let file = OpenOptions::new().append(true).create(true).open(&path).map_err(|error| Error::io(&path, error))?;
        Ok(Self { path, file })
    }

    /// Appends one record.
    pub fn write(&mut self, record: &Table) -> Result<()> {
        let line = Value::Table(record.clone()).to_json() + "\n";
        self.file.write_all(line.as_bytes()).map_err(|error| Error::io(&self.path, error))
    }
}

/// A number rounded to so many decimals, to nearest and, between two, to even.
pub(crate) fn rounded(number: f64, decimals: usize) -> f64 {
    format!("{number:.decimals$}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_beyond_the_step_and_cut_off_lines_go() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("metrics.jsonl");
        std::fs::write(&path, "{\"step\": 1, \"loss\": 0.5}\n{\"step\": 2}\n{\"step\": 3}\n{\"st").unwrap();
        let mut log = MetricsLog::open(root.path(), 2).unwrap();
        log.write(&Table::from([("step", 3i32.into()), ("loss", f64::NAN.into())])).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"step\": 1, \"loss\": 0.5}\n{\"step\": 2}\n{\"step\": 3, \"loss\": NaN}\n");
        let records = read_metrics(&path).unwrap();
        assert_eq!(records.len(), 3);
        assert!(records[2].get("loss").and_then(Value::as_number).unwrap().is_nan());
    }

    #[test]
    fn numbers_are_rounded_as_python_rounds_them() {
        // Expected values are Python's round.
        for (number, decimals, expected) in
            [(0.15, 1, 0.1), (0.25, 1, 0.2), (2.675, 2, 2.67), (1234.56, 1, 1234.6), (0.333_333_3, 5, 0.33333)]
        {
            assert_eq!(rounded(number, decimals), expected);
        }
    }
}
