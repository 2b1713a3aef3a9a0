//! The chain of a run, `chain.jsonl`, by which `nncuda verify-run` checks it: one JSON object a line.
//!
//! ```text
//! {"step":0,"format":"nncuda chain","version":1,"data_sha256":...,"seed":7,"sequence_length":16,
//!  "tensors":[...],"seal":...}                                                 first
//! {"step":10,"inputs":[0,80],"digests":"...","hash":...,"seal":...}            every hash_every steps, and at 0
//! {"step":10,"files":{"run.json":[1034,...],...},"digests":"...","seal":...}   a checkpoint; a run that goes on
//! ```
//!
//! `digests` are those of the tensors of the state, in the order of `tensors`; `inputs` the positions of the data order that
//! were trained on since the last such line, from and up to; `hash` SHA-256 of the hash before, step, inputs and digests,
//! the same wherever the run is computed; `files` how many bytes of a file, and their SHA-256, of safetensors those of the
//! header, as digests have the rest; `seal` SHA-256 of the seal before and all of the line in front of its last comma.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::config::TrainConfig;
use super::data::TokenWindows;
use super::digest;
use super::metrics::drop_records;
use super::sha256;
use super::sources::RECORD_FILE;
use crate::error::{Error, Result};
use crate::format::{Table, Value, json_lines, open_regular};

const CHAIN_FILE: &str = "chain.jsonl";
const VERSION: i128 = 1;

/// Whether a run has a chain.
pub(super) fn present(folder: &Path) -> bool {
    crate::format::present(&folder.join(CHAIN_FILE))
}

/// Appends to the chain of a run.
#[derive(Debug)]
pub(super) struct Chain {
    folder: PathBuf,
    path: PathBuf,
    step: usize,
    /// Position in the data order up to which the last hash has it.
    until: u64,
    hash: String,
    seal: String,
    /// What the file has of the state at `step`.
    digests: Option<String>,
}

impl Chain {
    /// That of a run that is at `step`; lines of later steps are dropped: these come again.
    pub(super) fn open(
        folder: &Path,
        step: usize,
        data: &TokenWindows,
        config: &TrainConfig,
        names: &[String],
    ) -> Result<Self> {
        let path = folder.join(CHAIN_FILE);
        let (hash, seal) = (String::new(), String::new());
        let mut chain = Self { folder: folder.to_owned(), path, step, until: 0, hash, seal, digests: None };
        if crate::format::present(&chain.path) {
            drop_records(&chain.path, step)?;
            chain.read()?;
        }
        if !chain.hash.is_empty() {
            return Ok(chain);
        }
        let data = data.sha256()?;
        let (seed, length) = (config.seed, config.sequence_length);
        chain.hash = sha256::of_bytes(format!("{data}\n{seed}\n{length}\n{}\n", names.join("\n")).as_bytes());
        if chain.seal.is_empty() {
            chain.write(Table::from([
                ("step", step.into()),
                ("format", "nncuda chain".into()),
                ("version", Value::Integer(VERSION)),
                ("data_sha256", data.as_str().into()),
                ("seed", Value::Integer(seed.into())),
                ("sequence_length", length.into()),
                ("tensors", Value::List(names.iter().map(|name| name.as_str().into()).collect())),
            ]))?;
        }
        Ok(chain)
    }

    /// Finds the last seal and hash.
    fn read(&mut self) -> Result<()> {
        let path = self.path.clone();
        let text = |record: &Table, name: &str| {
            let value = record.get(name).unwrap_or(&Value::None);
            let wrong = || Error::format(&path, format!("{name} is {}; it must be text", value.shown()));
            value.as_text().map(str::to_owned).ok_or_else(wrong)
        };
        for line in json_lines(&self.path)? {
            let Some(record) = line?.record else { continue }; // of such lines `drop_records` leaves none
            self.seal = text(&record, "seal")?;
            if record.get("hash").is_some() {
                self.hash = text(&record, "hash")?;
                let inputs = record.get("inputs").unwrap_or(&Value::None);
                let until = match inputs {
                    Value::List(inputs) if inputs.len() == 2 => inputs[1].as_integer(),
                    _ => None,
                };
                self.until = until.ok_or_else(|| {
                    Error::format(&path, format!("inputs is {}; it must be two whole numbers", inputs.shown()))
                })?;
            }
            let here = record.get("step").and_then(Value::as_integer::<u64>) == Some(self.step as u64);
            if here && record.get("digests").is_some() {
                self.digests = Some(text(&record, "digests")?);
            }
        }
        Ok(())
    }

    /// Where a run starts or goes on. `Error::Format` when the state is not the one that was there at this step.
    pub(super) fn begin(&mut self, names: &[String], digests: &str, position: u64) -> Result<()> {
        if let Some(expected) = &self.digests {
            let different = digest::different(names, expected, digests);
            if let [first, others @ ..] = different.as_slice() {
                let more = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
                let step = self.step;
                let problem =
                    format!("the state at step {step} is not the one that this run had there: {first} differs{more}");
                return Err(Error::format(&self.folder, problem));
            }
        } else if self.step == 0 {
            self.add(0, position, digests)?;
        }
        self.add_files(self.step, digests, None)
    }

    /// Adds the state after a step, and the windows up to `position`; gives its hash.
    pub(super) fn add(&mut self, step: usize, position: u64, digests: &str) -> Result<String> {
        let (hash, until) = (&self.hash, self.until);
        self.hash = sha256::of_bytes(format!("{hash}\n{step}\n{until} {position}\n{digests}\n").as_bytes());
        self.until = position;
        self.write(Table::from([
            ("step", step.into()),
            ("inputs", Value::List(vec![until.into(), position.into()])),
            ("digests", digests.into()),
            ("hash", self.hash.as_str().into()),
        ]))?;
        Ok(self.hash.clone())
    }

    /// Adds the files of the run as they are now, and those of a checkpoint of this step.
    pub(super) fn add_files(&mut self, step: usize, digests: &str, checkpoint: Option<&Path>) -> Result<()> {
        let mut paths = vec![self.folder.join(RECORD_FILE), self.folder.join("metrics.jsonl")];
        paths.retain(|path| crate::format::present(path));
        if let Some(checkpoint) = checkpoint {
            let failed = |error| Error::unreadable(checkpoint, error);
            let entries = std::fs::read_dir(checkpoint).map_err(failed)?;
            let mut found =
                entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
            found.sort();
            paths.extend(found);
        }
        let mut files = Table::default();
        for path in paths {
            let (count, sum) = file_sum(&path)?;
            let name = path.strip_prefix(&self.folder).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            files.set(name, Value::List(vec![count.into(), sum.into()]));
        }
        self.write(Table::from([("step", step.into()), ("files", Value::Table(files)), ("digests", digests.into())]))
    }

    fn write(&mut self, mut record: Table) -> Result<()> {
        record.set("seal", "");
        let line = Value::Table(record).to_json();
        let before = &line[..line.rfind(',').unwrap_or_default()];
        self.seal = sha256::of_bytes(format!("{}{before}", self.seal).as_bytes());
        let failed = |error| Error::io(&self.path, error);
        let mut file = OpenOptions::new().append(true).create(true).open(&self.path).map_err(failed)?;
        file.write_all(format!("{before},\"seal\":\"{}\"}}\n", self.seal).as_bytes()).map_err(failed)
    }
}

/// How many bytes of a file count, and their SHA-256: all, or of safetensors the header.
fn file_sum(path: &Path) -> Result<(u64, String)> {
    let (file, size) = open_regular(path)?;
    sum_of(file, size, path.extension().is_some_and(|extension| extension == "safetensors"))
        .map_err(|error| Error::unreadable(path, error))
}

fn sum_of(mut file: File, mut size: u64, header: bool) -> std::io::Result<(u64, String)> {
    if header {
        let mut length = [0; 8];
        file.read_exact(&mut length)?;
        file.rewind()?;
        size = u64::from_le_bytes(length).saturating_add(8);
    }
    sha256::of_all(file.take(size))
}
