//! What SIGINT (Ctrl-C) and SIGTERM do: they end the command, or, while a model is trained, make the run save and stop
//! after the step that it is in; a second one then ends it at once.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level;

/// What a signal does, of which it gets the number; by default it ends the command.
type Action = Box<dyn Fn(i32) + Send + Sync>;

static ACTION: OnceLock<Action> = OnceLock::new();

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
                match ACTION.get() {
                    Some(action) => action(signal),
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
        self.act(move |signal| {
            if flag.swap(true, Ordering::Relaxed) {
                low_level::exit(128 + signal);
            }
        });
        self.handle.add_signal(SIGTERM)
    }

    /// From here on this is what SIGINT and SIGTERM do, in the thread of the signals.
    pub(crate) fn end(&self, action: impl Fn(i32) + Send + Sync + 'static) -> io::Result<()> {
        self.act(action);
        self.handle.add_signal(SIGTERM)
    }

    /// From here on this is what SIGINT does, in the thread of the signals.
    pub(crate) fn act(&self, action: impl Fn(i32) + Send + Sync + 'static) {
        ACTION.get_or_init(|| Box::new(action));
    }
}
