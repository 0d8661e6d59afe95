//! Number of connections permitted by the limit of open files, `RLIMIT_NOFILE`.
//!
//! Clients must not be able to use up all descriptors: files and the admin listener need some too.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::admin::SPARE_DESCRIPTORS;
use crate::settings::ServerSettings;

/// Descriptors of a worker besides its listeners, whose copies the watchdog holds: its poll, wake-up and signals.
const PER_WORKER: usize = 4;
/// Descriptors for the main thread, logs being reopened, files being read, and connections being closed.
const OTHERS: usize = 16;
/// Open files of a process where `/proc/self/fd` cannot be read.
const USUALLY_OPEN: usize = 32;

/// The maximum number of connections: [`ServerSettings::max_connections`], or fewer if the limit of open files is too
/// low, with a warning. At least one.
pub(crate) fn connections(settings: &ServerSettings, listeners: usize) -> usize {
    let wanted = settings.max_connections;
    let Some(limit) = getrlimit(Resource::Nofile).current else { return wanted };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let each = settings.descriptors_per_connection;
    let reserved = reserved(settings.workers.get(), listeners);
    let room = (limit.saturating_sub(reserved) / each).max(1);
    if room < wanted {
        let needed = wanted.saturating_mul(each).saturating_add(reserved);
        tracing::warn!(
            "server.max_connections is {wanted}, but the limit of open files is {limit}, which leaves room for {room}: \
             further connections take the place of idle ones. Raise the hard limit (ulimit -Hn, LimitNOFILE= of systemd) \
             to {needed}, or write max_connections = {room}"
        );
    }
    room.min(wanted)
}

/// Maximum number of open files; `None` for no limit.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Number of open files; 0 where the kernel does not report it (before 6.2).
pub(crate) fn open() -> u64 {
    // The size of the folder is the number of its entries, so that they are not listed.
    fs::metadata("/proc/self/fd").map_or(0, |folder| folder.len())
}

/// Descriptors that no connection uses.
fn reserved(workers: usize, listeners: usize) -> usize {
    let open = fs::read_dir("/proc/self/fd").map_or(USUALLY_OPEN, Iterator::count);
    // Twice the listeners, because the watchdog holds a copy of each.
    let workers = workers.saturating_mul(2 * listeners + PER_WORKER);
    open + workers + SPARE_DESCRIPTORS + OTHERS
}
