//! `nncuda-rs report`: a training run as one HTML page.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use nn_core::report::write_report;

use crate::failure::Failure;
use crate::paths;
use crate::terminal::grouped_text;

/// Write one HTML page about the training run in RUN: curves, experts, checkpoints, options.
///
/// The page is complete in itself: it needs no network and no other file. It may be written while the run is going on,
/// and shows the run as it stands at that point; it says so where the run's files lack something, or hold it in a form
/// that cannot be shown.
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "this is the command's help, where brackets are brackets")]
pub(crate) struct Arguments {
    /// The folder of the run.
    #[arg(value_name = "RUN", value_parser = paths::folder)]
    run: PathBuf,
    /// Where to write it.  [default: RUN/report.html]
    #[arg(long, value_name = "FILE", value_parser = paths::new_file)]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (path, size) = write_report(&arguments.run, arguments.out.as_deref())?;
    writeln!(io::stdout(), "{}: {} kB", path.display(), grouped_text(size as f64 / 1e3))?;
    Ok(())
}
