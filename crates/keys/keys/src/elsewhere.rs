//! Keys outside this process: the engine of each key, and an engine that delegates to it.

use std::sync::Arc;

use crate::{
    KeyAlgorithm, KeyElsewhere, KeyId, KeyOperation, Keystore, PendingOperation, PrivateKeyEngine, PublicKey,
    keystore::Elsewhere,
};

impl Keystore {
    /// Registers `engine` for the private key of `spki`, a DER `SubjectPublicKeyInfo`: a key in a token, for example,
    /// or on another machine. Registering a key again replaces its engine. [`KeyElsewhere::probe`] finds out whether
    /// `engine` has the key.
    pub fn add_elsewhere(&mut self, spki: &[u8], engine: Arc<dyn PrivateKeyEngine>) -> KeyId {
        let id = KeyId::of_spki(spki);
        self.elsewhere.insert(id, KeyElsewhere { id, engine, public_key: PublicKey::of_spki(spki) });
        id
    }

    /// Like [`add_elsewhere`](Self::add_elsewhere), for a key whose algorithm is known.
    pub fn add_known_elsewhere(
        &mut self,
        spki: &[u8],
        algorithm: KeyAlgorithm,
        engine: Arc<dyn PrivateKeyEngine>,
    ) -> KeyId {
        let id = self.add_elsewhere(spki, engine);
        self.algorithms.insert(id, algorithm);
        id
    }

    /// Algorithm of a key in this process or elsewhere; `None` for an unknown key, or if the algorithm of a key
    /// elsewhere is unknown.
    pub fn algorithm_anywhere(&self, id: KeyId) -> Option<KeyAlgorithm> {
        self.algorithm(id).or_else(|| self.algorithms.get(&id).copied())
    }

    /// The key `id`, if it is outside this process.
    pub fn elsewhere(&self, id: KeyId) -> Option<&KeyElsewhere> {
        self.elsewhere.get(&id)
    }

    /// Number of keys in this process and elsewhere.
    pub fn count_anywhere(&self) -> usize {
        self.len() + self.elsewhere.len()
    }

    /// Returns an engine for all keys of this store: operations with keys that are [elsewhere](Self::add_elsewhere)
    /// use the engine registered for the key, all others use `here`. If no key is elsewhere, returns `here` itself.
    pub fn with_elsewhere(&self, here: Arc<dyn PrivateKeyEngine>) -> Arc<dyn PrivateKeyEngine> {
        if self.elsewhere.is_empty() {
            // Spares each operation a look-up, in gateways whose keys are all in this process.
            return here;
        }
        Arc::new(ByKey { here, elsewhere: self.elsewhere.clone() })
    }

    /// Whether both stores have the same keys, and the same engines for keys elsewhere. If so, an engine for one
    /// store serves the other too.
    pub fn is_same(&self, other: &Self) -> bool {
        let same_engine = |(id, key): (&KeyId, &KeyElsewhere)| {
            other.elsewhere.get(id).is_some_and(|other| key.is_same(other))
        };
        // Ids are hashes of public keys, so equal ids are equal keys: no private number is compared.
        self.len() == other.len()
            && self.elsewhere.len() == other.elsewhere.len()
            && self.ids().all(|id| other.algorithm(id).is_some())
            && self.elsewhere.iter().all(same_engine)
    }
}

/// [`PrivateKeyEngine`] that delegates each [`KeyOperation`] to the engine of its key, with the public key if the key is
/// elsewhere.
#[derive(Debug)]
struct ByKey {
    here: Arc<dyn PrivateKeyEngine>,
    elsewhere: Elsewhere,
}

impl PrivateKeyEngine for ByKey {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        let Some(key) = self.elsewhere.get(&operation.key) else { return self.here.submit(operation) };
        // With the public key, because a faulty RSA signature of another process can reveal the private
        // key: the engine verifies each signature before a client gets it.
        key.engine.submit(KeyOperation { public_key: Some(key.public_key.clone()), ..operation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        KeyError, LocalEngine,
        testing::{key, keystore, sign},
    };

    /// Has no key, and says so with an error of its own.
    #[derive(Debug)]
    struct Stranger;

    const STRANGER: KeyError = KeyError::Failed("a stranger was asked");

    impl PrivateKeyEngine for Stranger {
        fn submit(&self, _: KeyOperation) -> PendingOperation {
            PendingOperation::refused(STRANGER)
        }
    }

    #[test]
    fn each_operation_goes_to_the_engine_that_has_its_key() {
        let mut store = Keystore::new();
        let elsewhere = store.add_elsewhere(b"a public key", Arc::new(Stranger));
        let engine = store.with_elsewhere(Arc::new(LocalEngine::new(keystore())));
        for algorithm in [KeyAlgorithm::EcdsaP384, KeyAlgorithm::Ed25519] {
            let scheme = algorithm.schemes()[0];
            let here = engine.submit(sign(key(algorithm), scheme)).try_take();
            assert!(matches!(here, Some(Ok(_))), "{here:?}");
            assert_eq!(engine.submit(sign(elsewhere, scheme)).try_take(), Some(Err(STRANGER)));
        }
    }

    #[test]
    fn without_keys_elsewhere_nothing_is_in_between() {
        let here: Arc<dyn PrivateKeyEngine> = Arc::new(Stranger);
        assert!(Arc::ptr_eq(&here, &keystore().with_elsewhere(Arc::clone(&here))));
    }

    #[test]
    fn a_subset_has_the_keys_that_were_named_and_no_others() {
        let mut store = Keystore::new();
        store.add_all(&keystore());
        let elsewhere = store.add_elsewhere(b"a public key", Arc::new(Stranger));
        let (one, other) = (key(KeyAlgorithm::EcdsaP384), key(KeyAlgorithm::Ed25519));
        let subset = store.subset([one, elsewhere]);
        assert_eq!((subset.len(), subset.count_anywhere()), (1, 2));
        assert!(subset.algorithm(one).is_some() && subset.algorithm(other).is_none());
        assert!(store.subset([other]).elsewhere.is_empty());
    }

    #[test]
    fn what_is_known_of_a_key_elsewhere_goes_with_it_to_another_store() {
        let mut store = Keystore::new();
        let known = store.add_known_elsewhere(b"one", KeyAlgorithm::EcdsaP384, Arc::new(Stranger));
        let unknown = store.add_elsewhere(b"two", Arc::new(Stranger));
        let mut both = Keystore::new();
        both.add_all(&store);
        both.add_all(&keystore());
        assert_eq!(both.algorithm_anywhere(known), Some(KeyAlgorithm::EcdsaP384));
        assert_eq!((both.algorithm_anywhere(unknown), both.algorithm(known)), (None, None));
        let here = key(KeyAlgorithm::Ed25519);
        assert_eq!(both.algorithm_anywhere(here), Some(KeyAlgorithm::Ed25519));
        assert_eq!(both.count_anywhere(), keystore().len() + 2);
    }

    #[test]
    fn stores_are_the_same_if_keys_and_engines_are() {
        let engines: [Arc<dyn PrivateKeyEngine>; 2] =
            [Arc::new(LocalEngine::new(keystore())), Arc::new(LocalEngine::new(keystore()))];
        let with = |spki: &[u8], engine: usize| {
            let mut store = Keystore::new();
            store.add_elsewhere(spki, Arc::clone(&engines[engine]));
            store
        };
        assert!(with(b"one", 0).is_same(&with(b"one", 0)));
        assert!(!with(b"one", 0).is_same(&with(b"one", 1)));
        assert!(!with(b"one", 0).is_same(&with(b"two", 0)));
        assert!(!with(b"one", 0).is_same(&Keystore::new()));
        assert!(!Keystore::new().is_same(&with(b"one", 0)));
        assert!(keystore().is_same(&keystore()));
        assert!(!keystore().is_same(&Keystore::new()));
    }
}
