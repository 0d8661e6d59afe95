//! Settings of a set of key servers.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use brisk_net::Target;
use brisk_tls::connector::ConnectorSettings;

use super::address::{KeyProcessConnector, KeyServerAddress};

/// Maximum number of servers in a set: the bit set of each operation has 64 bits.
pub(super) const MOST_SERVERS: usize = 64;

/// Settings of a set of key servers. All of them hold the same keys, so that any of them can perform an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSettings {
    /// Name of the set in configuration, logs and metrics.
    pub name: String,
    /// The servers, 1 to 64.
    pub servers: Vec<KeyServerAddress>,
    /// Name in the certificates of the servers. Default: the host of the server's address.
    pub server_name: Option<String>,
    /// Trust anchors and client certificate. The engine sets protocols and versions.
    pub tls: ConnectorSettings,
    /// Identifies the contents of the files that `tls` names, so that settings with changed files differ.
    pub stamp: Vec<u8>,
    /// Connections to each of the `servers`. Default: 1.
    pub connections: NonZeroUsize,
    /// Timeout of an operation, with all attempts. Default: 1 s.
    pub deadline: Duration,
    /// Time without a response after which a second server gets the operation. Default: a quarter of `deadline`.
    pub hedge: Duration,
    /// Maximum number of operations in progress; further ones fail with
    /// [`KeyError::Overloaded`](brisk_keys::KeyError::Overloaded). Default: 4096.
    pub queue: NonZeroUsize,
}

impl RemoteSettings {
    /// Settings for `servers`, with defaults otherwise.
    pub fn new(name: impl Into<String>, servers: Vec<Target>, tls: ConnectorSettings) -> Self {
        let deadline = Duration::from_secs(1);
        Self {
            name: name.into(),
            servers: servers.into_iter().map(KeyServerAddress::Network).collect(),
            server_name: None,
            tls,
            stamp: Vec::new(),
            connections: NonZeroUsize::MIN,
            deadline,
            hedge: deadline / 4,
            queue: NonZeroUsize::new(4096).unwrap_or(NonZeroUsize::MIN),
        }
    }

    /// Settings for a local key process, with defaults otherwise.
    pub fn local(name: impl Into<String>, passage: Arc<dyn KeyProcessConnector>) -> Self {
        let servers = vec![KeyServerAddress::Local(passage)];
        Self { servers, ..Self::new(name, Vec::new(), ConnectorSettings::default()) }
    }

    /// Time to respond to a `PING` while an operation is waiting, before the server counts as silent.
    pub(super) fn probe(&self) -> Duration {
        self.hedge / 2
    }
}
