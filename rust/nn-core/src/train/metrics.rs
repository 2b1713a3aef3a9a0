//! Metrics of a run: one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{Table, Value, atomic, json_lines, present};

/// The records of a metrics file, up to a line that a kill cut off.
pub fn read_metrics(path: &Path) -> Result<Vec<Table>> {
    json_lines(path)?
        .map(|line| Ok(line?.record))
        .take_while(|record| !matches!(record, Ok(None)))
        .filter_map(Result::transpose)
        .collect()
}

/// Takes the records after `step` out of a file of them, and what stands after a line that a kill cut off; the other
/// lines stay as they are.
pub(super) fn drop_records(path: &Path, step: usize) -> Result<()> {
    atomic::write_file_with(path, |file| {
        let mut kept = BufWriter::new(file);
        for line in json_lines(path)? {
            let line = line?;
            let Some(record) = line.record else { break };
            if !is_behind(record.get("step"), step) {
                let written = kept.write_all(line.text.trim_ascii_end()).and_then(|()| kept.write_all(b"\n"));
                written.map_err(|error| Error::io(path, error))?;
            }
        }
        kept.flush().map_err(|error| Error::io(path, error))
    })
}

/// Whether the step of a record is a number above `step`.
fn is_behind(value: Option<&Value>, step: usize) -> bool {
    value.and_then(Value::as_number).is_some_and(|at| at > step as f64)
}

/// Appends records to `metrics.jsonl` in a run folder.
#[derive(Debug)]
pub struct MetricsLog {
    path: PathBuf,
    file: File,
}

impl MetricsLog {
    /// Opens the log of a run that continues after `step`: what an earlier process wrote beyond it is dropped, since
    /// those steps will come again.
    pub fn open(folder: &Path, step: usize) -> Result<Self> {
        let path = folder.join("metrics.jsonl");
        if present(&path) {
            drop_records(&path, step)?;
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

/// A number rounded to that many decimals, to nearest and, between two, to even.
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
        let beyond = "9".repeat(300);
        let lines = [
            "{\"step\": 1, \"loss\": 0.5}\r",
            "{\"step\": 2}",
            "{\"step\": 3}",
            &format!("{{\"step\": {beyond}}}"),
            "{\"st",
            "{\"step\": 1}",
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let mut log = MetricsLog::open(root.path(), 2).unwrap();
        log.write(&Table::from([("step", 3i32.into()), ("loss", f64::NAN.into())])).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"step\": 1, \"loss\": 0.5}\n{\"step\": 2}\n{\"step\":3,\"loss\":null}\n");
        let records = read_metrics(&path).unwrap();
        assert_eq!(records.len(), 3);
        assert_eq!(records[2].get("loss"), Some(&Value::None));
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
