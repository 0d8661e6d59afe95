//! Certificates obtained by ACME: connects the [hosts of the gateway](ObtainedHost) with the
//! [specifications of the configuration](ResolvedAcme).

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use brisk_acme::{AcmeHost, AcmeThread, PreparedDemandThread, Revoked, StoredPublication};
use brisk_certs::{Certificate, Challenges};
use brisk_config::ResolvedAcme;
use brisk_gateway::{ObtainedHost, Obtainer};
use brisk_server::{Part, PartError};

/// Longest wait of a start for the publication of stored certificates.
const FIRST: Duration = Duration::from_secs(10);

/// ACME state of this process, shared by the gateway (as its [`Obtainer`]) and by reloads (as a [`Part`]).
#[derive(Debug, Default)]
pub(crate) struct Obtained {
    challenges: Arc<Challenges>,
    /// Hosts that the gateway serves, each with the function that publishes a new certificate.
    hosts: Mutex<Vec<ObtainedHost>>,
    /// Fingerprints of certificates that OCSP reports as revoked.
    revoked: Revoked,
    /// ACME thread; started by the first configuration in which a host needs it, so that other gateways have no such thread.
    keeper: OnceLock<AcmeThread>,
}

/// ACME part of a configuration that is prepared but not yet in force ([`Part::Prepared`]).
pub(crate) struct PreparedAcme {
    wanted: ResolvedAcme,
    /// `None` while no configuration has used ACME.
    threads: Option<(AcmeThread, PreparedDemandThread)>,
}

impl Obtained {
    /// Responses to the authorities' challenges, served by the gateway.
    pub(crate) fn challenges(&self) -> &Arc<Challenges> {
        &self.challenges
    }

    /// Publishes the stored certificates of the first configuration and obtains the others. Returns after the
    /// publication, so that the first handshakes find the certificates, and at the latest after [`FIRST`]. The only
    /// [`io::Error`] is a thread that cannot be started.
    pub(crate) fn start(&self, first: &ResolvedAcme) -> io::Result<()> {
        if let Some(publication) = self.follow_configuration(self.prepare_threads(first)?) {
            publication.wait(FIRST);
        }
        Ok(())
    }

    /// Obtains certificates for the hosts that the gateway serves now; specifications without such a host are skipped.
    fn follow_configuration(
        &self,
        PreparedAcme { wanted, threads }: PreparedAcme,
    ) -> Option<StoredPublication> {
        let (keeper, demands) = threads?;
        let served = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let host = |wanted: &brisk_acme::CertificateSpec| {
            let served = served.iter().find(|served| served.names == wanted.names)?;
            Some(AcmeHost { wanted: wanted.clone(), publish: Arc::clone(&served.publish) })
        };
        let hosts = wanted.wanted.iter().filter_map(host).collect();
        // Kept only now, when the configuration is in force: one that is refused leaves no thread.
        let keeper = self.keeper.get_or_init(|| keeper);
        Some(keeper.look_after(wanted.settings, hosts, wanted.demanded, demands))
    }

    fn prepare_threads(&self, wanted: &ResolvedAcme) -> io::Result<PreparedAcme> {
        let keeper = match (self.keeper.get(), wanted.place.as_ref().filter(|_| wanted.is_used())) {
            (Some(keeper), _) => Some(keeper.clone()),
            (None, Some(place)) => {
                Some(AcmeThread::start(place.store_with_copy(), &self.challenges, &self.revoked)?)
            }
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

    /// Orders and renews certificates for the hosts that the gateway serves now; specifications without such a host are
    /// skipped.
    fn commit(&self, prepared: PreparedAcme) {
        // Not waited for: open connections and the hosts of before are served meanwhile.
        let _ = self.follow_configuration(prepared);
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
