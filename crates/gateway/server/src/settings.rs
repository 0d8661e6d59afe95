//! Settings of a server process, independent of its service.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use brisk_net::ListenerSettings;
use brisk_pressure::Mode;

/// The settings of a server: the part that every service has. A reload changes `drain_timeout`,
/// `drain_delay`, `overload` and `files`; the others are fixed at the start.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Threads, each with its own listeners and connections.
    pub workers: NonZeroUsize,
    /// Maximum number of connections of all workers (`server.max_connections`). Further connections replace idle ones, or
    /// are closed before any work is done for them.
    pub max_connections: usize,
    /// File descriptors of a connection: its own, and that of the connection which the service opens for it, if any.
    pub descriptors_per_connection: usize,
    /// Address for metrics and health of the server itself, over plain HTTP (`admin.listen`); `None` for no listener.
    pub admin: Option<SocketAddr>,
    /// Maximum time for running requests after `SIGTERM` or `SIGINT`; a second signal cuts it short.
    pub drain_timeout: Duration,
    /// Time between the stop signal and the drain, in which `/readyz` responds with 503 and connections are still accepted.
    pub drain_delay: Duration,
    /// Treatment of an overload (`server.overload`).
    pub overload: Mode,
    /// The files that the settings were read from; a change of one starts a reload.
    pub files: Vec<PathBuf>,
}

impl ServerSettings {
    /// Warns of settings that differ in `new` and that only a restart applies.
    pub(crate) fn warn_unchangeable(&self, new: &Self) {
        let changed = [
            ("server.workers", self.workers != new.workers),
            ("server.max_connections", self.max_connections != new.max_connections),
            ("admin.listen", self.admin != new.admin),
        ];
        for (key, _) in changed.into_iter().filter(|(_, changed)| *changed) {
            tracing::warn!(key, "changed, but takes full effect only after a restart");
        }
    }
}

/// A listener of a service.
#[derive(Clone, Debug)]
pub struct Listen<L> {
    /// Identification of the listener for the service, its [`Service::Listener`](crate::Service::Listener).
    pub kind: L,
    /// The name of sockets that are passed to the process for this listener (`FileDescriptorName=` of systemd).
    pub name: &'static str,
    /// The settings of its sockets.
    pub settings: ListenerSettings,
    /// Whether the listener also has datagram sockets on the same address, one for each worker.
    pub datagrams: bool,
}

/// Functions of the program that the server runs in.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Called by each worker once a second. Returns memory that the allocator retains after a burst to the system.
    pub give_back_memory: fn(),
    /// The number of dropped lines of the program's own log so far.
    pub dropped_log_lines: fn() -> u64,
}
