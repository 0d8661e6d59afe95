//! A session-ticket key: format, sealing and opening of tickets.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    digest::{SHA256, digest},
    rand,
};
use zeroize::{Zeroize, Zeroizing};

use crate::{OpenError, rotation::Seconds};

/// Prefix of each ticket, in clear. Identifies the key and reveals nothing else.
pub(crate) type KeyName = [u8; NAME_LEN];

const NAME_LEN: usize = 16;
const KEY_LEN: usize = 32;
const TAG_LEN: usize = 16;
const TIME_LEN: usize = size_of::<Seconds>();
const HEAD_LEN: usize = NAME_LEN + NONCE_LEN;

/// NIST SP 800-38D section 8.3: at most 2^32 messages under one key with random nonces, so that a nonce repeats with
/// probability 2^-33. Each process counts for itself: n gateways with one key that all reach the limit have n^2 times
/// that probability, which is 2^-25 for sixteen.
const MOST_SEALED: u64 = 1 << 32;

/// Length of a key's name followed by its bytes.
pub(crate) const MATERIAL_LEN: usize = NAME_LEN + KEY_LEN;

/// Name and cipher key of a ticket key.
#[derive(Clone)]
pub(crate) struct KeyMaterial(Zeroizing<[u8; MATERIAL_LEN]>);

impl KeyMaterial {
    /// Generates a random key.
    pub(crate) fn generate() -> Self {
        let mut material = Zeroizing::new([0; MATERIAL_LEN]);
        rand::fill(&mut *material).expect("aws-lc ends the process when the system has no randomness");
        Self(material)
    }

    pub(crate) fn name(&self) -> &KeyName {
        self.0.first_chunk().expect("the name comes first")
    }

    pub(crate) fn id(&self) -> TicketKeyId {
        TicketKeyId::of(self.name())
    }

    pub(crate) fn as_bytes(&self) -> &[u8; MATERIAL_LEN] {
        &self.0
    }
}

impl From<Zeroizing<[u8; MATERIAL_LEN]>> for KeyMaterial {
    fn from(material: Zeroizing<[u8; MATERIAL_LEN]>) -> Self {
        Self(material)
    }
}

/// The ID of a ticket key for operators: the first four bytes of the SHA-256 of its name, as eight hexadecimal digits.
///
/// It is the same on all gateways that have the key. Tickets do not contain it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketKeyId([u8; 4]);

impl TicketKeyId {
    fn of(name: &KeyName) -> Self {
        let digest = digest(&SHA256, name);
        Self(*digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for TicketKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TicketKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key that seals and opens tickets. The format is that of RFC 5077 section 4, with an AEAD:
///
/// ```text
/// name (16) | nonce (12) | encrypted: session, time of sealing (8) | tag (16)
/// ```
///
/// The time is encrypted, so that a ticket, which TLS 1.2 sends in clear, does not reveal when its client connected
/// before. The cipher is initialised once. The bytes of the key are kept for the process that takes over from this one, and wiped
/// when the key is dropped, as aws-lc does with its own copy.
pub(crate) struct TicketKey {
    name: KeyName,
    cipher: LessSafeKey,
    material: KeyMaterial,
    uses: Uses,
    /// Tickets that other processes may have sealed before this one got the key.
    sealed_before: u64,
}

/// Aligned so that these counters, which all threads write, do not share cache lines with data that they read.
#[derive(Default)]
#[repr(align(128))]
struct Uses {
    sealed: AtomicU64,
    opened: AtomicU64,
}

impl TicketKey {
    pub(crate) fn new(material: &KeyMaterial) -> Self {
        Self::passed(material, 0)
    }

    /// A key that another process has passed to this one, and with which up to `sealed_before` tickets were sealed.
    pub(crate) fn passed(material: &KeyMaterial, sealed_before: u64) -> Self {
        let (name, key) = material.0.split_at(NAME_LEN);
        let unbound = UnboundKey::new(&AES_256_GCM, key).expect("AES-256 takes any 32 bytes");
        let name = name.try_into().expect("the name comes first");
        let cipher = LessSafeKey::new(unbound);
        Self { name, cipher, material: material.clone(), uses: Uses::default(), sealed_before }
    }

    pub(crate) const fn material(&self) -> &KeyMaterial {
        &self.material
    }

    /// Tickets sealed with the key in this process and before, at most.
    pub(crate) fn sealed_ever(&self) -> u64 {
        self.sealed_before.saturating_add(self.sealed())
    }

    pub(crate) const fn name(&self) -> &KeyName {
        &self.name
    }

    pub(crate) fn id(&self) -> TicketKeyId {
        TicketKeyId::of(&self.name)
    }

    /// Tickets sealed in this process, including attempts beyond the limit.
    pub(crate) fn sealed(&self) -> u64 {
        self.uses.sealed.load(Ordering::Relaxed)
    }

    /// Tickets opened in this process, including expired ones.
    pub(crate) fn opened(&self) -> u64 {
        self.uses.opened.load(Ordering::Relaxed)
    }

    /// Whether `ticket` names this key.
    pub(crate) fn is_named_by(&self, ticket: &[u8]) -> bool {
        ticket.starts_with(&self.name)
    }

    /// Seals `session` into a ticket; `None` if the key has reached [`MOST_SEALED`]. One allocation.
    pub(crate) fn seal(&self, session: &[u8], now: Seconds) -> Option<Vec<u8>> {
        // Counted before the nonce is drawn, so that concurrent threads cannot exceed the limit together.
        let sealed = self.uses.sealed.fetch_add(1, Ordering::Relaxed);
        if self.sealed_before.saturating_add(sealed) >= MOST_SEALED {
            return None;
        }
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        // Of the final size: a growing vector would leave copies of the session behind.
        let mut ticket = Vec::with_capacity(HEAD_LEN + session.len() + TIME_LEN + TAG_LEN);
        ticket.extend_from_slice(&self.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(session);
        ticket.extend_from_slice(&now.to_be_bytes());
        let sealed = self.cipher.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(self.name),
            &mut ticket[HEAD_LEN..],
        );
        let Ok(tag) = sealed else {
            // It contains the session in plain text.
            ticket.zeroize();
            return None;
        };
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    /// The session in `ticket` and the time of its sealing. One allocation.
    pub(crate) fn open(&self, ticket: &[u8]) -> Result<(Zeroizing<Vec<u8>>, Seconds), OpenError> {
        let (_name, rest) = ticket.split_at_checked(NAME_LEN).ok_or(OpenError::Forged)?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>().ok_or(OpenError::Forged)?;
        let (encrypted, tag) = rest.split_last_chunk::<TAG_LEN>().ok_or(OpenError::Forged)?;
        let mut session = Zeroizing::new(vec![0; encrypted.len()]);
        self.cipher
            .open_separate_gather(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(self.name),
                encrypted,
                tag,
                &mut session,
            )
            .map_err(|_| OpenError::Forged)?;
        let sealed_at = *session.last_chunk::<TIME_LEN>().ok_or(OpenError::Forged)?;
        let session_len = session.len() - TIME_LEN;
        session.truncate(session_len);
        self.uses.opened.fetch_add(1, Ordering::Relaxed);
        Ok((session, Seconds::from_be_bytes(sealed_at)))
    }
}

impl fmt::Debug for TicketKey {
    /// Prints the ID only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TicketKey").field(&self.id()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TicketKey {
        TicketKey::new(&KeyMaterial::generate())
    }

    #[test]
    fn a_ticket_opens_to_what_was_sealed_and_when() {
        let key = key();
        for session in [&b""[..], b"x", &[7; 3000]] {
            let ticket = key.seal(session, 1234).unwrap();
            assert_eq!(ticket.len(), session.len() + 52);
            assert_eq!(ticket.capacity(), ticket.len());
            let (opened, sealed_at) = key.open(&ticket).unwrap();
            assert_eq!((opened.as_slice(), sealed_at), (session, 1234));
        }
    }

    #[test]
    fn two_tickets_of_one_session_share_nothing_but_the_name() {
        let key = key();
        let [one, two] = [(); 2].map(|()| key.seal(b"the same session", 5).unwrap());
        assert_eq!(one[..NAME_LEN], two[..NAME_LEN]);
        assert_ne!(one[NAME_LEN..HEAD_LEN], two[NAME_LEN..HEAD_LEN]);
        assert_ne!(one[HEAD_LEN..], two[HEAD_LEN..]);
    }

    #[test]
    fn a_change_in_any_byte_after_the_name_is_noticed() {
        let key = key();
        let ticket = key.seal(b"session", 5).unwrap();
        for position in NAME_LEN..ticket.len() {
            let mut changed = ticket.clone();
            changed[position] ^= 1;
            assert_eq!(key.open(&changed).unwrap_err(), OpenError::Forged, "byte {position}");
        }
    }

    #[test]
    fn a_ticket_cut_short_anywhere_is_forged() {
        let key = key();
        let ticket = key.seal(b"session", 5).unwrap();
        for length in 0..ticket.len() {
            assert_eq!(key.open(&ticket[..length]).unwrap_err(), OpenError::Forged, "{length} bytes");
        }
    }

    #[test]
    fn a_key_stops_before_random_nonces_may_repeat() {
        let key = key();
        key.uses.sealed.store(MOST_SEALED - 1, Ordering::Relaxed);
        assert!(key.seal(b"the last", 5).is_some());
        assert!(key.seal(b"one too many", 5).is_none());
        let passed = TicketKey::passed(key.material(), MOST_SEALED - 1);
        assert!(passed.seal(b"the last", 5).is_some());
        assert!(passed.seal(b"one too many", 5).is_none());
    }
}
