//! Permissions of clients: keys, kinds of operations, and rates.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use brisk_keyless::{ErrorCode, Shape, shape};
use brisk_keys::{KeyAlgorithm, KeyId};
use brisk_net::rates::Rate;

use crate::bucket::Bucket;

/// Permissions of all clients, by the common name of their certificates.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    clients: HashMap<String, Client>,
}

/// Permissions of a client.
#[derive(Clone, Debug)]
pub struct Client {
    keys: Keys,
    operations: Vec<Shape>,
    /// Whether the client may have premaster secrets decrypted.
    decrypts: bool,
    /// Rate limit. A reload with an equal rate keeps the bucket and its level.
    bucket: Option<Arc<Bucket>>,
}

/// Keys that a `Client` may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// All keys of the server.
    All,
    /// The listed keys.
    Some(HashSet<KeyId>),
}

impl Keys {
    fn has(&self, key: KeyId) -> bool {
        match self {
            Self::All => true,
            Self::Some(keys) => keys.contains(&key),
        }
    }
}

impl Policy {
    /// A `Policy` without clients.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a `Client`. `rate` of `None` means no limit.
    pub fn add(&mut self, name: impl Into<String>, keys: Keys, operations: Vec<Shape>, rate: Option<Rate>) {
        let bucket = rate.map(Bucket::new).map(Arc::new);
        self.clients.insert(name.into(), Client { keys, operations, decrypts: false, bucket });
    }

    /// Permits the `Client` to have premaster secrets of TLS 1.2 decrypted. The client must have been added.
    pub fn allow_decryption(&mut self, name: &str) {
        if let Some(client) = self.clients.get_mut(name) {
            client.decrypts = true;
        }
    }

    /// Keeps the buckets of `before` for clients with an unchanged rate.
    pub(crate) fn keep_buckets_of(&mut self, before: &Self) {
        for (name, client) in &mut self.clients {
            // A new bucket is full: with every change of a file, a client could exceed its rate by a burst.
            let own = before.clients.get(name).and_then(|client| client.bucket.as_ref());
            if let (Some(bucket), Some(own)) = (&mut client.bucket, own)
                && bucket.rate() == own.rate()
            {
                *bucket = Arc::clone(own);
            }
        }
    }

    /// The `Client` with this common name; `None` for an unknown one.
    pub fn client(&self, name: &str) -> Option<&Client> {
        self.clients.get(name)
    }
}

impl Client {
    /// Returns whether the `Client` may use the key at all.
    pub fn may_use(&self, key: KeyId) -> bool {
        self.keys.has(key)
    }

    /// Checks whether the `Client` may have `message` signed with `key`, and takes a token of its rate.
    ///
    /// # Errors
    ///
    /// The code of the refusal: key, [`Shape`] of the message, scheme or rate.
    pub fn check(
        &self,
        key: KeyId,
        algorithm: KeyAlgorithm,
        scheme: brisk_keyless::Scheme,
        message: &[u8],
    ) -> Result<(), ErrorCode> {
        if !self.may_use(key) {
            return Err(ErrorCode::KeyNotAllowed);
        }
        // The bytes decide, not the client: a gateway that was taken over would declare any
        // message to be a handshake.
        let shape = shape(message).ok_or(ErrorCode::Shape)?;
        if !self.operations.contains(&shape) {
            return Err(ErrorCode::OperationNotAllowed);
        }
        if !algorithm.schemes().contains(&scheme) || !shape.is_signed_with(scheme) {
            return Err(ErrorCode::Scheme);
        }
        // Last, so that requests refused for other reasons take no token.
        self.take_token()
    }

    /// Checks whether the `Client` may have a premaster secret decrypted with a key of this algorithm, and takes a
    /// token of its rate.
    pub fn check_decryption(&self, algorithm: KeyAlgorithm) -> Result<(), ErrorCode> {
        if !self.decrypts {
            return Err(ErrorCode::OperationNotAllowed);
        }
        if !matches!(algorithm, KeyAlgorithm::Rsa { .. }) {
            return Err(ErrorCode::Scheme);
        }
        self.take_token()
    }

    fn take_token(&self) -> Result<(), ErrorCode> {
        let is_allowed = self.bucket.as_ref().is_none_or(|bucket| bucket.take());
        if is_allowed { Ok(()) } else { Err(ErrorCode::Rate) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brisk_keyless::Scheme;

    use super::*;

    const KEY: KeyId = KeyId([1; 32]);
    const ECDSA: Scheme = Scheme::ECDSA_SECP256R1_SHA256;

    fn tls13() -> Vec<u8> {
        [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[7; 32]].concat()
    }

    fn tls12() -> Vec<u8> {
        [&[0; 64][..], &[3, 0, 29, 32], &[7; 32]].concat()
    }

    fn checked(policy: &Policy, key: KeyId, scheme: Scheme, message: &[u8]) -> Result<(), ErrorCode> {
        let client = policy.client("gateway").expect("a client");
        let rsa = [Scheme::RSA_PKCS1_SHA256, Scheme::RSA_PSS_RSAE_SHA256].contains(&scheme);
        let algorithm = if rsa { KeyAlgorithm::Rsa { bits: 2048 } } else { KeyAlgorithm::EcdsaP256 };
        client.check(key, algorithm, scheme, message)
    }

    fn policy(keys: Keys, operations: Vec<Shape>, rate: Option<Rate>) -> Policy {
        let mut policy = Policy::new();
        policy.add("gateway", keys, operations, rate);
        policy
    }

    #[test]
    fn a_client_may_do_what_is_written_and_nothing_else() {
        let own = policy(Keys::Some([KEY].into()), vec![Shape::Tls13Server], None);
        assert!(own.client("another").is_none());
        assert_eq!(checked(&own, KEY, ECDSA, &tls13()), Ok(()));
        let other = KeyId([2; 32]);
        assert_eq!(checked(&own, other, ECDSA, &tls13()), Err(ErrorCode::KeyNotAllowed));
        assert_eq!(checked(&own, KEY, ECDSA, &tls12()), Err(ErrorCode::OperationNotAllowed));
        assert_eq!(checked(&own, KEY, ECDSA, &[7; 32]), Err(ErrorCode::Shape));
        assert_eq!(checked(&own, KEY, Scheme::ED25519, &tls13()), Err(ErrorCode::Scheme));
    }

    #[test]
    fn pkcs1_is_for_tls_1_2_alone() {
        let all = policy(Keys::All, vec![Shape::Tls13Server, Shape::Tls12Server], None);
        assert_eq!(checked(&all, KEY, Scheme::RSA_PKCS1_SHA256, &tls12()), Ok(()));
        assert_eq!(checked(&all, KEY, Scheme::RSA_PKCS1_SHA256, &tls13()), Err(ErrorCode::Scheme));
        assert_eq!(checked(&all, KEY, Scheme::RSA_PSS_RSAE_SHA256, &tls13()), Ok(()));
    }

    #[test]
    fn decryption_is_off_unless_it_is_allowed_and_for_rsa_alone() {
        let rate = Rate { interval: Duration::from_hours(1), burst: 1 };
        let mut policy = policy(Keys::All, vec![Shape::Tls12Server], Some(rate));
        let rsa = KeyAlgorithm::Rsa { bits: 2048 };
        let checked = |policy: &Policy, algorithm| {
            policy.client("gateway").expect("a client").check_decryption(algorithm)
        };
        assert_eq!(checked(&policy, rsa), Err(ErrorCode::OperationNotAllowed));
        policy.allow_decryption("another");
        assert_eq!(checked(&policy, rsa), Err(ErrorCode::OperationNotAllowed));
        policy.allow_decryption("gateway");
        assert_eq!(checked(&policy, KeyAlgorithm::EcdsaP256), Err(ErrorCode::Scheme));
        assert_eq!(checked(&policy, rsa), Ok(()));
        assert_eq!(checked(&policy, rsa), Err(ErrorCode::Rate));
    }

    #[test]
    fn what_is_refused_costs_no_token() {
        let rate = Rate { interval: Duration::from_hours(1), burst: 1 };
        let policy = policy(Keys::All, vec![Shape::Tls13Server], Some(rate));
        assert_eq!(checked(&policy, KEY, ECDSA, b""), Err(ErrorCode::Shape));
        assert_eq!(checked(&policy, KEY, ECDSA, &tls13()), Ok(()));
        assert_eq!(checked(&policy, KEY, ECDSA, &tls13()), Err(ErrorCode::Rate));
    }

    #[test]
    fn new_settings_give_no_new_tokens_unless_the_rate_is_another() {
        let rate = |burst| Some(Rate { interval: Duration::from_hours(1), burst });
        let of = |burst| policy(Keys::All, vec![Shape::Tls13Server], rate(burst));
        let before = of(1);
        assert_eq!(checked(&before, KEY, ECDSA, &tls13()), Ok(()));
        for (burst, expected) in [(1, Err(ErrorCode::Rate)), (2, Ok(()))] {
            let mut after = of(burst);
            after.keep_buckets_of(&before);
            assert_eq!(checked(&after, KEY, ECDSA, &tls13()), expected, "{burst}");
        }
    }
}
