//! The certificates that a host currently presents. A renewal replaces them without rebuilding any configuration.
//!
//! Certificates from files are published when a configuration is applied, certificates from authorities by [`Publish`].

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use brisk_keys::{Keystore, PrivateKeyEngine};

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
pub struct Slot(ArcSwap<Vec<Served>>);

impl Slot {
    /// Creates an empty slot.
    pub fn new() -> Arc<Self> {
        Self::with(Vec::new())
    }

    /// Creates a slot with `certificates`.
    pub(crate) fn with(certificates: Vec<Served>) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(certificates)))
    }

    /// Replaces the certificates for new handshakes.
    pub fn publish(&self, certificates: Vec<Served>) {
        self.0.store(Arc::new(certificates));
    }

    /// Replaces each certificate for which `change` returns another one. Returns whether any was replaced. Safe against
    /// concurrent [`publish`](Self::publish): `change` is then called again with the new certificates.
    pub fn update(&self, change: impl Fn(&Served) -> Option<Served>) -> bool {
        let changed = |shown: &Served| change(shown);
        let mut any = false;
        self.0.rcu(|shown| {
            let new: Vec<_> = shown.iter().map(changed).collect();
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
        self.0.load_full()
    }

    /// The current certificates. Takes no lock; the guard should be short-lived.
    pub fn load(&self) -> impl Deref<Target = Arc<Vec<Served>>> + use<> {
        self.0.load()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.0.load()).finish()
    }
}
