//! The private keys that this process holds, by name.

use std::{collections::HashMap, fmt, sync::Arc};

use rustls_pki_types::{PrivateKeyDer, pem, pem::PemObject};
use zeroize::Zeroize;

use crate::{KeyAlgorithm, KeyError, KeyId, private_key::PrivateKey};

/// A set of private keys, filled once and then shared; a reload makes a new one and replaces the old whole.
///
/// Nothing hands out a private key: an engine uses the store, others learn of a key what is public.
#[derive(Default)]
pub struct Keystore {
    keys: HashMap<KeyId, Arc<PrivateKey>>,
}

impl Keystore {
    /// A store without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the first private key in `pem`: PKCS#8 (`PRIVATE KEY`), PKCS#1 (`RSA PRIVATE KEY`) or SEC1
    /// (`EC PRIVATE KEY`). Other sections, certificates say, are passed over. Adding a key twice changes nothing.
    ///
    /// `pem` stays the caller's, who wipes it.
    pub fn add_pem(&mut self, pem: &[u8]) -> Result<KeyId, KeyError> {
        let der = PrivateKeyDer::from_pem_slice(pem).map_err(|error| unreadable(pem, &error))?;
        self.add_der(der)
    }

    /// Adds a key in DER, and wipes the DER.
    pub fn add_der(&mut self, mut der: PrivateKeyDer<'static>) -> Result<KeyId, KeyError> {
        let key = PrivateKey::from_der(&der);
        der.zeroize();
        let key = key?;
        let id = key.id();
        self.keys.entry(id).or_insert_with(|| Arc::new(key));
        Ok(id)
    }

    /// The public half of a key as DER `SubjectPublicKeyInfo`, byte for byte what belongs in its certificate.
    pub fn public_key(&self, id: KeyId) -> Option<&[u8]> {
        self.keys.get(&id).map(|key| key.spki())
    }

    /// What kind of key it is.
    pub fn algorithm(&self, id: KeyId) -> Option<KeyAlgorithm> {
        self.keys.get(&id).map(|key| key.algorithm())
    }

    /// The names of all keys, in no order.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.keys.keys().copied()
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn get(&self, id: KeyId) -> Result<&Arc<PrivateKey>, KeyError> {
        self.keys.get(&id).ok_or(KeyError::UnknownKey(id))
    }
}

impl fmt::Debug for Keystore {
    /// Names and algorithms, which are public.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.keys.values()).finish()
    }
}

/// Says what stands in the file instead of a private key, where that can be told.
fn unreadable(pem: &[u8], error: &pem::Error) -> KeyError {
    let contains = |text: &str| {
        pem.windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    KeyError::Malformed(if contains("ENCRYPTED") {
        "the private key is protected by a passphrase: decrypt it, for example with `openssl pkey`"
            .into()
    } else if contains("BEGIN CERTIFICATE") && !contains("PRIVATE KEY") {
        "a certificate where a private key was expected".into()
    } else if matches!(error, pem::Error::NoItemsFound) {
        "no private key: wanted PEM with a section PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY"
            .into()
    } else {
        // The library's message may quote the file.
        "the PEM of the private key is damaged".into()
    })
}
