//! Operations on the data of a connection: sealing of records, and hashing.

use std::hint::black_box;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm as Aead, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce,
    TlsProtocolId, TlsRecordSealingKey, UnboundKey,
};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::error::Unspecified;

use super::Work;
use crate::SpeedError;
use crate::result::Action;
use crate::subject::Algorithm;

/// A record of maximum length (RFC 8446 section 5.1), and one that fits into a packet.
const LENGTHS: [usize; 2] = [16 * 1024, 1350];

/// Additional data of a record: the header (RFC 8446 section 5.2) of type `application_data`.
const HEADER: [u8; 5] = [23, 3, 3, 0, 0];

/// Sealing of records of both [`LENGTHS`].
pub(super) fn seal(algorithm: Algorithm) -> Result<Vec<Work>, SpeedError> {
    let work = |bytes| -> Result<Work, SpeedError> {
        let mut sealer = Sealer::new(algorithm)?;
        let mut record = vec![0; bytes];
        // The buffer is sealed again and again: the cost does not depend on the content.
        let act = move || Ok(sealer.seal(black_box(&mut record))?);
        Ok(Work::new(algorithm, Action::Seal, act).with_bytes(bytes))
    };
    LENGTHS.into_iter().map(work).collect()
}

/// SHA-256 of data of both [`LENGTHS`].
pub(super) fn hash() -> Vec<Work> {
    let work = |bytes| {
        let data = vec![0; bytes];
        let act = move || {
            black_box(digest(&SHA256, black_box(&data)));
            Ok(())
        };
        Work::new(Algorithm::Sha256, Action::Hash, act).with_bytes(bytes)
    };
    LENGTHS.map(work).into()
}

/// A key, and the number of records it has sealed.
struct Sealer {
    key: SealingKey,
    sequence: u64,
}

/// The types of key that rustls uses for records.
enum SealingKey {
    Gcm(TlsRecordSealingKey),
    ChaCha20(LessSafeKey),
}

impl Sealer {
    fn new(algorithm: Algorithm) -> Result<Self, Unspecified> {
        let gcm = |aead: &'static Aead| -> Result<SealingKey, Unspecified> {
            let key = vec![7; aead.key_len()];
            Ok(SealingKey::Gcm(TlsRecordSealingKey::new(aead, TlsProtocolId::TLS13, &key)?))
        };
        let key = match algorithm {
            Algorithm::Aes128Gcm => gcm(&AES_128_GCM),
            Algorithm::Aes256Gcm => gcm(&AES_256_GCM),
            _ => {
                let key = vec![7; CHACHA20_POLY1305.key_len()];
                Ok(SealingKey::ChaCha20(LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key)?)))
            }
        }?;
        Ok(Self { key, sequence: 0 })
    }

    fn seal(&mut self, record: &mut [u8]) -> Result<(), Unspecified> {
        // RFC 8446 section 5.3: the sequence number, XORed with the IV, which is zero here.
        let mut nonce = [0; NONCE_LEN];
        nonce[NONCE_LEN - 8..].copy_from_slice(&self.sequence.to_be_bytes());
        // `TlsRecordSealingKey` refuses a nonce that does not increase.
        self.sequence += 1;
        let (nonce, header) = (Nonce::assume_unique_for_key(nonce), Aad::from(HEADER));
        let tag = match &mut self.key {
            SealingKey::Gcm(key) => key.seal_in_place_separate_tag(nonce, header, record),
            SealingKey::ChaCha20(key) => key.seal_in_place_separate_tag(nonce, header, record),
        };
        black_box(tag?.as_ref());
        Ok(())
    }
}
