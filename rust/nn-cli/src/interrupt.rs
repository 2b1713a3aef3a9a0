//! What an interrupt (SIGINT, Ctrl-C) does: it ends the command, or, while a model is trained, makes the run save and
//! stop behind the step that it is in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::failure::{Failure, INTERRUPTED};

static RUN: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From here on interrupts are handled.
pub(crate) fn install() -> Result<(), Failure> {
    ctrlc::set_handler(|| match RUN.get() {
        Some(stop) => stop.store(true, Ordering::Relaxed),
        None => {
            eprintln!("interrupted");
            std::process::exit(i32::from(INTERRUPTED));
        }
    })
    .map_err(|error| Failure::Stream(std::io::Error::other(error)))
}

/// From here on an interrupt sets this flag and does nothing else.
pub(crate) fn stops(flag: Arc<AtomicBool>) {
    RUN.get_or_init(|| flag);
}
