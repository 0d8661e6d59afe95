//! Bytes of a connection in both directions with their times, and the secrets of its key log. Bounded.

use std::fmt::{self, Write};
use std::time::Instant;

/// Bytes kept of each direction: any handshake, and the beginning of the response. Further bytes are only counted.
const KEPT: usize = 512 * 1024;

/// Reads and writes kept of each direction; later ones extend the last.
const PIECES: usize = 8192;

/// Secrets kept: a connection has five, and key updates add none.
const SECRETS: usize = 16;

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Party {
    /// The side that connected.
    Client,
    /// The side that accepted.
    Server,
}

/// Bytes that one side sent.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// The first 512 KiB.
    pub bytes: Vec<u8>,
    /// Reads, writes or packets: offset of the end in the stream, and time.
    pub pieces: Vec<(u64, Instant)>,
    /// Number of all bytes.
    pub total: u64,
}

impl Direction {
    fn add(&mut self, at: Instant, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        self.total += bytes.len() as u64;
        // The new piece replaces the last, so that its end still covers all bytes.
        if self.pieces.len() == PIECES {
            self.pieces.pop();
        }
        self.pieces.push((self.total, at));
    }

    /// Time of the piece that contains the byte before offset `end`; `None` beyond the last piece.
    pub(crate) fn time_of(&self, end: u64) -> Option<Instant> {
        // The binary search is valid, because the ends of pieces never decrease.
        let index = self.pieces.partition_point(|(piece, _)| *piece < end);
        self.pieces.get(index).map(|(_, at)| *at)
    }
}

/// A secret under its label in NSS key logs.
#[derive(Clone)]
struct Secret {
    label: String,
    client_random: Vec<u8>,
    value: Vec<u8>,
}

// By hand, because a derived `Debug` would print the value.
impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({})", self.label)
    }
}

/// Recorded bytes and secrets of one connection, the input of [`ConnectionView::read`](crate::ConnectionView::read).
///
/// Times are `Instant`s. A reader of packets adds the time of each packet since the first to any one `Instant`.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Bytes from the client.
    pub client: Direction,
    /// Bytes from the server.
    pub server: Direction,
    secrets: Vec<Secret>,
}

impl Recording {
    /// Appends bytes that `party` sent; `at` is the time of the read, write or packet. Copies the first 512 KiB of a direction.
    pub fn record(&mut self, party: Party, at: Instant, bytes: &[u8]) {
        match party {
            Party::Client => self.client.add(at, bytes),
            Party::Server => self.server.add(at, bytes),
        }
    }

    /// Adds a line of a key log; `label` is that of NSS, e.g. `CLIENT_TRAFFIC_SECRET_0`. Ignored after 16 secrets.
    pub fn add_secret(&mut self, label: &str, client_random: &[u8], secret: &[u8]) {
        if self.secrets.len() < SECRETS {
            let (label, client_random) = (label.to_owned(), client_random.to_vec());
            self.secrets.push(Secret { label, client_random, value: secret.to_vec() });
        }
    }

    /// The direction in which `party` sends.
    pub fn from(&self, party: Party) -> &Direction {
        match party {
            Party::Client => &self.client,
            Party::Server => &self.server,
        }
    }

    /// Random of a `ClientHello` at the beginning of the client's bytes, by which key logs name a connection.
    pub fn client_random(&self) -> Option<&[u8; 32]> {
        // 5 bytes of the record header, 4 of the message header and 2 of the version precede the random.
        let hello = self.client.bytes.get(11..)?;
        hello.first_chunk().filter(|_| self.client.bytes[0] == 22 && self.client.bytes[5] == 1)
    }

    /// The first secret with this label.
    pub(crate) fn secret(&self, label: &str) -> Option<&[u8]> {
        self.secrets.iter().find(|secret| secret.label == label).map(|secret| &secret.value[..])
    }

    /// The secrets in the key log format of NSS, which Wireshark reads.
    pub fn key_log(&self) -> String {
        let hex = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut text, byte| {
                // Writing to a string cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        let line = |secret: &Secret| {
            format!("{} {} {}\n", secret.label, hex(&secret.client_random), hex(&secret.value))
        };
        self.secrets.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_keeps_a_bounded_number_of_bytes_and_counts_all() {
        let mut recording = Recording::default();
        let start = Instant::now();
        for _ in 0..20_000 {
            recording.record(Party::Server, start, &[7; 100]);
        }
        let server = &recording.server;
        assert_eq!((server.bytes.len(), server.total), (KEPT, 2_000_000));
        assert_eq!(server.pieces.len(), PIECES);
        assert_eq!(server.time_of(2_000_000), Some(start));
        assert_eq!(server.time_of(2_000_001), None);
    }
}
