//! Dictionaries of RFC 9842: what a client has of an earlier answer, by its SHA-256.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// What a raw content dictionary must not begin with: zstd would take it for one of its own form.
const OWN_FORM: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// What `dcz` begins with: a skippable frame of zstd, of 32 bytes (RFC 9842 section 5).
const MAGIC: [u8; 8] = [0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0];

/// The bytes of an answer that clients may have, and their hash.
pub struct Dictionary {
    hash: [u8; 32],
    bytes: Vec<u8>,
}

impl Dictionary {
    /// The dictionary of these bytes; `None` if they are none that zstd takes as they are.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        if bytes.len() < 8 || bytes.starts_with(&OWN_FORM) {
            return None;
        }
        Some(Self { hash: Sha256::digest(&bytes).into(), bytes })
    }

    /// Its SHA-256, by which clients name it.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The 40 bytes that come before the frame of zstd.
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
