//! The certificates of a host as rustls shows them: what is in its slot, prepared after each publication.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use brisk_certs::{ClientAbilities, Served, Slot, choose};
use brisk_keys::KeyAlgorithm;
use brisk_wire::client_hello::ClientHello;
use rustls::sign::CertifiedKey;

use crate::gate::KeyGate;
use crate::hooks::certified;

/// The certificates of a host's slot. Each handshake costs two atomic loads while nothing is published.
pub(crate) struct Shown {
    slot: Arc<Slot>,
    gate: Arc<KeyGate>,
    prepared: ArcSwap<Prepared>,
}

/// The certificates of one publication, prepared for rustls.
struct Prepared {
    published: Arc<Vec<Served>>,
    certified: Vec<(KeyAlgorithm, Arc<CertifiedKey>)>,
}

impl Shown {
    pub(crate) fn new(slot: &Arc<Slot>, gate: &Arc<KeyGate>) -> Self {
        let prepared = ArcSwap::from_pointee(Prepared::new(&slot.load(), gate));
        Self { slot: Arc::clone(slot), gate: Arc::clone(gate), prepared }
    }

    /// The certificate for this client, from those published now.
    pub(crate) fn choose(&self, hello: &ClientHello) -> Option<Arc<CertifiedKey>> {
        let published = self.slot.load();
        let prepared = self.prepared.load();
        if Arc::ptr_eq(&published, &prepared.published) {
            return prepared.choose(hello);
        }
        // Published a moment ago, and not prepared yet. If another thread stores what was published before, the next
        // handshake notices.
        let prepared = Arc::new(Prepared::new(&published, &self.gate));
        self.prepared.store(Arc::clone(&prepared));
        prepared.choose(hello)
    }

    /// The one of `served` for this client, by the same rules.
    pub(crate) fn of(&self, served: &[Served], hello: &ClientHello) -> Option<Arc<CertifiedKey>> {
        let abilities = ClientAbilities::from(hello);
        let chosen = choose(served, |served| served.certificate.algorithm, &abilities);
        chosen.map(|served| certified(served, &self.gate))
    }

    /// Whether it shows what is published into this slot.
    pub(crate) fn is_of(&self, slot: &Arc<Slot>) -> bool {
        Arc::ptr_eq(&self.slot, slot)
    }

    /// Prepares the published certificates without waiting for a handshake. Drops those shown before, with their engine
    /// and keys.
    pub(crate) fn refresh(&self) {
        self.prepared.store(Arc::new(Prepared::new(&self.slot.load(), &self.gate)));
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shown").field(&self.slot).finish()
    }
}

impl Prepared {
    fn new(published: &Arc<Vec<Served>>, gate: &Arc<KeyGate>) -> Self {
        let certified =
            published.iter().map(|served| (served.certificate.algorithm, certified(served, gate)));
        Self { certified: certified.collect(), published: Arc::clone(published) }
    }

    fn choose(&self, hello: &ClientHello) -> Option<Arc<CertifiedKey>> {
        let chosen = choose(&self.certified, |(algorithm, _)| *algorithm, &ClientAbilities::from(hello));
        chosen.map(|(_, certified)| Arc::clone(certified))
    }
}
