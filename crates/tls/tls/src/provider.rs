//! The [`CryptoProvider`] that [`rustls`] uses in the server.

use rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom, aws_lc_rs};

use crate::{groups, notes};

/// Forward-secret AEAD suites, the cheapest first, and four groups, post-quantum first.
pub(crate) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: brisk_tls_base::suites().to_vec(),
        kx_groups: groups::all(),
        secure_random: &Randomness,
        ..aws_lc_rs::default_provider()
    }
}

/// Randomness of aws-lc, except for the ID of a new TLS 1.2 session, which is taken from [`notes`].
#[derive(Debug)]
struct Randomness;

impl SecureRandom for Randomness {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        let mut id = None;
        // Taken in any case: an ID that was not used must not become that of a later session.
        notes::update(|notes| id = notes.session_id.take());
        // rustls has no hook for session IDs of TLS 1.2; the next random value it draws after `can_cache` is that ID.
        if let Some(id) = id.filter(|id| id.len() == bytes.len()) {
            bytes.copy_from_slice(&id);
            return Ok(());
        }
        ::aws_lc_rs::rand::fill(bytes).map_err(|_| GetRandomFailed)
    }
}
