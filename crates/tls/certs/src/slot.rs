//! The certificates that a host currently presents. A renewal replaces them without rebuilding any configuration.
//!
//! Certificates from files are published when a configuration is applied, certificates from authorities by [`Publish`].

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use brisk_keys::{Engines, Keystore, PrivateKeyEngine};

use crate::certificate::Certificate;
use crate::ocsp::Staple;

/// A certificate and the engine that has its private key.
#[derive(Clone, Debug)]
pub struct Served {
    /// The chain and the ID of its key.
    pub certificate: Arc<Certificate>,
    /// Performs the key operations. It must know the key before the certificate is published.
    pub engine: Arc<dyn PrivateKeyEngine>,
    /// OCSP response for clients that request one (RFC 6066 section 8).
    pub staple: Option<Arc<Staple>>,
}

impl Served {
    /// A certificate without a staple.
    pub fn new(certificate: Arc<Certificate>, engine: Arc<dyn PrivateKeyEngine>) -> Self {
        Self { certificate, engine, staple: None }
    }
}

/// Publishes certificates that are not from the configuration.
pub trait Publish: fmt::Debug + Send + Sync + 'static {
    /// Replaces the certificates of a host for new handshakes. `keys` contains their private keys, or the engines that
    /// have them.
    fn publish(&self, certificates: Vec<Arc<Certificate>>, keys: Keystore);
}

/// The certificates of one host, replaced together. Initially empty: a host without certificates completes no
/// handshake.
///
/// A handshake reads the slot once and keeps the result with its engine: a later publication does not affect the handshake.
pub struct Slot {
    served: ArcSwap<Vec<Served>>,
    engine: ArcSwapOption<SlotEngine>,
}

/// The last engine of a slot, with its keys.
struct SlotEngine {
    keys: Arc<Keystore>,
    engine: Arc<dyn PrivateKeyEngine>,
}

impl Slot {
    /// Creates an empty slot.
    pub fn new() -> Arc<Self> {
        Self::with(Vec::new())
    }

    /// Creates a slot with `certificates`.
    pub(crate) fn with(certificates: Vec<Served>) -> Arc<Self> {
        Arc::new(Self { served: ArcSwap::from_pointee(certificates), engine: ArcSwapOption::empty() })
    }

    /// Replaces the certificates for new handshakes. A slot without certificates keeps no engine either.
    pub fn publish(&self, certificates: Vec<Served>) {
        // The engine holds private keys, which must not outlive the certificates.
        if certificates.is_empty() {
            self.engine.store(None);
        }
        self.served.store(Arc::new(certificates));
    }

    /// The engine for `keys`, of certificates that are to be published here. The previous call's engine is returned if
    /// it has the same keys: a new engine prepares each RSA key, which takes as long as an operation.
    pub fn engine(&self, keys: Keystore, engines: &dyn Engines) -> Arc<dyn PrivateKeyEngine> {
        if let Some(last) = self.engine.load().as_ref().filter(|last| last.keys.is_same(&keys)) {
            return Arc::clone(&last.engine);
        }
        let keys = Arc::new(keys);
        let engine = engines.for_keys(Arc::clone(&keys));
        self.engine.store(Some(Arc::new(SlotEngine { keys, engine: Arc::clone(&engine) })));
        engine
    }

    /// Replaces each certificate for which `change` returns another one. Returns whether any was replaced. Safe against
    /// concurrent [`publish`](Self::publish): `change` is then called again with the new certificates.
    pub fn update(&self, change: impl Fn(&Served) -> Option<Served>) -> bool {
        let changed = |shown: &Served| change(shown);
        let mut any = false;
        self.served.rcu(|shown| {
            let new: Vec<_> = shown.iter().map(changed).collect();
            // Assigned, not accumulated: `rcu` repeats the closure after a concurrent publication.
            any = new.iter().any(Option::is_some);
            if !any {
                return Arc::clone(shown);
            }
            let pairs = shown.iter().zip(new);
            Arc::new(pairs.map(|(old, new)| new.unwrap_or_else(|| old.clone())).collect())
        });
        any
    }

    /// The current certificates, for long-term use.
    pub(crate) fn load_full(&self) -> Arc<Vec<Served>> {
        self.served.load_full()
    }

    /// The current certificates. Takes no lock; the guard should be short-lived.
    pub fn load(&self) -> impl Deref<Target = Arc<Vec<Served>>> + use<> {
        self.served.load()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.served.load()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use brisk_keys::LocalEngine;
    use rcgen::KeyPair;

    use super::*;

    #[derive(Debug)]
    struct Processor;

    impl Engines for Processor {
        fn for_keys(&self, keystore: Arc<Keystore>) -> Arc<dyn PrivateKeyEngine> {
            Arc::new(LocalEngine::new(keystore))
        }

        fn queue(&self) -> NonZeroUsize {
            NonZeroUsize::MIN
        }
    }

    #[test]
    fn an_engine_stays_while_the_keys_of_a_slot_do() {
        let slot = Slot::new();
        let [one, other] = [(); 2].map(|()| KeyPair::generate().unwrap().serialize_pem());
        let engine = |keys: &[&String]| {
            let mut keystore = Keystore::new();
            for key in keys {
                keystore.add_pem(key.as_bytes()).unwrap();
            }
            slot.engine(keystore, &Processor)
        };
        let first = engine(&[&one]);
        assert!(Arc::ptr_eq(&first, &engine(&[&one])));
        let both = engine(&[&one, &other]);
        assert!(!Arc::ptr_eq(&first, &both));
        assert!(Arc::ptr_eq(&both, &engine(&[&other, &one])));
        slot.publish(Vec::new());
        assert!(slot.engine.load().is_none(), "the keys of no certificate stay in memory");
    }
}
