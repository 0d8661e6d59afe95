//! The certificates that a host shows now. They are no configuration: a renewal publishes others, and nothing is rebuilt.
//!
//! The files of the configuration are published here when it is put in force. Any other source of a certificate would publish
//! in the same way.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use brisk_keys::PrivateKeyEngine;

use crate::certificate::Certificate;

/// A certificate, and the engine that has its private key.
#[derive(Clone, Debug)]
pub struct Served {
    /// The certificate.
    pub certificate: Arc<Certificate>,
    /// Performs its key operations. It has to know the key before this is published.
    pub engine: Arc<dyn PrivateKeyEngine>,
}

/// The certificates of one host, replaced together. Empty until the first publication: such a host completes no handshake.
///
/// A handshake keeps what it read at its beginning, engine included, whatever is published meanwhile.
pub struct Slot(ArcSwap<Vec<Served>>);

impl Slot {
    /// An empty slot.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(Vec::new())))
    }

    /// Puts `certificates` in the place of those before, for handshakes that begin from now on.
    pub fn publish(&self, certificates: Vec<Served>) {
        self.0.store(Arc::new(certificates));
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
