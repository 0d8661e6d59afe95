//! The certificates that a host shows now. They are no configuration: a renewal publishes others, and nothing is rebuilt.
//!
//! The files of the configuration are published here when it is put in force. What is obtained from authorities is published in
//! the same way, by [`Publish`].

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use brisk_keys::{Keystore, PrivateKeyEngine};

use crate::certificate::Certificate;
use crate::ocsp::Staple;

/// A certificate, and the engine that has its private key.
#[derive(Clone, Debug)]
pub struct Served {
    /// The certificate.
    pub certificate: Arc<Certificate>,
    /// Performs its key operations. It has to know the key before this is published.
    pub engine: Arc<dyn PrivateKeyEngine>,
    /// The OCSP response that goes with it to clients that ask for one (RFC 6066 section 8).
    pub staple: Option<Arc<Staple>>,
}

impl Served {
    /// A certificate without a staple.
    pub fn new(certificate: Arc<Certificate>, engine: Arc<dyn PrivateKeyEngine>) -> Self {
        Self { certificate, engine, staple: None }
    }
}

/// Shows certificates that come from elsewhere than the configuration.
pub trait Publish: fmt::Debug + Send + Sync + 'static {
    /// Shows these certificates to handshakes of a host that begin from now on, instead of those before. `keys` has their
    /// private keys, or knows the engines that have them.
    fn publish(&self, certificates: Vec<Arc<Certificate>>, keys: Keystore);
}

/// The certificates of one host, replaced together. Empty until the first publication: such a host completes no handshake.
///
/// A handshake keeps what it read at its beginning, engine included, whatever is published meanwhile.
pub struct Slot(ArcSwap<Vec<Served>>);

impl Slot {
    /// An empty slot.
    pub fn new() -> Arc<Self> {
        Self::with(Vec::new())
    }

    /// A slot with these certificates.
    pub(crate) fn with(certificates: Vec<Served>) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(certificates)))
    }

    /// Puts `certificates` in the place of those before, for handshakes that begin from now on.
    pub fn publish(&self, certificates: Vec<Served>) {
        self.0.store(Arc::new(certificates));
    }

    /// Puts what `change` makes of each certificate in its place, or leaves it where that is `None`. Whether anything
    /// changed. What another thread publishes meanwhile is changed, not lost: `change` may be called again.
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

    /// What is shown now, to be kept.
    pub(crate) fn load_full(&self) -> Arc<Vec<Served>> {
        self.0.load_full()
    }

    /// What is shown now. Takes no lock.
    pub fn load(&self) -> impl Deref<Target = Arc<Vec<Served>>> + use<> {
        self.0.load()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.0.load()).finish()
    }
}
