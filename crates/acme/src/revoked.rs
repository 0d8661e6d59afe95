//! Certificates that turned out to be revoked while they were shown: each is replaced at once.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use brisk_certs::Fingerprint;
use tokio::sync::Notify;

/// What is revoked, as revocation lists and responders say. All copies share it.
#[derive(Clone, Debug, Default)]
pub struct Revoked(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    all: Mutex<HashSet<Fingerprint>>,
    news: Notify,
}

impl Revoked {
    /// Notes that this certificate is revoked.
    pub fn note(&self, certificate: Fingerprint) {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner).insert(certificate);
        self.0.news.notify_waiters();
    }

    pub(crate) fn has(&self, certificate: Fingerprint) -> bool {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner).contains(&certificate)
    }

    /// Resolves with the next that is noted. Those who do not wait at the time hear nothing.
    pub(crate) async fn news(&self) {
        self.0.news.notified().await;
    }
}
