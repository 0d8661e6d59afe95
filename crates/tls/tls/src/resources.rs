//! Resources that the handshakes of all hosts share.

use std::sync::Arc;
use std::time::SystemTime;

use brisk_certs::Challenges;
use brisk_session::{
    KeySource, MemorySettings, MemoryStore, RotationSettings, SessionIds, SessionStore, TicketKeyring,
};

use crate::gate::KeyGate;

/// Resources of handshakes besides their settings. They outlive a reload, so that sessions remain valid.
#[derive(Clone, Debug)]
pub struct Resources {
    /// Sessions of all hosts by ID or PSK identity. A session resumes only under the name it was made for.
    pub sessions: Arc<dyn SessionStore>,
    /// The ticket keys, which seal and open tickets if [`TlsSettings::tickets`](crate::TlsSettings::tickets) is set.
    pub keyring: Arc<TicketKeyring>,
    /// Generates the session IDs of TLS 1.2, and recognizes them.
    pub session_ids: SessionIds,
    /// Limits of the key operations of one client.
    pub key_gate: KeyGate,
    /// Responses to authorities that validate by `tls-alpn-01` (RFC 8737).
    pub challenges: Arc<Challenges>,
}

impl Resources {
    /// Resources of a process without a fleet: sessions and ticket keys in memory, and no limits.
    pub fn of_process(now: SystemTime) -> Self {
        Self {
            sessions: Arc::new(MemoryStore::new(&MemorySettings::default())),
            keyring: Arc::new(TicketKeyring::new(KeySource::Generated(RotationSettings::default()), now)),
            session_ids: SessionIds::default(),
            key_gate: KeyGate::default(),
            challenges: Challenges::new(),
        }
    }
}
