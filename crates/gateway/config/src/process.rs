//! Components of a running process that configurations refer to and that persist across reloads.

use std::sync::{Arc, OnceLock};

use brisk_access::{PasswordFiles, PasswordThreads};
use brisk_certs::{Catalogues, OnDemandHosts, RefusedKeys};
use brisk_isolation::Isolation;
use brisk_jwt::KeySources;
use brisk_keyless::RemoteEngines;
use brisk_keys_pkcs11::Tokens;
use brisk_limits::Limits;
use brisk_sandbox::{Privileges, Rights};

/// Components of a running process that configurations refer to. Reading a configuration reuses existing ones and
/// creates others. By default there are none, as in a program that only checks a file.
#[derive(Debug, Default)]
pub struct Running {
    /// Connections to key servers.
    pub key_servers: RemoteEngines,
    /// Keys in tokens. Closed when this is dropped.
    pub tokens: Tokens,
    /// Folders of certificates by name.
    pub catalogues: Catalogues,
    /// Hosts with names on demand.
    pub on_demand: OnDemandHosts,
    /// Keys of certificates that the last configuration could not load.
    pub refused_keys: RefusedKeys,
    /// Files with users.
    pub password_files: PasswordFiles,
    /// Threads that verify passwords.
    pub password_threads: PasswordThreads,
    /// Limits of requests.
    pub limits: Limits,
    /// Keys of tokens by URL.
    pub token_keys: KeySources,
    /// The key process of `[keys] isolate`, if one was started.
    pub isolation: Option<Arc<Isolation>>,
    /// The rights of the process, set as it gives up others.
    pub rights: Rights,
}

impl Running {
    /// A process that was started with this key process, or without one, has these `privileges`, and has read no configuration.
    pub fn new(isolation: Option<Arc<Isolation>>, privileges: Privileges) -> Self {
        // `..Self::default()` is not possible: fields cannot be moved out of a type that implements `Drop`.
        let mut running = Self::default();
        running.isolation = isolation;
        running.rights.privileges = OnceLock::from(privileges);
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Modules take themselves apart when the process exits, which no call of them survives.
        self.tokens.close();
    }
}
