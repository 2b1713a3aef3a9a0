//! `run.json`: what a run was started on, with which options, by which program, so that it can be repeated.

use std::path::{Path, PathBuf};

use nn_ffi::{Context, library};

use super::data::TokenWindows;
use super::run::TrainingRun;
use crate::error::{Error, Result};
use crate::format::{Table, Value, atomic, read_json};

pub(super) const RECORD_FILE: &str = "run.json";

/// Where a run's data lies, and the SHA-256 of what lay there when it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// A shard, or a folder of them.
    pub data: PathBuf,
    /// The same, for evaluation.
    pub held_out: Option<PathBuf>,
    data_sha256: Option<String>,
    held_out_sha256: Option<String>,
}

impl Sources {
    /// Data whose contents nobody has noted.
    pub fn new(data: impl Into<PathBuf>, held_out: Option<PathBuf>) -> Self {
        Self { data: data.into(), held_out, ..Self::default() }
    }

    /// What the `run.json` of a run's folder says. Older ones have no hashes.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(RECORD_FILE);
        let values = read_json(&path)?;
        let given = |name: &str| values.get(name).unwrap_or(&Value::None);
        let (Some(data), Value::None | Value::Text(_)) = (given("data").as_text(), given("held_out")) else {
            return Err(Error::format(path, "does not say where the data is"));
        };
        let hash = |name: &str| match given(name) {
            Value::None => Ok(None),
            Value::Text(hash) => Ok(Some(hash.clone())),
            other => Err(Error::format(&path, format!("{name} is {}; it must be text", other.shown()))),
        };
        Ok(Self {
            data: data.into(),
            held_out: given("held_out").as_text().map(PathBuf::from),
            data_sha256: hash("data_sha256")?,
            held_out_sha256: hash("held_out_sha256")?,
        })
    }

    /// Writes the `run.json` of a run that was just started on these by `program`, a name and its version.
    pub fn write(&self, folder: &Path, run: &TrainingRun, program: &str) -> Result<()> {
        let resolved = |path: &PathBuf| {
            let path = path.canonicalize().map_err(|error| Error::io(path, error))?;
            Ok::<_, Error>(path.to_string_lossy().into_owned())
        };
        let (model, (major, minor)) = (run.trainer().model(), library::abi_version()?);
        let mut values = Table::from([
            ("data", resolved(&self.data)?.into()),
            ("held_out", self.held_out.as_ref().map(resolved).transpose()?.into()),
            ("data_sha256", run.data().sha256()?.into()),
            ("held_out_sha256", run.held_out().map(TokenWindows::sha256).transpose()?.into()),
            ("unigram_entropy", run.held_out().map(TokenWindows::unigram_entropy).transpose()?.into()),
            ("program", program.into()),
            ("library", library::build_info()?.into()),
            ("abi", format!("{major}.{minor}").into()),
            ("device", device(model.context())?.into()),
            ("model", model.config().to_table().into()),
            ("train", run.trainer().config().to_table().into()),
        ]);
        if let Some(origin) = run.origin() {
            values.set("from", origin.clone());
        }
        std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        atomic::write_file(&folder.join(RECORD_FILE), Value::Table(values).to_json_lines().as_bytes())
    }

    /// `Error::Format` when the data is not what the run was started on.
    pub(super) fn check_data(&self, windows: &TokenWindows) -> Result<()> {
        check(&self.data, self.data_sha256.as_deref(), windows)
    }

    /// The same of the held-out data.
    pub(super) fn check_held_out(&self, windows: &TokenWindows) -> Result<()> {
        self.held_out.as_ref().map_or(Ok(()), |path| check(path, self.held_out_sha256.as_deref(), windows))
    }
}

fn check(path: &Path, noted: Option<&str>, windows: &TokenWindows) -> Result<()> {
    let Some(noted) = noted else { return Ok(()) };
    let found = windows.sha256()?;
    if found == noted {
        return Ok(());
    }
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    let (there, here) = (short(noted), short(&found));
    Err(Error::format(
        path,
        format!("holds different tokens from those this run was started on (SHA-256 {there}… there, {here}… here)"),
    ))
}

/// The device in words, with the instruction set that its calls run on.
fn device(ctx: &Context) -> Result<String> {
    let set = match (ctx.isa()?, ctx.compute_capability()?) {
        (Some(isa), _) => isa.name().to_owned(),
        (None, capability) => format!("sm_{}", capability.unwrap_or(0)),
    };
    Ok(format!("{}; {set}", ctx.device_text()))
}
