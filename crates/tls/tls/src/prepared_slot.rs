//! The certificates in a host's [`Slot`], prepared for [`rustls`] after each publication.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use brisk_certs::{ClientAbilities, Served, Slot, choose};
use brisk_wire::client_hello::ClientHello;
use rustls::sign::CertifiedKey;

use crate::gate::KeyGate;
use crate::hooks::certified;

/// The certificates of a host's slot. While nothing is published, a handshake costs two atomic loads.
pub(crate) struct PreparedSlot {
    slot: Arc<Slot>,
    gate: Arc<KeyGate>,
    prepared: ArcSwap<Prepared>,
}

/// The certificates of one publication, each as a [`CertifiedKey`].
struct Prepared {
    published: Arc<Vec<Served>>,
    certified: Vec<PreparedCertificate>,
}

/// A certificate, prepared with its staple and without it for the time after the staple's expiry.
struct PreparedCertificate {
    served: Served,
    with_staple: Arc<CertifiedKey>,
    without: Arc<CertifiedKey>,
}

/// `served` without an expired staple, whose replacement may come a moment late.
fn fresh(mut served: Served) -> Served {
    served.staple = served.staple.filter(|staple| staple.is_fresh(SystemTime::now()));
    served
}

impl PreparedSlot {
    pub(crate) fn new(slot: &Arc<Slot>, gate: &Arc<KeyGate>) -> Self {
        let prepared = ArcSwap::from_pointee(Prepared::new(&slot.load(), gate));
        Self { slot: Arc::clone(slot), gate: Arc::clone(gate), prepared }
    }

    /// Chooses a certificate for this client from the published ones.
    pub(crate) fn choose(&self, hello: &ClientHello) -> Option<Arc<CertifiedKey>> {
        let published = self.slot.load();
        let prepared = self.prepared.load();
        // The address suffices: `prepared` holds its publication, so no other one can have the same
        // address.
        if Arc::ptr_eq(&published, &prepared.published) {
            return prepared.choose(hello);
        }
        // Published a moment ago and not prepared yet. If another thread concurrently stores an older publication, the
        // next handshake notices.
        let prepared = Arc::new(Prepared::new(&published, &self.gate));
        self.prepared.store(Arc::clone(&prepared));
        prepared.choose(hello)
    }

    /// Chooses a certificate for this client from `served`, by the rules of [`Self::choose`].
    pub(crate) fn of(&self, served: &[Served], hello: &ClientHello) -> Option<Arc<CertifiedKey>> {
        let abilities = ClientAbilities::from(hello);
        let chosen = choose(served, |served| served.certificate.algorithm, &abilities);
        chosen.map(|served| certified(&fresh(served.clone()), &self.gate))
    }

    /// Whether this value presents the certificates in `slot`: [`Arc::ptr_eq`].
    pub(crate) fn is_of(&self, slot: &Arc<Slot>) -> bool {
        Arc::ptr_eq(&self.slot, slot)
    }

    /// Prepares the published certificates without waiting for a handshake. Drops the previous ones, with their engine
    /// and keys.
    pub(crate) fn refresh(&self) {
        self.prepared.store(Arc::new(Prepared::new(&self.slot.load(), &self.gate)));
    }
}

impl fmt::Debug for PreparedSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedSlot").field(&self.slot).finish()
    }
}

impl Prepared {
    fn new(published: &Arc<Vec<Served>>, gate: &Arc<KeyGate>) -> Self {
        let certified = published.iter().map(|served| PreparedCertificate::new(served.clone(), gate));
        Self { certified: certified.collect(), published: Arc::clone(published) }
    }

    fn choose(&self, hello: &ClientHello) -> Option<Arc<CertifiedKey>> {
        let abilities = ClientAbilities::from(hello);
        let chosen = choose(&self.certified, |one| one.served.certificate.algorithm, &abilities);
        chosen.map(|one| one.at(SystemTime::now()))
    }
}

impl PreparedCertificate {
    fn new(served: Served, gate: &Arc<KeyGate>) -> Self {
        let with_staple = certified(&served, gate);
        let without = match &served.staple {
            None => Arc::clone(&with_staple),
            Some(_) => certified(&Served { staple: None, ..served.clone() }, gate),
        };
        Self { served, with_staple, without }
    }

    fn at(&self, now: SystemTime) -> Arc<CertifiedKey> {
        let is_fresh = self.served.staple.as_ref().is_some_and(|staple| staple.is_fresh(now));
        Arc::clone(if is_fresh { &self.with_staple } else { &self.without })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brisk_certs::{Staple, load};
    use brisk_keys::{Keystore, LocalEngine};
    use brisk_testkit::ca::TestCa;

    use super::*;

    #[test]
    fn a_staple_is_not_shown_after_its_end_although_nothing_else_is_published() {
        let leaf = TestCa::new().server(&["a.test"]).issue();
        let mut keystore = Keystore::new();
        let loaded = load(&leaf.chain, &leaf.key, &mut keystore, SystemTime::now()).unwrap();
        let mut served =
            Served::new(Arc::new(loaded.certificate), Arc::new(LocalEngine::new(Arc::new(keystore))));
        let (this_update, hour) = (SystemTime::now(), Duration::from_hours(1));
        served.staple = Some(Arc::new(Staple { der: vec![7], this_update, next_update: this_update + hour }));
        let one = PreparedCertificate::new(served.clone(), &Arc::default());
        assert_eq!(one.at(this_update).ocsp.as_deref(), Some(&[7][..]));
        assert_eq!(one.at(this_update + 2 * hour).ocsp, None);
        assert!(fresh(served.clone()).staple.is_some());
        served.staple = Some(Arc::new(Staple { der: vec![7], this_update, next_update: this_update }));
        assert!(fresh(served).staple.is_none());
    }
}
