//! [`FleetSecret`], the secret of a fleet, and independent keys derived from it, one for each [`Purpose`].

use std::{fmt, path::Path};

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use zeroize::Zeroizing;

use crate::{KeySourceError, SecretLength};

const LEAST: usize = 32;
const MOST: usize = 4096;

/// HKDF salt, which separates the derived keys from those of other programs with the same secret.
const SALT: &[u8] = b"brisk fleet secret, first edition";

/// The shared secret of a fleet: 32 bytes to 4 KiB of random data, known only to its gateways.
///
/// An attacker with the secret can open every ticket and every stored session of the fleet, past ones included.
/// Therefore it should be changed from time to time: derived keys protect recorded data no better than the secret
/// itself.
///
/// The secret encrypts nothing. Each use has a key of its own, derived by HKDF-SHA256 (RFC 5869). Wiped when the last
/// copy is dropped; copies share one allocation. Two secrets are equal if all keys derived from them are.
#[derive(Clone)]
pub struct FleetSecret {
    prk: Prk,
    identity: [u8; 32],
}

/// Purpose of a key derived from a [`FleetSecret`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// Sealing sessions in a store on another machine.
    StoreSeal,
    /// Hiding session IDs from that store (HMAC).
    StoreIds,
    /// Sealing the ticket keys that gateways exchange through that store.
    TicketKeySync,
    /// Marking the session IDs of TLS 1.2 (HMAC).
    SessionIds,
    /// Sealing certificates, their keys and accounts in that store.
    CertificateStore,
    /// Protecting address validation tokens and stateless resets of QUIC.
    QuicTokens,
}

impl Purpose {
    /// Never changed, because gateways of different versions would derive different keys.
    const fn label(self) -> &'static [u8] {
        match self {
            Self::StoreSeal => b"seal stored sessions",
            Self::StoreIds => b"hide session ids",
            Self::TicketKeySync => b"exchange ticket keys",
            Self::SessionIds => b"mark session ids",
            Self::CertificateStore => b"seal certificates and keys",
            Self::QuicTokens => b"protect tokens of quic",
        }
    }
}

impl FleetSecret {
    /// Reads the secret from a file with any bytes. Trailing line ends are ignored, so that it may be a text file.
    pub fn read(path: &Path) -> Result<Self, KeySourceError> {
        // One byte more than a secret with a line end may have, to detect longer files.
        let contents = read_at_most(path, MOST + 3)?;
        Self::from_bytes(&contents).map_err(|source| KeySourceError::Secret { path: path.to_owned(), source })
    }

    /// A secret of these bytes without trailing line ends; [`SecretLength`] unless 32 to 4,096 bytes remain.
    pub fn from_bytes(secret: &[u8]) -> Result<Self, SecretLength> {
        let end = secret.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        match end {
            ..LEAST => return Err(SecretLength::TooShort(end)),
            LEAST..=MOST => {}
            _ => return Err(SecretLength::TooLong),
        }
        let prk = Salt::new(HKDF_SHA256, SALT).extract(&secret[..end]);
        let identity = *expand(&prk, b"identity", &[]);
        Ok(Self { prk, identity })
    }

    /// The key for this purpose: the same on every gateway that has the secret.
    pub fn derive(&self, purpose: Purpose) -> Zeroizing<[u8; 32]> {
        expand(&self.prk, purpose.label(), &[])
    }

    /// Name and key of the ticket key that seals for `interval` seconds from `slot`, in seconds since 1970.
    pub(crate) fn ticket_key(&self, interval: u64, slot: u64) -> Zeroizing<[u8; 48]> {
        let (interval, slot) = (interval.to_be_bytes(), slot.to_be_bytes());
        expand(&self.prk, b"ticket key", &[&interval, &slot])
    }

    /// Eight hexadecimal digits that identify the secret, so that operators can compare gateways. They reveal nothing
    /// else.
    pub fn id(&self) -> String {
        format!("{:08x}", u32::from_be_bytes(*self.identity.first_chunk().expect("it has 32 bytes")))
    }
}

impl PartialEq for FleetSecret {
    fn eq(&self, other: &Self) -> bool {
        // By a derived value, so that the time of the comparison reveals nothing about the secret.
        self.identity == other.identity
    }
}

impl Eq for FleetSecret {}

impl fmt::Debug for FleetSecret {
    /// Prints the [`id`](Self::id) only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FleetSecret").field(&self.id()).finish()
    }
}

/// HKDF-Expand (RFC 5869 section 2.3). The parts of `context` have fixed lengths, and no label is a prefix of another.
pub(crate) fn expand<const LENGTH: usize>(
    prk: &Prk,
    label: &[u8],
    context: &[&[u8]],
) -> Zeroizing<[u8; LENGTH]> {
    let mut derived = Zeroizing::new([0; LENGTH]);
    let info: Vec<&[u8]> = [label].into_iter().chain(context.iter().copied()).collect();
    prk.expand(&info, Length(LENGTH))
        .and_then(|output| output.fill(&mut *derived))
        .expect("HKDF gives up to 255 times the length of its hash");
    derived
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Reads at most `most` bytes of a file with a secret.
pub(crate) fn read_at_most(path: &Path, most: usize) -> Result<Zeroizing<Vec<u8>>, KeySourceError> {
    brisk_secrets::read_at_most(path, most)
        .map_err(|source| KeySourceError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> FleetSecret {
        FleetSecret::from_bytes(&[byte; 32]).unwrap()
    }

    #[test]
    fn each_purpose_and_each_secret_has_a_key_of_its_own() {
        let keys: Vec<[u8; 32]> = [secret(1), secret(2)]
            .iter()
            .flat_map(|secret| {
                [Purpose::StoreSeal, Purpose::StoreIds, Purpose::TicketKeySync, Purpose::SessionIds]
                    .map(|purpose| *secret.derive(purpose))
            })
            .chain([secret(1).identity, secret(1).ticket_key(1, 2)[16..].try_into().unwrap()])
            .collect();
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "key {index} is there twice");
        }
    }

    /// HKDF as computed by `openssl kdf`. Derived keys must be equal in all versions.
    #[test]
    fn derived_keys_never_change() {
        let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        assert_eq!(
            hex(&*secret(1).derive(Purpose::StoreSeal)),
            "17cee43109131f05a3840ada3d18da3b48e57363d72af423e3fe5948d4c8159b"
        );
        assert_eq!(
            hex(&*secret(1).ticket_key(3600, 7)),
            "4a7fb75556333b7d9500c28aee72c168964e142d4959f1114c5fba8948a67a598671ef966e21ed02c5862fba18b01c70"
        );
    }

    #[test]
    fn line_ends_after_a_secret_are_not_part_of_it() {
        let written = FleetSecret::from_bytes(&[&[1; 32][..], b"\r\n\n"].concat()).unwrap();
        assert_eq!(written, secret(1));
        assert_eq!(*written.derive(Purpose::StoreSeal), *secret(1).derive(Purpose::StoreSeal));
        assert_ne!(FleetSecret::from_bytes(&[&[1; 32][..], b"\n\x01"].concat()).unwrap(), secret(1));
    }

    #[test]
    fn a_secret_of_a_wrong_length_is_refused_with_its_length() {
        let refused = |bytes: &[u8]| FleetSecret::from_bytes(bytes).unwrap_err();
        assert_eq!(refused(b""), SecretLength::TooShort(0));
        assert_eq!(refused(&[b'x'; 31]), SecretLength::TooShort(31));
        assert_eq!(refused(&[b'\n'; 40]), SecretLength::TooShort(0));
        assert_eq!(refused(&[b'x'; 4097]), SecretLength::TooLong);
        assert!(FleetSecret::from_bytes(&[b'x'; 4096]).is_ok());
    }

    #[test]
    fn files_that_do_not_do_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.secret");
        let refused = || FleetSecret::read(&path).unwrap_err().to_string();
        assert!(refused().starts_with(&format!("cannot read {}: ", path.display())), "{}", refused());
        std::fs::write(&path, "short\n").unwrap();
        let expected = format!(
            "{}: a fleet secret has 32 to 4096 bytes, not 5; `openssl rand -base64 48` makes a good one",
            path.display()
        );
        assert_eq!(refused(), expected);
        std::fs::write(&path, [b'x'; 5000]).unwrap();
        assert!(refused().contains("not more"), "{}", refused());
        std::fs::write(&path, [&[1; 32][..], b"\n"].concat()).unwrap();
        assert_eq!(FleetSecret::read(&path).unwrap(), secret(1));
        std::fs::write(&path, [&[1; 4096][..], b"\r\n"].concat()).unwrap();
        assert!(FleetSecret::read(&path).is_ok());
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", secret(1));
        assert_eq!(shown, format!("FleetSecret(\"{}\")", secret(1).id()));
    }
}
