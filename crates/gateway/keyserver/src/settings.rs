//! Resolved settings of a key server: values are valid, files have been read.

use std::sync::Arc;

use brisk_keys::Keystore;
use brisk_net::ListenerSettings;
use brisk_server::ServerSettings;
use brisk_tls::mutual::MutualSettings;

use crate::policy::Policy;

/// Settings of a key server. A reload replaces them, except for those that are fixed at the start.
#[derive(Clone, Debug)]
pub struct KeyServerSettings {
    /// Threads, limits and files of the process.
    pub server: ServerSettings,
    /// Listeners, with TLS only. Fixed at the start.
    pub listen: Vec<ListenerSettings>,
    /// The server's certificate, and the trust anchors for clients.
    pub tls: MutualSettings,
    /// The private keys.
    pub keystore: Arc<Keystore>,
    /// Permissions of clients.
    pub policy: Arc<Policy>,
    /// Maximum number of concurrent operations per connection. Default: 1024.
    pub operations: u16,
}
