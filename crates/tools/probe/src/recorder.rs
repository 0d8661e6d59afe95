//! Recorder of a live connection: bytes, secrets, the server's chain and the verdict on it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use brisk_handshake_view::{Party, Recording};
use brisk_report::text::printable;
use brisk_tls_client::Observer;

/// Verdict of certificate verification by the TLS client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The server sent no certificate.
    #[default]
    Unknown,
    /// The chain is trusted.
    Trusted,
    /// The chain is not trusted, for this reason.
    Distrusted(String),
}

impl Verdict {
    /// Reason why the chain is not trusted; `None` unless [`Self::Distrusted`].
    pub(crate) fn distrust(&self) -> Option<&str> {
        match self {
            Self::Distrusted(reason) => Some(reason),
            _ => None,
        }
    }
}

/// Contents of a [`Recorder`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// Bytes and secrets.
    pub(crate) recording: Recording,
    /// Certificates of the server (DER) in the order of the server.
    pub(crate) chain: Vec<Vec<u8>>,
    /// Stapled OCSP response; empty for none.
    pub(crate) staple: Vec<u8>,
    pub(crate) verdict: Verdict,
}

/// Observer of one connection of the TLS client.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Recorded>);

impl Recorder {
    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of the [`Recorded`] contents.
    pub(crate) fn copy(&self) -> Recorded {
        self.recorded().clone()
    }
}

impl Observer for Recorder {
    fn sent(&self, at: Instant, bytes: &[u8]) {
        self.recorded().recording.record(Party::Client, at, bytes);
    }

    fn received(&self, at: Instant, bytes: &[u8]) {
        self.recorded().recording.record(Party::Server, at, bytes);
    }

    fn chain(&self, certificates: &[&[u8]], staple: &[u8]) {
        let mut recorded = self.recorded();
        recorded.chain = certificates.iter().map(|certificate| certificate.to_vec()).collect();
        recorded.staple = staple.to_vec();
    }

    fn verified(&self, distrust: Option<&str>) {
        let mut recorded = self.recorded();
        match (distrust, &recorded.verdict) {
            // The first reason is kept.
            (_, Verdict::Distrusted(_)) => {}
            (Some(reason), _) => recorded.verdict = Verdict::Distrusted(printable(reason)),
            (None, _) => recorded.verdict = Verdict::Trusted,
        }
    }

    fn secret(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        self.recorded().recording.add_secret(label, client_random, secret);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_unknown_until_it_comes_and_a_reason_stays() {
        let recorder = Recorder::default();
        assert_eq!(recorder.copy().verdict, Verdict::Unknown);
        recorder.verified(None);
        assert_eq!(recorder.copy().verdict, Verdict::Trusted);
        recorder.verified(Some("no key"));
        recorder.verified(None);
        assert_eq!(recorder.copy().verdict.distrust(), Some("no key"));
    }
}
