//! [`Keystore`], the private keys that this process holds or can use.

use std::{collections::HashMap, fmt, sync::Arc};

use brisk_secrets::{PemError, PrivateKeyDocument};
use rustls_pki_types::PrivateKeyDer;
use zeroize::Zeroize;

use crate::{KeyAlgorithm, KeyElsewhere, KeyError, KeyId, pem_fault, private_key::PrivateKey};

/// Keys outside this process, by id.
pub(crate) type Elsewhere = HashMap<KeyId, KeyElsewhere>;

/// A set of private keys. Filled once and then shared; a reload builds a new store and replaces the old one as a
/// whole.
///
/// Keys of other engines are registered with [`add_elsewhere`](Self::add_elsewhere); the other methods concern keys
/// in this process.
///
/// No method returns a private key: engines use the store, other callers can read public properties only.
#[derive(Default)]
pub struct Keystore {
    keys: HashMap<KeyId, Arc<PrivateKey>>,
    pub(crate) elsewhere: Elsewhere,
    /// Algorithms of keys elsewhere, where known.
    pub(crate) algorithms: HashMap<KeyId, KeyAlgorithm>,
}

impl Keystore {
    /// Creates a store without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the private key in `pem`: PKCS#8 (`PRIVATE KEY`), PKCS#1 (`RSA PRIVATE KEY`) or SEC1
    /// (`EC PRIVATE KEY`). Other sections, such as certificates, are skipped. Adding a key twice has no effect.
    ///
    /// The caller wipes `pem`.
    pub fn add_pem(&mut self, pem: &[u8]) -> Result<KeyId, KeyError> {
        let key = PrivateKeyDocument::from_pem(pem).map_err(|error| unreadable(pem, error))?;
        self.add(&key.der())
    }

    /// Adds a private key in DER and wipes `der`.
    pub fn add_der(&mut self, mut der: PrivateKeyDer<'static>) -> Result<KeyId, KeyError> {
        let added = self.add(&der);
        der.zeroize();
        added
    }

    fn add(&mut self, der: &PrivateKeyDer<'_>) -> Result<KeyId, KeyError> {
        let key = PrivateKey::from_der(der)?;
        let id = key.id();
        self.keys.entry(id).or_insert_with(|| Arc::new(key));
        Ok(id)
    }

    /// Adds all keys of `other`; both stores share them.
    pub fn add_all(&mut self, other: &Self) {
        for (id, key) in &other.keys {
            self.keys.entry(*id).or_insert_with(|| Arc::clone(key));
        }
        self.elsewhere.extend(other.elsewhere.iter().map(|(id, key)| (*id, key.clone())));
        self.algorithms.extend(&other.algorithms);
    }

    /// A store with the keys of `ids`, in this process and elsewhere; unknown ids are skipped. Both stores share the keys.
    #[must_use]
    pub fn subset(&self, ids: impl IntoIterator<Item = KeyId>) -> Self {
        let mut subset = Self::new();
        for id in ids {
            subset.keys.extend(self.keys.get(&id).map(|key| (id, Arc::clone(key))));
            subset.elsewhere.extend(self.elsewhere.get(&id).map(|key| (id, key.clone())));
            subset.algorithms.extend(self.algorithms.get(&id).map(|algorithm| (id, *algorithm)));
        }
        subset
    }

    /// The public key as DER `SubjectPublicKeyInfo`, byte for byte as in a certificate.
    pub fn public_key(&self, id: KeyId) -> Option<&[u8]> {
        self.keys.get(&id).map(|key| key.spki())
    }

    /// The algorithm of a key in this process.
    pub fn algorithm(&self, id: KeyId) -> Option<KeyAlgorithm> {
        self.keys.get(&id).map(|key| key.algorithm())
    }

    /// The [`KeyId`] of each key in this process, in no particular order.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.keys.keys().copied()
    }

    /// Number of keys in this process.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether this process holds no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// All keys in this process, in no particular order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Arc<PrivateKey>> {
        self.keys.values()
    }

    pub(crate) fn get(&self, id: KeyId) -> Result<&Arc<PrivateKey>, KeyError> {
        self.keys.get(&id).ok_or(KeyError::UnknownKey(id))
    }
}

impl fmt::Debug for Keystore {
    /// Writes ids and algorithms, which are public.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.keys.values()).finish()
    }
}

/// The error for a file without a readable private key; names the actual content where it is recognized.
fn unreadable(pem: &[u8], error: PemError) -> KeyError {
    let contains = |text: &str| pem.windows(text.len()).any(|window| window == text.as_bytes());
    // From the most specific cause to the least: an encrypted key and a certificate are well-formed PEM, in
    // which `pem_fault` finds nothing.
    KeyError::Malformed(if error == PemError::Several {
        error.to_string()
    } else if contains("ENCRYPTED") {
        "the private key is protected by a passphrase: decrypt it, for example with `openssl pkey`".into()
    } else if contains("BEGIN CERTIFICATE") && !contains("PRIVATE KEY") {
        "a certificate where a private key was expected".into()
    } else if let Some(fault) = pem_fault(pem) {
        format!("the PEM of the private key is damaged: {fault}")
    } else {
        error.to_string()
    })
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::{
        encoding::{AsDer, EcPrivateKeyRfc5915Der},
        signature::{self, EcdsaKeyPair},
    };
    use rcgen::{KeyPair, PublicKeyData, RsaKeySize};
    use rustls_pki_types::{PrivatePkcs1KeyDer, PrivateSec1KeyDer};

    use super::*;

    fn generate(algorithm: &'static rcgen::SignatureAlgorithm) -> KeyPair {
        KeyPair::generate_for(algorithm).unwrap()
    }

    fn generate_rsa() -> KeyPair {
        KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap()
    }

    fn refusal(pem: &[u8]) -> String {
        let mut keystore = Keystore::new();
        let error = keystore.add_pem(pem).unwrap_err();
        assert!(keystore.is_empty());
        error.to_string()
    }

    #[test]
    fn the_public_key_is_byte_for_byte_that_of_a_certificate() {
        let keys = [
            (generate(&rcgen::PKCS_ECDSA_P256_SHA256), KeyAlgorithm::EcdsaP256),
            (generate(&rcgen::PKCS_ECDSA_P384_SHA384), KeyAlgorithm::EcdsaP384),
            (generate(&rcgen::PKCS_ED25519), KeyAlgorithm::Ed25519),
            (generate_rsa(), KeyAlgorithm::Rsa { bits: 2048 }),
        ];
        let mut keystore = Keystore::new();
        for (pair, algorithm) in keys {
            let id = keystore.add_pem(pair.serialize_pem().as_bytes()).unwrap();
            let spki = pair.subject_public_key_info();
            assert_eq!(keystore.public_key(id), Some(&spki[..]), "{algorithm}");
            assert_eq!(keystore.algorithm(id), Some(algorithm));
            assert_eq!(id, KeyId::of_spki(&spki));
        }
        assert_eq!(keystore.len(), 4);
        assert_eq!(keystore.ids().count(), 4);
    }

    #[test]
    fn a_key_is_the_same_in_every_form() {
        let mut keystore = Keystore::new();
        let rsa = generate_rsa();
        let id = keystore.add_pem(rsa.serialize_pem().as_bytes()).unwrap();
        // The header of PKCS#8 is 26 bytes around 2048-bit keys.
        let pkcs1 = PrivatePkcs1KeyDer::from(rsa.serialize_der()[26..].to_vec());
        assert_eq!(keystore.add_der(pkcs1.into()), Ok(id));

        let ecdsa = generate(&rcgen::PKCS_ECDSA_P384_SHA384);
        let id = keystore.add_pem(ecdsa.serialize_pem().as_bytes()).unwrap();
        let algorithm = &signature::ECDSA_P384_SHA384_ASN1_SIGNING;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, &ecdsa.serialize_der()).unwrap();
        let sec1: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der().unwrap();
        let sec1 = PrivateSec1KeyDer::from(sec1.as_ref().to_vec());
        assert_eq!(keystore.add_der(sec1.into()), Ok(id));
        assert_eq!(keystore.len(), 2);
    }

    #[test]
    fn an_ed25519_key_as_openssl_writes_it_is_accepted() {
        // RFC 8410 section 10.3.
        let pem = "-----BEGIN PRIVATE KEY-----\n\
            MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
            -----END PRIVATE KEY-----\n";
        let mut keystore = Keystore::new();
        let id = keystore.add_pem(pem.as_bytes()).unwrap();
        assert_eq!(keystore.algorithm(id), Some(KeyAlgorithm::Ed25519));
    }

    #[test]
    fn a_key_is_found_behind_a_certificate_in_the_same_file() {
        let pair = generate(&rcgen::PKCS_ECDSA_P256_SHA256);
        let certificate = rcgen::CertificateParams::default().self_signed(&pair).unwrap();
        let pem = certificate.pem() + &pair.serialize_pem();
        assert!(Keystore::new().add_pem(pem.as_bytes()).is_ok());
    }

    #[test]
    fn a_refusal_says_what_the_file_is_and_what_would_be_right() {
        let pair = generate(&rcgen::PKCS_ECDSA_P256_SHA256);
        let certificate = rcgen::CertificateParams::default().self_signed(&pair).unwrap();
        assert!(refusal(certificate.pem().as_bytes()).contains("a certificate where"));
        let encrypted = pair.serialize_pem().replace("PRIVATE", "ENCRYPTED PRIVATE");
        assert!(refusal(encrypted.as_bytes()).contains("passphrase"));
        assert!(refusal(b"").contains("no private key"));
        let damaged = pair.serialize_pem().replace("-----END", "!!!!\n-----END");
        assert!(refusal(damaged.as_bytes()).contains("damaged: line 5: not base64"));
        let marked = format!("\u{feff}{}", pair.serialize_pem());
        assert!(refusal(marked.as_bytes()).contains("byte order mark"));
        let p521 = generate(&rcgen::PKCS_ECDSA_P521_SHA512);
        assert!(refusal(p521.serialize_pem().as_bytes()).contains("P-256 or P-384"));
    }

    #[test]
    fn debug_shows_what_is_public() {
        let pair = generate(&rcgen::PKCS_ECDSA_P256_SHA256);
        let mut keystore = Keystore::new();
        let id = keystore.add_pem(pair.serialize_pem().as_bytes()).unwrap();
        let expected = format!("{{PrivateKey {{ id: KeyId({id}), algorithm: EcdsaP256, .. }}}}");
        assert_eq!(format!("{keystore:?}"), expected);
    }
}
