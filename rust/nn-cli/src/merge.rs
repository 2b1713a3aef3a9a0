//! `nncuda-rs merge`: a model and an adapter as one model.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use nn_core::Error;
use nn_core::convert::merge_adapter;
use nn_core::format::value::general;
use nn_core::model::{Adapter, StoredModel};

use crate::failure::Failure;
use crate::flags::DeviceFlags;
use crate::interrupt::Interrupts;
use crate::paths;
use crate::terminal::count_text;

/// Add the adapter ADAPTER to the model BASE, and write the sum to the folder OUT, which must not exist.
///
/// BASE is a Hugging Face folder, or a checkpoint, in f32, f16 or bf16. ADAPTER is a LoRA of it: a folder of PEFT
/// (adapter_config.json and adapter_model.safetensors), a GGUF file, a run or one of its checkpoints. Each sum is made in
/// f32 and rounded once to the dtype of its matrix; everything else stays as it is.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    files: AdapterFiles,
    #[command(flatten)]
    device: DeviceFlags,
}

/// A model, an adapter of it, and what is made of them.
#[derive(Args, Debug)]
pub(crate) struct AdapterFiles {
    /// The model.
    #[arg(value_name = "BASE", value_parser = paths::file_or_folder)]
    pub(crate) base: PathBuf,
    /// An adapter of it.
    #[arg(value_name = "ADAPTER", value_parser = paths::file_or_folder)]
    pub(crate) adapter: PathBuf,
    /// What is written.
    #[arg(value_name = "OUT", value_parser = paths::any)]
    pub(crate) out: PathBuf,
}

impl AdapterFiles {
    /// Opens both, unless OUT exists, for which `never` says why, or would be in a folder that does not: a mistyped path would
    /// otherwise grow into folders.
    pub(crate) fn open(&self, never: &str) -> Result<(StoredModel, Adapter), Failure> {
        let (path, shown) = (&self.out, self.out.display());
        if path.exists() {
            return Err(Failure::Usage(format!("{shown} exists; {never}")));
        }
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            let folder = folder.display();
            let problem = format!("{shown} would be in {folder}, which is no folder; make it first");
            return Err(Failure::Usage(problem));
        }
        let base = StoredModel::open(&self.base)?;
        let adapter = Adapter::open(&self.adapter, base.config())?;
        Ok((base, adapter))
    }
}

pub(crate) fn run(arguments: &Arguments, interrupts: &Interrupts) -> Result<(), Failure> {
    let files = &arguments.files;
    let (base, adapter) = files.open("a folder is never replaced")?;
    let ctx = arguments.device.open()?;
    // Between two tensors, so that what is half written is taken away.
    let stopped = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&stopped);
    interrupts.act(move |_| heard.store(true, Ordering::Relaxed));
    let each = || if stopped.load(Ordering::Relaxed) { Err(Error::value("interrupted")) } else { Ok(()) };
    match merge_adapter(&base, &adapter, &files.out, &ctx, &each) {
        Err(_) if stopped.load(Ordering::Relaxed) => return Err(Failure::Interrupted),
        other => other?,
    }
    writeln!(
        io::stdout(),
        "{}: {} parameters; {} matrices with {} * B * A of rank {}",
        files.out.display(),
        count_text(base.num_parameters()),
        adapter.factors().len(),
        general(adapter.scale(), 6),
        adapter.rank()
    )?;
    Ok(())
}
