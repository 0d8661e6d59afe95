//! Record protection of TLS 1.3 with known secrets: opening and sealing (RFC 8446 section 5.2).

use std::fmt;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use brisk_wire::registry::CipherSuite;

/// Key updates followed in one direction.
const UPDATES: usize = 64;

/// Decryption of the records of one direction, in order. Follows key changes and key updates.
pub struct Opener {
    cipher: &'static aead::Algorithm,
    hash: hmac::Algorithm,
    /// The epochs of later records, the next one last.
    later: Vec<Epoch>,
    /// The epoch in use.
    current: Option<Epoch>,
    /// The epoch after a `KeyUpdate` of `current`, from the first record that may belong to it.
    updated: Option<Epoch>,
    updates: usize,
}

/// A traffic secret, and the keys derived from it once: records that no key opens would otherwise cost a derivation each.
struct Epoch {
    secret: Vec<u8>,
    key: Key,
}

/// Write key, IV and sequence number (RFC 8446 section 5.3).
struct Key {
    cipher: LessSafeKey,
    iv: [u8; 12],
    seq: u64,
}

// By hand, because a derived `Debug` would print secrets.
impl fmt::Debug for Opener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Opener").finish_non_exhaustive()
    }
}

impl Opener {
    /// Uses a suite of TLS 1.3 and its secrets in the order of their use. Without secrets no record can be opened.
    pub fn new<'a>(suite: CipherSuite, secrets: impl Iterator<Item = &'a [u8]>) -> Self {
        let (cipher, hash) = algorithms(suite);
        let epoch = |secret: &[u8]| Epoch::of(cipher, hash, secret.to_vec());
        let mut later: Vec<Epoch> = secrets.filter_map(epoch).collect();
        later.reverse();
        Self { cipher, hash, later, current: None, updated: None, updates: 0 }
    }

    /// Type and content of a record; `None` if no key opens it. A record that the current key does not open is tried with the
    /// later secrets, then with the secret after a `KeyUpdate`. Allocates the content.
    pub fn open(&mut self, header: [u8; 5], payload: &[u8]) -> Option<(u8, Vec<u8>)> {
        if let Some(opened) = self.current.as_mut().and_then(|epoch| epoch.key.open(header, payload)) {
            return Some(opened);
        }
        for index in (0..self.later.len()).rev() {
            if let Some(opened) = self.later[index].key.open(header, payload) {
                // Secrets of earlier use may belong to records that were not sent, such as early data.
                (self.current, self.updated) = (self.later.drain(index..).next(), None);
                return Some(opened);
            }
        }
        // No secret is discarded: the record may have a key that is not known, as early data without its secret.
        self.open_updated(header, payload)
    }

    /// Tries the secret after a `KeyUpdate` (RFC 8446 section 7.2).
    fn open_updated(&mut self, header: [u8; 5], payload: &[u8]) -> Option<(u8, Vec<u8>)> {
        if self.updates == UPDATES {
            return None;
        }
        let secret = &self.current.as_ref()?.secret;
        if self.updated.is_none() {
            let next = expand(self.hash, secret, b"traffic upd", &[], secret.len());
            self.updated = Epoch::of(self.cipher, self.hash, next);
        }
        let opened = self.updated.as_mut()?.key.open(header, payload)?;
        self.updates += 1;
        self.current = self.updated.take();
        Some(opened)
    }
}

impl Epoch {
    fn of(cipher: &'static aead::Algorithm, hash: hmac::Algorithm, secret: Vec<u8>) -> Option<Self> {
        let key = Key::of(cipher, hash, &secret)?;
        Some(Self { secret, key })
    }
}

/// Encryption of the records of one direction, in order.
pub struct Sealer(Key);

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sealer").finish_non_exhaustive()
    }
}

impl Sealer {
    /// Uses a suite of TLS 1.3 and the traffic secret of the direction; `None` if the keys cannot be derived.
    pub fn new(suite: CipherSuite, secret: &[u8]) -> Option<Self> {
        let (cipher, hash) = algorithms(suite);
        Key::of(cipher, hash, secret).map(Self)
    }

    /// A record of type `kind` with at most 2^14 bytes of content; `None` if encryption fails.
    pub fn seal(&mut self, kind: u8, content: &[u8]) -> Option<Vec<u8>> {
        let Key { cipher, .. } = &self.0;
        let length = (content.len() + 1 + cipher.algorithm().tag_len()) as u16;
        let [high, low] = length.to_be_bytes();
        // RFC 8446 section 5.2: the header is authenticated, so the length of the ciphertext is needed before
        // encryption.
        let header = [23, 3, 3, high, low];
        let mut sealed = [content, &[kind]].concat();
        cipher.seal_in_place_append_tag(self.0.nonce(), Aad::from(header), &mut sealed).ok()?;
        self.0.seq += 1;
        Some([&header[..], &sealed].concat())
    }
}

/// AEAD and hash of a suite of TLS 1.3.
fn algorithms(suite: CipherSuite) -> (&'static aead::Algorithm, hmac::Algorithm) {
    match suite {
        CipherSuite::TLS_AES_256_GCM_SHA384 => (&aead::AES_256_GCM, hmac::HMAC_SHA384),
        CipherSuite::TLS_CHACHA20_POLY1305_SHA256 => (&aead::CHACHA20_POLY1305, hmac::HMAC_SHA256),
        // A suite that is not supported needs no error of its own: no record can be opened with these keys.
        _ => (&aead::AES_128_GCM, hmac::HMAC_SHA256),
    }
}

impl Key {
    fn of(cipher: &'static aead::Algorithm, hash: hmac::Algorithm, secret: &[u8]) -> Option<Self> {
        let key = expand(hash, secret, b"key", &[], cipher.key_len());
        let iv = expand(hash, secret, b"iv", &[], 12).try_into().ok()?;
        let cipher = LessSafeKey::new(UnboundKey::new(cipher, &key).ok()?);
        Some(Self { cipher, iv, seq: 0 })
    }

    /// Nonce of the next record (RFC 8446 section 5.3).
    fn nonce(&self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, part) in nonce[4..].iter_mut().zip(self.seq.to_be_bytes()) {
            *byte ^= part;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    fn open(&mut self, header: [u8; 5], payload: &[u8]) -> Option<(u8, Vec<u8>)> {
        // A copy, because a failed decryption may overwrite the buffer, and the record is tried with further
        // keys.
        let mut buffer = payload.to_vec();
        let plain = self.cipher.open_in_place(self.nonce(), Aad::from(header), &mut buffer).ok()?;
        // Only after a success: a record under the next key must not advance this one.
        self.seq += 1;
        // RFC 8446 section 5.4: zeros after the type are padding, and a record of zeros only is an error.
        let end = plain.iter().rposition(|byte| *byte != 0)?;
        Some((plain[end], plain[..end].to_vec()))
    }
}

/// HKDF-Expand-Label (RFC 8446 section 7.1).
pub fn expand(hash: hmac::Algorithm, secret: &[u8], label: &[u8], context: &[u8], len: usize) -> Vec<u8> {
    let mut info = (len as u16).to_be_bytes().to_vec();
    info.push((6 + label.len()) as u8);
    info.extend_from_slice(b"tls13 ");
    info.extend_from_slice(label);
    info.push(context.len() as u8);
    info.extend_from_slice(context);
    let key = hmac::Key::new(hash, secret);
    let (mut output, mut block) = (Vec::new(), Vec::new());
    for counter in 1..=u8::MAX {
        if output.len() >= len {
            break;
        }
        // RFC 5869 section 2.3: each block covers the previous block, the info and the counter.
        block.extend_from_slice(&info);
        block.push(counter);
        block = hmac::sign(&key, &block).as_ref().to_vec();
        output.extend_from_slice(&block);
    }
    output.truncate(len);
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
    }

    /// RFC 8448 section 3: the server's handshake traffic secret, its key and its IV.
    #[test]
    fn keys_are_those_of_the_rfc() {
        let secret = bytes("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38");
        assert_eq!(
            expand(hmac::HMAC_SHA256, &secret, b"key", &[], 16),
            bytes("3fce516009c21727d0f2e4e86ee403bc")
        );
        assert_eq!(expand(hmac::HMAC_SHA256, &secret, b"iv", &[], 12), bytes("5d313eb2671276ee13000b30"));
    }

    #[test]
    fn a_record_of_an_unknown_key_discards_no_secret() {
        let secrets = [[7; 32], [8; 32], [9; 32]];
        let suite = CipherSuite::TLS_AES_128_GCM_SHA256;
        let mut opener = Opener::new(suite, secrets.iter().map(|secret| &secret[..]));
        // The first secret is that of early data which was not sent.
        for secret in &secrets[1..] {
            assert_eq!(opener.open([23, 3, 3, 0, 20], &[0; 20]), None);
            let sealed = Sealer::new(suite, secret).expect("a key").seal(22, b"hello").expect("sealed");
            let (header, payload) = sealed.split_first_chunk().expect("a header");
            assert_eq!(opener.open(*header, payload), Some((22, b"hello".to_vec())));
        }
    }

    #[test]
    fn updates_of_keys_are_followed_also_after_records_of_an_unknown_key() {
        let (suite, mut secret) = (CipherSuite::TLS_AES_128_GCM_SHA256, vec![7; 32]);
        let mut opener = Opener::new(suite, [&secret[..]].into_iter());
        for _ in 0..3 {
            let mut sealer = Sealer::new(suite, &secret).expect("a key");
            for content in [b"hello", b"again"] {
                assert_eq!(opener.open([23, 3, 3, 0, 20], &[0; 20]), None);
                let sealed = sealer.seal(23, content).expect("sealed");
                let (header, payload) = sealed.split_first_chunk().expect("a header");
                assert_eq!(opener.open(*header, payload), Some((23, content.to_vec())));
            }
            secret = expand(hmac::HMAC_SHA256, &secret, b"traffic upd", &[], secret.len());
        }
    }

    #[test]
    fn an_unopened_record_leaves_the_keys_unchanged() {
        let secret = [7; 32];
        let mut opener = Opener::new(CipherSuite::TLS_AES_128_GCM_SHA256, [&secret[..]].into_iter());
        assert_eq!(opener.open([23, 3, 3, 0, 20], &[0; 20]), None);
        let mut sealer = Sealer::new(CipherSuite::TLS_AES_128_GCM_SHA256, &secret).expect("a key");
        for content in [b"hello", b"again"] {
            let sealed = sealer.seal(22, content).expect("sealed");
            let (header, payload) = sealed.split_first_chunk().expect("a header");
            assert_eq!(opener.open(*header, payload), Some((22, content.to_vec())));
        }
    }
}
