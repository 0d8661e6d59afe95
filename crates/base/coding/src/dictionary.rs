//! Dictionaries of compression dictionary transport (RFC 9842), identified by SHA-256.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Magic number of a formatted `zstd` dictionary (RFC 8878 section 5). Raw content that begins with it would be parsed
/// as one.
const OWN_FORM: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// Start of a `dcz` response: the header of a skippable `zstd` frame of 32 bytes, which contains the hash (RFC 9842
/// section 5).
const MAGIC: [u8; 8] = [0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0];

/// An earlier response that clients may use as a dictionary, with its hash.
pub struct Dictionary {
    hash: [u8; 32],
    bytes: Vec<u8>,
}

impl Dictionary {
    /// A dictionary with this content. `None` if `zstd` does not accept it as raw content: shorter than 8 bytes, or
    /// with `OWN_FORM` at its start.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        if bytes.len() < 8 || bytes.starts_with(&OWN_FORM) {
            return None;
        }
        Some(Self { hash: Sha256::digest(&bytes).into(), bytes })
    }

    /// SHA-256 of the content, as in `Available-Dictionary`.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The 40 bytes before the `zstd` frame of a `dcz` response.
    pub(crate) fn preface(&self) -> [u8; 40] {
        let mut preface = [0; 40];
        preface[..8].copy_from_slice(&MAGIC);
        preface[8..].copy_from_slice(&self.hash);
        preface
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}
