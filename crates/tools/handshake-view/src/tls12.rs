//! Record protection of TLS 1.2 with a known master secret: AES-GCM (RFC 5288) and ChaCha20-Poly1305 (RFC 7905).

use std::fmt;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::tls_prf::{self, P_SHA256, P_SHA384};
use brisk_wire::registry::CipherSuite;
use brisk_wire::suites;

use crate::recording::Party;

/// Part of the nonce that each record of AES-GCM contains.
const EXPLICIT: usize = 8;

/// Decryption of the records of one direction, in order, from the first one after `change_cipher_spec`.
pub(crate) struct Tls12Opener {
    cipher: LessSafeKey,
    /// 4 bytes for AES-GCM, 12 for ChaCha20-Poly1305.
    iv: Vec<u8>,
    seq: u64,
}

impl fmt::Debug for Tls12Opener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls12Opener").finish_non_exhaustive()
    }
}

impl Tls12Opener {
    /// Derives the keys of records from `from`; `randoms` are those of client and server. `None` for suites with other ciphers.
    pub(crate) fn new(
        suite: CipherSuite,
        master: &[u8],
        randoms: [&[u8; 32]; 2],
        from: Party,
    ) -> Option<Self> {
        let name = suites::find(suite)?.name;
        let (cipher, hash, iv_len) = if name.ends_with("_AES_128_GCM_SHA256") {
            (&aead::AES_128_GCM, &P_SHA256, 4)
        } else if name.ends_with("_AES_256_GCM_SHA384") {
            (&aead::AES_256_GCM, &P_SHA384, 4)
        } else if name.ends_with("_CHACHA20_POLY1305_SHA256") {
            (&aead::CHACHA20_POLY1305, &P_SHA256, 12)
        } else {
            return None;
        };
        // RFC 5246 section 6.3: keys of client and server, then their IVs. AEAD needs no keys for a MAC.
        let key_len = cipher.key_len();
        let secret = tls_prf::Secret::new(hash, master).ok()?;
        let [client, server] = randoms;
        let length = 2 * (key_len + iv_len);
        // The server's random is first here, unlike in the master secret.
        let block = secret.derive_with_seed_concatination(b"key expansion", server, client, length).ok()?;
        let (keys, ivs) = block.as_ref().split_at(2 * key_len);
        let (key, iv) = match from {
            Party::Client => (&keys[..key_len], &ivs[..iv_len]),
            Party::Server => (&keys[key_len..], &ivs[iv_len..]),
        };
        let cipher = LessSafeKey::new(UnboundKey::new(cipher, key).ok()?);
        Some(Self { cipher, iv: iv.to_vec(), seq: 0 })
    }

    /// Content of a record; `None` if the key does not open it. Allocates the content.
    pub(crate) fn open(&mut self, header: [u8; 5], payload: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; 12];
        nonce[..self.iv.len()].copy_from_slice(&self.iv);
        // RFC 7905 section 2: the nonce is the IV with the sequence number. RFC 5288 section 3: with AES-GCM,
        // the record contains 8 bytes of the nonce.
        let sealed = if self.iv.len() == nonce.len() {
            for (byte, part) in nonce[4..].iter_mut().zip(self.seq.to_be_bytes()) {
                *byte ^= part;
            }
            payload
        } else {
            let (explicit, sealed) = payload.split_at_checked(EXPLICIT)?;
            nonce[4..].copy_from_slice(explicit);
            sealed
        };
        let length = sealed.len().checked_sub(self.cipher.algorithm().tag_len())?;
        let length = u16::try_from(length).ok()?.to_be_bytes();
        let [kind, major, minor, ..] = header;
        // RFC 5246 section 6.2.3.3: the length is that of the plaintext, not the one in the header.
        let aad = [&self.seq.to_be_bytes()[..], &[kind, major, minor], &length].concat();
        let mut buffer = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let length = self.cipher.open_in_place(nonce, Aad::from(aad), &mut buffer).ok()?.len();
        buffer.truncate(length);
        self.seq += 1;
        Some(buffer)
    }
}
