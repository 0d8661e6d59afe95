//! Hosts whose certificates are obtained: brings together what the gateway serves and what the configuration wants.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use brisk_acme::{Keeper, Revoked, WantedHost};
use brisk_certs::{Certificate, Challenges};
use brisk_config::ResolvedAcme;
use brisk_gateway::{ObtainedHost, Obtainer};

/// The certificates of the hosts of this process.
#[derive(Debug, Default)]
pub(crate) struct Obtained {
    challenges: Arc<Challenges>,
    /// The hosts that the gateway serves.
    hosts: Mutex<Vec<ObtainedHost>>,
    /// The certificates that turned out to be revoked.
    revoked: Revoked,
    /// Started with the first host that wants certificates.
    keeper: OnceLock<Keeper>,
}

impl Obtained {
    /// What authorities are answered.
    pub(crate) fn challenges(&self) -> &Arc<Challenges> {
        &self.challenges
    }

    /// Looks after the certificates that `acme` wants, for the hosts that the gateway serves now.
    pub(crate) fn look_after(&self, acme: &ResolvedAcme) -> io::Result<()> {
        if self.keeper.get().is_none() {
            let Some(place) = acme.place.as_ref().filter(|_| acme.is_used()) else { return Ok(()) };
            let started = Keeper::start(place.store(), &self.challenges, &self.revoked)?;
            // Only this thread sets it.
            let _ = self.keeper.set(started);
        }
        let served = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let host = |wanted: &brisk_acme::Wanted| {
            let served = served.iter().find(|served| served.names == wanted.names)?;
            Some(WantedHost { wanted: wanted.clone(), publish: Arc::clone(&served.publish) })
        };
        let hosts = acme.wanted.iter().filter_map(host).collect();
        if let Some(keeper) = self.keeper.get() {
            keeper.look_after(acme.settings.clone(), hosts, acme.demanded.clone())?;
        }
        Ok(())
    }
}

impl Obtainer for Obtained {
    fn follow(&self, hosts: Vec<ObtainedHost>) {
        *self.hosts.lock().unwrap_or_else(PoisonError::into_inner) = hosts;
    }

    fn revoked(&self, certificate: &Certificate) {
        self.revoked.note(certificate.fingerprint);
    }
}
