//! Everything that a connection sent and received, with times, and the secrets that open it. Bounded.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use brisk_tls_client::Observer;

use crate::chain::printable;

/// Bytes kept of each direction: any handshake, and the beginning of the answer. Further bytes are only counted.
const KEPT: usize = 512 * 1024;

/// Reads and writes noted of each direction; later ones count as part of the last.
const PIECES: usize = 8192;

/// Secrets noted: a connection has five, and a key update adds none.
const SECRETS: usize = 16;

/// Who sent something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Party {
    /// This side.
    Client,
    /// The other side.
    Server,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Direction {
    /// The first bytes.
    pub(crate) bytes: Vec<u8>,
    /// The end of each read or write among all bytes, and when it was.
    pub(crate) pieces: Vec<(u64, Instant)>,
    /// All bytes.
    pub(crate) total: u64,
}

impl Direction {
    fn add(&mut self, at: Instant, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        self.total += bytes.len() as u64;
        if self.pieces.len() == PIECES {
            self.pieces.pop();
        }
        self.pieces.push((self.total, at));
    }

    /// When the byte before `end` was there.
    pub(crate) fn time_of(&self, end: u64) -> Option<Instant> {
        let index = self.pieces.partition_point(|(piece, _)| *piece < end);
        self.pieces.get(index).map(|(_, at)| *at)
    }
}

/// A secret under its label in NSS key logs.
#[derive(Clone)]
pub(crate) struct Secret {
    pub(crate) label: String,
    pub(crate) client_random: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({})", self.label)
    }
}

/// What the verifier said of the server's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing: no certificate came.
    #[default]
    Unknown,
    /// It is trusted.
    Trusted,
    /// It is not, for this reason.
    Distrusted(String),
}

impl Verdict {
    /// Why it is not trusted.
    pub(crate) fn distrust(&self) -> Option<&str> {
        match self {
            Self::Distrusted(reason) => Some(reason),
            _ => None,
        }
    }
}

/// What was noted of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    pub(crate) client: Direction,
    pub(crate) server: Direction,
    pub(crate) secrets: Vec<Secret>,
    /// The server's certificates (DER), as sent.
    pub(crate) chain: Vec<Vec<u8>>,
    pub(crate) staple: Vec<u8>,
    pub(crate) verdict: Verdict,
}

impl Noted {
    /// The direction in which `party` sends.
    pub(crate) fn from(&self, party: Party) -> &Direction {
        match party {
            Party::Client => &self.client,
            Party::Server => &self.server,
        }
    }

    /// The secret with this label.
    pub(crate) fn secret(&self, label: &str) -> Option<&[u8]> {
        self.secrets.iter().find(|secret| secret.label == label).map(|secret| &secret.value[..])
    }

    /// A key log in the format of NSS, which Wireshark reads.
    pub(crate) fn key_log(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let line = |secret: &Secret| {
            format!("{} {} {}\n", secret.label, hex(&secret.client_random), hex(&secret.value))
        };
        self.secrets.iter().map(line).collect()
    }
}

/// Watches one connection.
#[derive(Debug, Default)]
pub(crate) struct Capture(Mutex<Noted>);

impl Capture {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was noted until now.
    pub(crate) fn copy(&self) -> Noted {
        self.noted().clone()
    }
}

impl Observer for Capture {
    fn sent(&self, at: Instant, bytes: &[u8]) {
        self.noted().client.add(at, bytes);
    }

    fn received(&self, at: Instant, bytes: &[u8]) {
        self.noted().server.add(at, bytes);
    }

    fn chain(&self, certificates: &[&[u8]], staple: &[u8]) {
        let mut noted = self.noted();
        noted.chain = certificates.iter().map(|certificate| certificate.to_vec()).collect();
        noted.staple = staple.to_vec();
    }

    fn verified(&self, distrust: Option<&str>) {
        let mut noted = self.noted();
        match (distrust, &noted.verdict) {
            // The first reason stays.
            (_, Verdict::Distrusted(_)) => {}
            (Some(reason), _) => noted.verdict = Verdict::Distrusted(printable(reason)),
            (None, _) => noted.verdict = Verdict::Trusted,
        }
    }

    fn secret(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut noted = self.noted();
        if noted.secrets.len() < SECRETS {
            let (label, client_random) = (label.to_owned(), client_random.to_vec());
            noted.secrets.push(Secret { label, client_random, value: secret.to_vec() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_all_is_counted() {
        let capture = Capture::default();
        let start = Instant::now();
        for _ in 0..20_000 {
            capture.received(start, &[7; 100]);
        }
        let noted = capture.copy();
        assert_eq!((noted.server.bytes.len(), noted.server.total), (KEPT, 2_000_000));
        assert_eq!(noted.server.pieces.len(), PIECES);
        assert_eq!(noted.server.time_of(2_000_000), Some(start));
        assert_eq!(noted.server.time_of(2_000_001), None);
    }

    #[test]
    fn a_verdict_is_unknown_until_it_comes_and_a_reason_stays() {
        let capture = Capture::default();
        assert_eq!(capture.copy().verdict, Verdict::Unknown);
        capture.verified(None);
        assert_eq!(capture.copy().verdict, Verdict::Trusted);
        capture.verified(Some("no key"));
        capture.verified(None);
        assert_eq!(capture.copy().verdict.distrust(), Some("no key"));
    }
}
