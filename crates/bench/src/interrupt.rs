//! SIGINT and SIGTERM end a run early rather than the program at once: what was measured is reported, and servers that
//! were started are stopped.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Exit code after a second signal: 128 and the number of SIGINT, as shells have it.
const IMPATIENT: i32 = 130;

/// Whether a signal came. Clones see the same.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the first signal is only noted here. The second one ends the program, whatever it is doing.
    pub fn watch() -> io::Result<Self> {
        let interrupt = Self::default();
        let noted = interrupt.clone();
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let guard = runtime.enter();
        let (mut interrupts, mut terminations) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        drop(guard);
        let wait = async move {
            loop {
                tokio::select! { _ = interrupts.recv() => {}, _ = terminations.recv() => {} }
                if noted.0.swap(true, Ordering::Relaxed) {
                    process::exit(IMPATIENT);
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(wait))?;
        Ok(interrupt)
    }

    /// Whether a signal came.
    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
