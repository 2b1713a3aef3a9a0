//! `nncuda-rs adapter`: an adapter in its other form.

use std::io::{self, Write};

use clap::Args;
use nn_core::format::value::general;

use crate::failure::Failure;
use crate::merge::AdapterFiles;

/// Write the adapter ADAPTER of the model BASE to OUT, which must not exist: as a GGUF file for llama.cpp where OUT ends
/// with .gguf, and as a folder of PEFT otherwise.
///
/// ADAPTER is either of them, a run or one of its checkpoints. BASE says which matrices there are, and in which order a
/// GGUF file has their rows; its weights are not read. The numbers stay as they are, each in its dtype.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    files: AdapterFiles,
}

pub(crate) fn run(Arguments { files }: &Arguments) -> Result<(), Failure> {
    let (base, adapter) = files.open("it is never replaced")?;
    let out = &files.out;
    if out.to_string_lossy().ends_with(".gguf") {
        adapter.write_gguf(out, base.config())?;
    } else {
        adapter.write_folder(out, &files.base.to_string_lossy())?;
    }
    let (scale, rank) = (general(adapter.scale(), 6), adapter.rank());
    writeln!(io::stdout(), "{}: {} matrices, rank {rank}, scale {scale}", out.display(), adapter.factors().len())?;
    Ok(())
}
