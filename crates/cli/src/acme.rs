//! Hosts whose certificates are obtained: brings together what the gateway serves and what the configuration wants.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use brisk_acme::{AcmeHost, AcmeThread, PreparedDemandThread, Revoked};
use brisk_certs::{Certificate, Challenges};
use brisk_config::ResolvedAcme;
use brisk_gateway::{ObtainedHost, Obtainer};
use brisk_server::{Part, PartError};

/// The certificates of the hosts of this process.
#[derive(Debug, Default)]
pub(crate) struct Obtained {
    challenges: Arc<Challenges>,
    /// The hosts that the gateway serves.
    hosts: Mutex<Vec<ObtainedHost>>,
    /// The certificates that turned out to be revoked.
    revoked: Revoked,
    /// Started with the first host that wants certificates.
    keeper: OnceLock<AcmeThread>,
}

/// The certificates that another configuration wants.
pub(crate) struct PreparedAcme {
    wanted: ResolvedAcme,
    /// `None` if nothing was ever wanted.
    threads: Option<(AcmeThread, PreparedDemandThread)>,
}

impl Obtained {
    /// What authorities are answered.
    pub(crate) fn challenges(&self) -> &Arc<Challenges> {
        &self.challenges
    }

    /// Obtains the certificates that the first configuration wants.
    pub(crate) fn start(&self, first: &ResolvedAcme) -> io::Result<()> {
        self.commit(self.prepare_threads(first)?);
        Ok(())
    }

    fn prepare_threads(&self, wanted: &ResolvedAcme) -> io::Result<PreparedAcme> {
        let keeper = match (self.keeper.get(), wanted.place.as_ref().filter(|_| wanted.is_used())) {
            (Some(keeper), _) => Some(keeper.clone()),
            (None, Some(place)) => Some(AcmeThread::start(place.store(), &self.challenges, &self.revoked)?),
            (None, None) => None,
        };
        let demands = keeper.as_ref().map(|keeper| keeper.prepare(&wanted.demanded)).transpose()?;
        Ok(PreparedAcme { wanted: wanted.clone(), threads: keeper.zip(demands) })
    }
}

impl Part for Obtained {
    type Settings = ResolvedAcme;
    type Prepared = PreparedAcme;

    fn prepare(&self, wanted: &ResolvedAcme) -> Result<PreparedAcme, PartError> {
        Ok(self.prepare_threads(wanted)?)
    }

    /// Obtains the certificates for the hosts that the gateway serves now.
    fn commit(&self, PreparedAcme { wanted, threads }: PreparedAcme) {
        let Some((keeper, demands)) = threads else { return };
        let served = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let host = |wanted: &brisk_acme::CertificateSpec| {
            let served = served.iter().find(|served| served.names == wanted.names)?;
            Some(AcmeHost { wanted: wanted.clone(), publish: Arc::clone(&served.publish) })
        };
        let hosts = wanted.wanted.iter().filter_map(host).collect();
        self.keeper.get_or_init(|| keeper).look_after(wanted.settings, hosts, wanted.demanded, demands);
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
