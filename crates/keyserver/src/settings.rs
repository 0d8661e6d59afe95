//! The whole configuration of a key server, resolved: values are valid, files are read.

use std::sync::Arc;

use brisk_keys::Keystore;
use brisk_net::ListenerSettings;
use brisk_server::ServerSettings;
use brisk_tls::mutual::MutualSettings;

use crate::policy::Policy;

/// The settings of a key server. Replaced whole on reload, but for those that are fixed at the start.
#[derive(Clone, Debug)]
pub struct KeyServerSettings {
    /// Threads, limits and files: what does not depend on what is served.
    pub server: ServerSettings,
    /// Listeners. Fixed at the start.
    pub listen: Vec<ListenerSettings>,
    /// The certificate of the server, and who may issue those of clients.
    pub tls: MutualSettings,
    /// The private keys.
    pub keystore: Arc<Keystore>,
    /// What each client may do.
    pub policy: Arc<Policy>,
    /// Operations of one connection under way at a time. Default: 1024.
    pub operations: u16,
}

impl AsRef<ServerSettings> for KeyServerSettings {
    fn as_ref(&self) -> &ServerSettings {
        &self.server
    }
}
