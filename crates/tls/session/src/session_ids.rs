//! [`SessionIds`] of TLS 1.2 with a mark by which a fleet recognises its own.
//!
//! Clients also send random session IDs: with a ticket (RFC 5077 section 3.4), and Go's client even without one.
//! Without a mark each would cause a look-up and count as a missing session.

use std::{fmt, sync::LazyLock};

use aws_lc_rs::{hmac, rand};

use crate::{FleetSecret, Purpose};

/// Maximum length of a session ID (RFC 5246 section 7.4.1.2).
const ID_LEN: usize = 32;

/// Random bytes of an ID; the rest is the mark.
const RANDOM_LEN: usize = 24;

/// The key of processes without a fleet, whose sessions do not outlive it.
static OF_PROCESS: LazyLock<hmac::Key> = LazyLock::new(|| {
    let mut key = [0; 32];
    rand::fill(&mut key).expect("aws-lc ends the process when the system has no randomness");
    hmac::Key::new(hmac::HMAC_SHA256, &key)
});

/// Generates and recognizes session IDs: 24 random bytes, then 8 bytes of their HMAC-SHA256.
///
/// Without the key such an ID is indistinguishable from a random one, and so is its gateway. A random ID passes the
/// check with probability 2^-64, which costs one unnecessary look-up. A valid ID does not imply that its session still
/// exists.
#[derive(Clone)]
pub struct SessionIds(hmac::Key);

impl SessionIds {
    /// The IDs of all gateways with `secret`.
    pub fn of_fleet(secret: &FleetSecret) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &*secret.derive(Purpose::SessionIds)))
    }

    /// The IDs of this process.
    pub fn of_process() -> Self {
        Self(OF_PROCESS.clone())
    }

    /// Generates an ID; `None` if the system has no randomness.
    pub fn make(&self) -> Option<[u8; ID_LEN]> {
        let mut id = [0; ID_LEN];
        let (random, mark) = id.split_at_mut(RANDOM_LEN);
        rand::fill(random).ok()?;
        mark.copy_from_slice(&hmac::sign(&self.0, random).as_ref()[..ID_LEN - RANDOM_LEN]);
        Some(id)
    }

    /// Whether `id` was generated with the same key.
    pub fn are_ours(&self, id: &[u8]) -> bool {
        let Some((random, mark)) = id.split_at_checked(RANDOM_LEN) else { return false };
        // The comparison need not be constant-time: a guessed mark only causes a look-up.
        mark.len() == ID_LEN - RANDOM_LEN && hmac::sign(&self.0, random).as_ref().starts_with(mark)
    }
}

impl Default for SessionIds {
    fn default() -> Self {
        Self::of_process()
    }
}

impl fmt::Debug for SessionIds {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionIds").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_known_by_those_who_have_the_key() {
        let fleet = |byte| SessionIds::of_fleet(&FleetSecret::from_bytes(&[byte; 32]).unwrap());
        let id = fleet(1).make().unwrap();
        assert!(fleet(1).are_ours(&id));
        assert!(!fleet(2).are_ours(&id) && !SessionIds::of_process().are_ours(&id));
        let id = SessionIds::of_process().make().unwrap();
        assert!(SessionIds::default().are_ours(&id) && !fleet(1).are_ours(&id));
    }

    #[test]
    fn an_id_that_was_changed_or_has_another_length_is_not_ours() {
        let ids = SessionIds::of_process();
        let id = ids.make().unwrap();
        assert_ne!(id, ids.make().unwrap());
        for position in 0..ID_LEN {
            let mut changed = id;
            changed[position] ^= 1;
            assert!(!ids.are_ours(&changed), "byte {position}");
            assert!(!ids.are_ours(&id[..position]), "{position} bytes");
        }
        assert!(!ids.are_ours(&[&id[..], &[0]].concat()));
    }
}
