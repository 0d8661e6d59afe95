//! Maintenance of hosts: a file switches it on and off while the gateway runs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use ipnet::IpNet;

use crate::settings::ErrorPage;

/// Time between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(1);

/// The switches that the thread looks after; the thread runs while there are any.
static SWITCHES: Mutex<Vec<Weak<MaintenanceSwitch>>> = Mutex::new(Vec::new());

/// Responses of a host while its switch is on: `503` for all clients except those in [`Self::allow`].
#[derive(Clone, Debug)]
pub struct Maintenance {
    /// The switch.
    pub switch: Arc<MaintenanceSwitch>,
    /// Page of the response; `None` for the usual page for `503`.
    pub page: Option<ErrorPage>,
    /// Value of `Retry-After`.
    pub retry_after: Duration,
    /// Networks of clients whose requests are processed as usual.
    pub allow: Vec<IpNet>,
}

/// A switch that is on while a file exists.
#[derive(Debug)]
pub struct MaintenanceSwitch {
    file: PathBuf,
    is_on: AtomicBool,
    started: Once,
}

impl MaintenanceSwitch {
    /// A switch with the present state of `file`.
    pub fn new(file: PathBuf) -> Arc<Self> {
        let switch = Self { file, is_on: AtomicBool::new(false), started: Once::new() };
        switch.look();
        Arc::new(switch)
    }

    /// Whether the file existed at the last look. Costs no system call.
    pub(crate) fn is_on(&self) -> bool {
        // Relaxed: the flag guards no other memory.
        self.is_on.load(Ordering::Relaxed)
    }

    /// Has the file looked at every second, by one thread for all switches, as long as the switch exists.
    pub(crate) fn start(self: &Arc<Self>) {
        self.started.call_once(|| {
            let mut switches = SWITCHES.lock().unwrap_or_else(PoisonError::into_inner);
            // The thread ends under this lock when no switch is left, so a list with
            // one switch has no thread.
            switches.push(Arc::downgrade(self));
            // Without a thread, the state at the start stays.
            if switches.len() == 1
                && thread::Builder::new().name("maintenance".to_owned()).spawn(run).is_err()
            {
                switches.clear();
                tracing::error!("no thread for the files of `maintenance`: hosts keep their present state");
            }
        });
    }

    fn look(&self) {
        self.is_on.store(self.file.exists(), Ordering::Relaxed);
    }
}

fn run() {
    loop {
        thread::sleep(INTERVAL);
        let mut switches = SWITCHES.lock().unwrap_or_else(PoisonError::into_inner);
        switches.retain(|switch| switch.strong_count() > 0);
        if switches.is_empty() {
            return;
        }
        let present = switches.clone();
        // A file system that does not answer must not delay a reload.
        drop(switches);
        present.iter().filter_map(Weak::upgrade).for_each(|switch| switch.look());
    }
}
