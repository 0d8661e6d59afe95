//! Encryption of data in Redis: names do not reveal session IDs, values do not reveal sessions.
//!
//! Every session is sealed with a key of its own, derived from the fleet's key and the session's ID. Therefore a
//! fleet's key may seal any number of sessions, whereas a single AES-GCM key with random nonces is limited to 2^32. A
//! value that was put under another name, or was the reply to another command, does not open.

use std::fmt;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac, rand,
};
use zeroize::Zeroizing;

use super::epoch::Epoch;
use crate::{FleetSecret, Purpose, rotation::Seconds};

/// First byte of a value, and part of its associated data.
pub(super) const VERSION: &[u8] = &[1];

/// Associated data of a session, which changes with the format.
const SESSION: &[u8] = b"session 2";

const TAG_LEN: usize = 16;

/// Name of a session in Redis, without the prefix.
pub(super) type Name = [u8; 16];

/// Seals and names sessions with the keys of one [`FleetSecret`].
pub(super) struct Sealer {
    seal: hmac::Key,
    names: hmac::Key,
}

/// An opened session from Redis. Wiped when dropped.
pub(super) struct Stored {
    /// Time of the put, by the clock of the gateway that executed it.
    pub(super) put: Seconds,
    /// Time of expiry.
    pub(super) expires: Seconds,
    /// [`Epoch`] of the server when the session was put.
    pub(super) epoch: Epoch,
    /// The session, as [`Sealer::seal`] got it.
    pub(super) session: Zeroizing<Vec<u8>>,
}

impl Sealer {
    pub(super) fn new(secret: &FleetSecret) -> Self {
        let key = |purpose| hmac::Key::new(hmac::HMAC_SHA256, &*secret.derive(purpose));
        Self { seal: key(Purpose::StoreSeal), names: key(Purpose::StoreIds) }
    }

    pub(super) fn name(&self, id: &[u8]) -> Name {
        let tag = hmac::sign(&self.names, id);
        *tag.as_ref().first_chunk().expect("HMAC-SHA256 has 32 bytes")
    }

    /// The value for a session put at the time `put` that expires at `expires`.
    pub(super) fn seal(
        &self,
        id: &[u8],
        (put, expires): (Seconds, Seconds),
        epoch: Epoch,
        session: &[u8],
    ) -> Vec<u8> {
        let (put, expires) = (put.to_be_bytes(), expires.to_be_bytes());
        sealed(&self.key(id), SESSION, &[&put, &expires, epoch.as_bytes(), session])
    }

    /// Opens a value. `None` if this fleet did not seal it for `id`, or if it was modified.
    pub(super) fn open(&self, id: &[u8], value: Vec<u8>) -> Option<Stored> {
        let mut value = Zeroizing::new(value);
        let plain = opened(&self.key(id), SESSION, &mut value)?;
        let (put, rest) = plain.split_first_chunk()?;
        let (expires, rest) = rest.split_first_chunk()?;
        let (epoch, session) = rest.split_first_chunk()?;
        Some(Stored {
            put: Seconds::from_be_bytes(*put),
            expires: Seconds::from_be_bytes(*expires),
            epoch: Epoch::from(*epoch),
            session: Zeroizing::new(session.to_vec()),
        })
    }

    fn key(&self, id: &[u8]) -> LessSafeKey {
        let key = hmac::sign(&self.seal, id);
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).expect("HMAC-SHA256 has 32 bytes"))
    }
}

/// Seals the concatenation of `plain` as `version (1) | nonce (12) | encrypted | tag (16)`; `context` is the associated
/// data. Nonces are random, so `key` may seal 2^32 values.
pub(super) fn sealed(key: &LessSafeKey, context: &[u8], plain: &[&[u8]]) -> Vec<u8> {
    let mut nonce = [0; NONCE_LEN];
    rand::fill(&mut nonce).expect("the system's randomness");
    let length: usize = plain.iter().map(|part| part.len()).sum();
    // Of the final size: a growing vector would leave copies of the session behind.
    let mut value = Vec::with_capacity(VERSION.len() + NONCE_LEN + length + TAG_LEN);
    value.extend_from_slice(VERSION);
    value.extend_from_slice(&nonce);
    let start = value.len();
    for part in plain {
        value.extend_from_slice(part);
    }
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key
        .seal_in_place_separate_tag(nonce, Aad::from(context), &mut value[start..])
        .expect("the contents are shorter than what AES-GCM can seal");
    value.extend_from_slice(tag.as_ref());
    value
}

/// Decrypts a value in place. `None` if it was not sealed with `key` and `context`.
pub(super) fn opened<'a>(key: &LessSafeKey, context: &[u8], value: &'a mut [u8]) -> Option<&'a mut [u8]> {
    let (version, rest) = value.split_at_mut_checked(VERSION.len())?;
    if *version != *VERSION {
        return None;
    }
    let (nonce, encrypted) = rest.split_first_chunk_mut::<NONCE_LEN>()?;
    let nonce = Nonce::assume_unique_for_key(*nonce);
    key.open_in_place(nonce, Aad::from(context), encrypted).ok()
}

impl fmt::Debug for Sealer {
    /// Omits the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(byte: u8) -> Sealer {
        Sealer::new(&FleetSecret::from_bytes(&[byte; 32]).unwrap())
    }

    #[test]
    fn what_was_sealed_opens_for_the_same_fleet_and_id_alone() {
        let epoch = Epoch::from([7; 16]);
        let value = sealer(1).seal(b"id", (1000, 1234), epoch, b"session");
        let stored = sealer(1).open(b"id", value.clone()).unwrap();
        assert_eq!((stored.put, stored.expires), (1000, 1234));
        assert_eq!((stored.epoch, &stored.session[..]), (epoch, &b"session"[..]));
        assert!(sealer(2).open(b"id", value.clone()).is_none());
        assert!(sealer(1).open(b"other", value.clone()).is_none());
        for index in 0..value.len() {
            let mut changed = value.clone();
            changed[index] ^= 1;
            assert!(sealer(1).open(b"id", changed).is_none(), "byte {index}");
            assert!(sealer(1).open(b"id", value[..index].to_vec()).is_none(), "{index} bytes");
        }
    }

    #[test]
    fn stored_values_reveal_neither_id_nor_session() {
        let session = [0x5a; 64];
        let value = sealer(1).seal(&[0x33; 32], (0, 0), Epoch::UNKNOWN, &session);
        assert!(!value.windows(8).any(|part| part == &session[..8]));
        assert_ne!(value, sealer(1).seal(&[0x33; 32], (0, 0), Epoch::UNKNOWN, &session), "nonces differ");
        assert_ne!(sealer(1).name(&[0x33; 32]), [0x33; 16]);
        assert_ne!(sealer(1).name(b"id"), sealer(2).name(b"id"));
        assert_eq!(format!("{:?}", sealer(1)), "Sealer { .. }");
    }
}
