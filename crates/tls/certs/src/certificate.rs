//! Certificates ready to be served, with the ID of their private key.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use brisk_keys::{KeyAlgorithm, KeyId, Keystore};
use rustls_pki_types::CertificateDer;

use crate::chain::Chain;
use crate::error::{CertError, Warning};
use crate::ocsp::{CertId, OcspError, Staple};
use crate::resolver::covers;
use crate::x509::Services;

/// A chain and the ID of its private key. Immutable: a renewal creates a new one.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The chain as sent to clients: the server certificate first, without the root.
    pub chain: Vec<CertificateDer<'static>>,
    /// ID of the private key in key engines.
    pub key: KeyId,
    /// Type of the key.
    pub algorithm: KeyAlgorithm,
    /// Subject alternative names: host names in lower case (wildcards as `*.example.com`), addresses as text.
    pub names: Vec<String>,
    /// Start of the server certificate's validity.
    pub not_before: SystemTime,
    /// End of the server certificate's validity.
    pub not_after: SystemTime,
    /// Path of the chain file.
    pub source: PathBuf,
    /// Identifies the server certificate, regardless of its chain.
    pub fingerprint: Fingerprint,
    /// DER certificate of the issuer, if known: the second of the chain, or a root that is not sent.
    pub issuer: Option<CertificateDer<'static>>,
    /// Whether no intermediate is known to be missing from the chain.
    pub is_complete: bool,
    /// Addresses and requirements stated in the certificate.
    pub services: Services,
    /// A staple from a file, which is used instead of a fetched one.
    pub staple: Option<Arc<Staple>>,
}

/// SHA-256 of a server certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(hash)
    }
}

impl FromStr for Fingerprint {
    type Err = InvalidFingerprint;

    /// Reads 64 hexadecimal digits in any case, with or without colons between the bytes.
    fn from_str(text: &str) -> Result<Self, InvalidFingerprint> {
        // 64 digits and 31 colons, as `openssl x509 -fingerprint` prints them.
        let digits = if text.len() == 95 { text.replace(':', "") } else { text.to_owned() };
        let mut hash = [0; 32];
        let is_hex = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes = hash.iter_mut().zip(digits.as_bytes().chunks(2)).filter(|_| is_hex);
        for (byte, pair) in bytes {
            let pair = str::from_utf8(pair).map_err(|_| InvalidFingerprint)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidFingerprint)?;
        }
        if is_hex { Ok(Self(hash)) } else { Err(InvalidFingerprint) }
    }
}

/// A text that is no [`Fingerprint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a fingerprint has 64 hexadecimal digits, as in the output of `openssl x509 -noout -fingerprint -sha256`"
)]
pub struct InvalidFingerprint;

impl fmt::Display for Fingerprint {
    /// Lower-case hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Certificate {
    /// Whether the server certificate is expired at `now`.
    pub fn expired(&self, now: SystemTime) -> bool {
        now > self.not_after
    }

    /// A copy with `intermediates` after the server certificate, marked as complete.
    #[must_use]
    pub fn with_chain(
        &self,
        intermediates: &[CertificateDer<'static>],
        issuer: &CertificateDer<'static>,
    ) -> Self {
        let mut whole = self.clone();
        whole.chain.truncate(1);
        whole.chain.extend_from_slice(intermediates);
        whole.issuer = Some(issuer.clone());
        whole.is_complete = true;
        whole
    }

    /// Reads and verifies the OCSP response (DER) in `file` for this certificate. An expired response is a
    /// [`CertError::Staple`] with `expired` set.
    pub fn read_staple(&self, file: &Path, now: SystemTime) -> Result<Staple, CertError> {
        let chain = self.source.clone();
        let wrong = |reason: String| CertError::Staple {
            path: file.to_owned(),
            chain: chain.clone(),
            reason,
            expired: false,
        };
        let response = fs::read(file).map_err(|source| CertError::Read { path: file.to_owned(), source })?;
        // RFC 6066 section 8: a client aborts the handshake if the staple is not satisfactory, so a
        // response that cannot be verified is never presented.
        let issuer = self.issuer.as_ref().ok_or_else(|| {
            wrong(
                "the chain file does not have the certificate of its issuer, which is needed to verify it"
                    .to_owned(),
            )
        })?;
        let cert_id = CertId::new(&self.chain[0], issuer)
            .ok_or_else(|| wrong("the certificate cannot be parsed".to_owned()))?;
        cert_id.verify(&response, now).map_err(|error| CertError::Staple {
            path: file.to_owned(),
            chain: chain.clone(),
            reason: error.to_string(),
            expired: matches!(error, OcspError::Stale(_)),
        })
    }

    /// The first name, or the path of the chain file if there is none.
    pub fn title(&self) -> String {
        self.names.first().cloned().unwrap_or_else(|| self.source.display().to_string())
    }

    /// Whether this certificate is valid for the host name `name` (lower case).
    pub fn covers(&self, name: &str) -> bool {
        self.names.iter().any(|own| covers(own, name))
    }
}

/// Result of [`load`].
#[derive(Debug)]
pub struct Loaded {
    /// The loaded certificate.
    pub certificate: Certificate,
    /// Warnings for the operator; the certificate can be served nevertheless.
    pub warnings: Vec<Warning>,
}

impl Loaded {
    /// A certificate whose private key is not in a file: its key ID is derived from the public key. The caller checks
    /// whether an engine has the key.
    pub fn of_chain(chain: Chain, now: SystemTime) -> Self {
        let (key, warnings) = (KeyId::of_spki(chain.public_key()), chain.warnings(now));
        Self { certificate: chain.into_certificate(key), warnings }
    }
}

/// Reads the chain in `chain_path` and the private key in `key_path`, and adds the key to `keystore`.
///
/// Both files are PEM and may be the same file. A certificate outside its validity at `now` is a warning. Blocks on the
/// file system.
///
/// # Errors
///
/// Unreadable or malformed files, and a key that does not belong to the certificate.
pub fn load(
    chain_path: &Path,
    key_path: &Path,
    keystore: &mut Keystore,
    now: SystemTime,
) -> Result<Loaded, CertError> {
    let chain = Chain::read(chain_path)?;
    let key = add_key(key_path, keystore)?;
    // Without this check, the mistake would show as a bad signature in every handshake.
    if keystore.public_key(key) != Some(chain.public_key()) {
        return Err(CertError::KeyMismatch {
            chain: chain_path.to_owned(),
            key: key_path.to_owned(),
            subject: chain.subject().to_owned(),
        });
    }
    Ok(Loaded::of_chain(chain, now))
}

fn add_key(path: &Path, keystore: &mut Keystore) -> Result<KeyId, CertError> {
    let pem =
        brisk_secrets::read(path).map_err(|source| CertError::Read { path: path.to_owned(), source })?;
    keystore.add_pem(&pem).map_err(|source| CertError::Key { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::{Leaf, LeafKey, TestCa};

    use super::*;

    fn read(leaf: &Leaf) -> Loaded {
        let mut keystore = Keystore::new();
        let loaded = load(&leaf.chain, &leaf.key, &mut keystore, SystemTime::now()).unwrap();
        assert_eq!(keystore.algorithm(loaded.certificate.key), Some(loaded.certificate.algorithm));
        loaded
    }

    #[test]
    fn every_kind_of_key_loads_with_its_chain() {
        let ca = TestCa::new();
        for key in
            [LeafKey::EcdsaP256, LeafKey::EcdsaP384, LeafKey::Rsa2048, LeafKey::Ed25519, LeafKey::MlDsa44]
        {
            let leaf = ca.server(&["a.test"]).key(key).issue();
            let Loaded { certificate, warnings } = read(&leaf);
            assert_eq!((certificate.chain.len(), warnings), (2, vec![]), "{key:?}");
            assert_eq!(certificate.source, leaf.chain);
        }
    }

    #[test]
    fn one_file_may_hold_key_and_chain() {
        let mut leaf = TestCa::new().server(&["a.test"]).issue();
        fs::write(&leaf.chain, leaf.key_pem.clone() + &leaf.chain_pem).unwrap();
        leaf.key = leaf.chain.clone();
        assert_eq!(read(&leaf).certificate.names, ["a.test"]);
    }

    #[test]
    fn a_key_of_another_certificate_is_refused_naming_both_files() {
        let ca = TestCa::new();
        let (ours, theirs) = (ca.server(&["a.test"]).issue(), ca.server(&["a.test"]).issue());
        let error = load(&ours.chain, &theirs.key, &mut Keystore::new(), SystemTime::now()).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, CertError::KeyMismatch { .. }));
        for file in [&ours.chain, &theirs.key] {
            assert!(text.contains(file.to_str().unwrap()), "{text}");
        }
    }

    #[test]
    fn an_expired_certificate_loads_with_a_warning() {
        let loaded = read(&TestCa::new().server(&["a.test"]).expired().issue());
        assert!(loaded.certificate.expired(SystemTime::now()));
        assert!(matches!(loaded.warnings[..], [Warning::Expired { .. }]));
    }

    #[test]
    fn a_missing_or_wrong_key_file_is_named() {
        let leaf = TestCa::new().server(&["a.test"]).issue();
        let gone = leaf.key.with_extension("gone");
        for wrong in [&gone, &leaf.chain] {
            let error = load(&leaf.chain, wrong, &mut Keystore::new(), SystemTime::now()).unwrap_err();
            assert!(error.to_string().contains(wrong.to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn a_fingerprint_is_read_as_it_is_written_by_brisk_and_openssl() {
        let fingerprint = Fingerprint::of(b"a certificate");
        let text = fingerprint.to_string();
        let pairs: Vec<_> = text.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap()).collect();
        for text in [text.clone(), pairs.join(":").to_uppercase()] {
            assert_eq!(text.parse(), Ok(fingerprint), "{text}");
        }
        for wrong in ["", &text[1..], &format!("{text}00"), &text.replace(&text[..2], "+f"), &pairs.join("-")]
        {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(InvalidFingerprint), "{wrong}");
        }
    }

    #[test]
    fn wildcards_cover_one_label() {
        let leaf = TestCa::new().server(&["a.test", "*.b.test", "127.0.0.1"]).issue();
        let certificate = read(&leaf).certificate;
        for name in ["a.test", "x.b.test", "127.0.0.1"] {
            assert!(certificate.covers(name), "{name}");
        }
        for name in ["x.a.test", "b.test", "x.y.b.test", ".b.test", "127.0.0.2"] {
            assert!(!certificate.covers(name), "{name}");
        }
    }
}
