//! Certificates whose revocation was detected, so that each is replaced at once.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use brisk_certs::Fingerprint;
use tokio::sync::Notify;

/// Set of revoked certificates, filled from CRLs and OCSP responses. Clones share one set.
#[derive(Clone, Debug, Default)]
pub struct Revoked(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    all: Mutex<HashSet<Fingerprint>>,
    news: Notify,
}

impl Revoked {
    /// Adds a certificate and wakes the tasks of all hosts.
    pub fn note(&self, certificate: Fingerprint) {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner).insert(certificate);
        self.0.news.notify_waiters();
    }

    pub(crate) fn has(&self, certificate: Fingerprint) -> bool {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner).contains(&certificate)
    }

    /// Waits for the next addition. Additions before the call are not reported: callers check [`has`](Self::has) in
    /// each round.
    pub(crate) async fn news(&self) {
        self.0.news.notified().await;
    }
}
