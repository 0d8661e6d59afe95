//! `SIGINT` and `SIGTERM` end a run early instead of the program: results so far are reported, and started servers stopped.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Exit code after a second signal: 128 plus the number of `SIGINT`, as shells report it.
const INTERRUPTED: i32 = 130;

/// Whether `SIGINT` or `SIGTERM` was received. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the handlers. The first signal is only recorded; the second one ends the process at once.
    pub fn watch() -> io::Result<Self> {
        let interrupt = Self::default();
        let noted = interrupt.clone();
        // `signal` needs the context of a runtime, which only the thread below drives.
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let guard = runtime.enter();
        let (mut interrupts, mut terminations) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        drop(guard);
        let wait = async move {
            loop {
                tokio::select! { _ = interrupts.recv() => {}, _ = terminations.recv() => {} }
                // Relaxed: the flag publishes no other data.
                if noted.0.swap(true, Ordering::Relaxed) {
                    // No destructor runs: the second signal ends the process at once and leaves started
                    // servers running, as documented.
                    process::exit(INTERRUPTED);
                }
            }
        };
        // Callers are synchronous and have no runtime that could wait for signals.
        thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(wait))?;
        Ok(interrupt)
    }

    /// Whether a signal was received.
    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
