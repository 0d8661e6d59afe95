//! Decryption of records in any version of TLS.

use brisk_wire::registry::ProtocolVersion;

use crate::message::ServerChoice;
use crate::open::Opener;
use crate::recording::{Party, Recording};
use crate::records::ContentType;
use crate::tls12::Tls12Opener;

/// Decryption of the records of one direction, in order, in any version of TLS.
#[derive(Debug)]
pub struct RecordOpener {
    keys: Keys,
    /// Before TLS 1.3: `change_cipher_spec` was sent, so all later records are encrypted.
    changed: bool,
}

#[derive(Debug)]
enum Keys {
    Tls13(Opener),
    /// `None` without a master secret, and for suites without AEAD.
    Older(Option<Tls12Opener>),
}

/// Result of [`RecordOpener::open`].
#[derive(Debug)]
pub struct OpenedRecord {
    /// The payload is encrypted.
    pub is_encrypted: bool,
    /// Type and content; `None` if no key opens the record.
    pub content: Option<(u8, Vec<u8>)>,
}

impl RecordOpener {
    /// Uses the secrets of a recording that contains the `ClientHello`; `chosen` is the `ServerHello`. Without secrets, opens
    /// unencrypted records only.
    pub fn new(chosen: Option<&ServerChoice>, recording: &Recording, party: Party) -> Self {
        let secret = |label: &&str| recording.secret(label);
        let keys = match chosen {
            Some(chosen) if chosen.version == ProtocolVersion::TLS1_3 => {
                // The order of use: `Opener` never returns to an earlier secret.
                let labels: &[&str] = match party {
                    Party::Client => &[
                        "CLIENT_EARLY_TRAFFIC_SECRET",
                        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
                        "CLIENT_TRAFFIC_SECRET_0",
                    ],
                    Party::Server => &["SERVER_HANDSHAKE_TRAFFIC_SECRET", "SERVER_TRAFFIC_SECRET_0"],
                };
                Keys::Tls13(Opener::new(chosen.suite, labels.iter().filter_map(secret)))
            }
            Some(chosen) => Keys::Older(secret(&"CLIENT_RANDOM").and_then(|master| {
                let client = recording.client_random()?;
                Tls12Opener::new(chosen.suite, master, [client, &chosen.random], party)
            })),
            None => Keys::Older(None),
        };
        Self { keys, changed: false }
    }

    /// Whether the version is TLS 1.3.
    pub fn is_tls13(&self) -> bool {
        matches!(self.keys, Keys::Tls13(_))
    }

    /// Opens the next record. Allocates its content.
    pub fn open(&mut self, header: [u8; 5], payload: &[u8]) -> OpenedRecord {
        let outer = ContentType::of(header[0]);
        let is_encrypted = match self.keys {
            // RFC 8446 section 5.2: every encrypted record has this type; the inner type is encrypted.
            Keys::Tls13(_) => outer == ContentType::ApplicationData,
            Keys::Older(_) => self.changed,
        };
        // After `is_encrypted`: the `change_cipher_spec` itself is not encrypted yet.
        self.changed |= !self.is_tls13() && outer == ContentType::ChangeCipherSpec;
        let content = match &mut self.keys {
            _ if !is_encrypted => Some((header[0], payload.to_vec())),
            Keys::Tls13(opener) => opener.open(header, payload),
            Keys::Older(opener) => {
                opener.as_mut().and_then(|opener| opener.open(header, payload)).map(|body| (header[0], body))
            }
        };
        OpenedRecord { is_encrypted, content }
    }
}
