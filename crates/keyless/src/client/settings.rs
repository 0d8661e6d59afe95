//! The settings of a set of key servers.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use brisk_net::Target;
use brisk_tls::connector::ConnectorSettings;

use super::place::{Passage, Place};

/// Most servers of a set: one bit each says which of them an operation was sent to.
pub(super) const MOST_SERVERS: usize = 64;

/// Settings of key servers that have the same keys, any of which performs an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSettings {
    /// The name of the set in the configuration, logs and metrics.
    pub name: String,
    /// The servers, 1 to 64.
    pub servers: Vec<Place>,
    /// The name that certificates of servers have to be for. Default: the host of the server's address.
    pub server_name: Option<String>,
    /// Authorities and the client certificate. Protocols and versions are set by the engine.
    pub tls: ConnectorSettings,
    /// Distinguishes files with the same names and other contents.
    pub stamp: Vec<u8>,
    /// Connections to each server. Default: one.
    pub connections: NonZeroUsize,
    /// How long an operation may take in all. Default: one second.
    pub deadline: Duration,
    /// After which time without an answer a second server is asked. Default: a quarter of the deadline.
    pub hedge: Duration,
    /// Operations under way in all; one more is refused as overloaded. Default: 4096.
    pub queue: NonZeroUsize,
}

impl RemoteSettings {
    /// Those of `servers` with the defaults.
    pub fn new(name: impl Into<String>, servers: Vec<Target>, tls: ConnectorSettings) -> Self {
        let deadline = Duration::from_secs(1);
        Self {
            name: name.into(),
            servers: servers.into_iter().map(Place::Network).collect(),
            server_name: None,
            tls,
            stamp: Vec::new(),
            connections: NonZeroUsize::MIN,
            deadline,
            hedge: deadline / 4,
            queue: NonZeroUsize::new(4096).unwrap_or(NonZeroUsize::MIN),
        }
    }

    /// A process beside this one that has the keys, with the defaults.
    pub fn beside(name: impl Into<String>, passage: Arc<dyn Passage>) -> Self {
        let servers = vec![Place::Beside(passage)];
        Self { servers, ..Self::new(name, Vec::new(), ConnectorSettings::default()) }
    }

    /// How long a server that is asked for a sign of life because an operation waits may take before it counts as silent.
    pub(super) fn probe(&self) -> Duration {
        self.hedge / 2
    }
}
