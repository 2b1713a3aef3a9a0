//! What SIGINT (Ctrl-C) and SIGTERM do: they end the command, or, while a model is trained, make the run save and stop
//! after the step that it is in; a second one then ends it at once.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level;

static RUN: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Signals, handled by a thread of their own: a long call of the library does not hold one up.
pub(crate) struct Interrupts {
    handle: Handle,
}

impl Interrupts {
    /// From here on SIGINT is handled; SIGTERM does what it always does.
    pub(crate) fn install() -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT])?;
        let handle = signals.handle();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                match RUN.get() {
                    Some(stop) if !stop.swap(true, Ordering::Relaxed) => {}
                    Some(_) => low_level::exit(128 + signal),
                    None => {
                        eprintln!("interrupted");
                        low_level::exit(128 + signal);
                    }
                }
            }
        })?;
        Ok(Self { handle })
    }

    /// From here on the first signal, SIGTERM too, sets this flag.
    pub(crate) fn stop(&self, flag: Arc<AtomicBool>) -> io::Result<()> {
        RUN.get_or_init(|| flag);
        self.handle.add_signal(SIGTERM)
    }
}
