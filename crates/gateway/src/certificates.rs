//! Certificates of all hosts: engines for their keys, staples, and publication from files and authorities.

use std::fmt;
use std::sync::{Arc, Weak};

use brisk_certs::{Catalogues, Certificate, Challenges, Maintenance, OnDemandHosts, Publish, Slot};
use brisk_keys::{Engines, Keystore};
use brisk_tls::HostSettings;

use crate::GatewayError;
use crate::errands::{self, CertificateMetrics, Errands};
use crate::obtained::{ObtainedHost, Obtainer};
use crate::settings::{CertificateSettings, GatewaySettings};
use crate::shared::{Environment, Shared};
use crate::termination::Termination;

/// The source of certificates and of operations with their keys. Outlives reloads.
pub(crate) struct Certificates {
    /// The engines of the process.
    pub(crate) engines: Arc<dyn Engines>,
    /// Responses to authorities that check a name.
    pub(crate) challenges: Arc<Challenges>,
    obtainer: Arc<dyn Obtainer>,
    /// Keeps staples, completes chains, notices revocation.
    pub(crate) maintenance: Arc<Maintenance>,
    /// Folders of certificates in use.
    pub(crate) catalogues: Catalogues,
    /// Hosts with names on demand in use.
    pub(crate) on_demand: OnDemandHosts,
    errands: Arc<Errands>,
}

impl Certificates {
    pub(crate) fn new(
        settings: &CertificateSettings,
        environment: &Environment,
    ) -> Result<Self, GatewayError> {
        let Environment { engines, challenges, obtainer, catalogues, on_demand, .. } = environment.clone();
        let errands = Arc::new(Errands::new(Arc::clone(&settings.allow_private)));
        let maintenance = Arc::new(errands::start(settings, Arc::clone(&errands))?);
        let replaces = Arc::clone(&obtainer);
        maintenance.on_revoked(move |certificate| replaces.revoked(certificate));
        let metrics = CertificateMetrics {
            maintenance: Arc::clone(&maintenance),
            catalogues: catalogues.clone(),
            on_demand: on_demand.clone(),
        };
        environment.metrics.register(metrics);
        Ok(Self { engines, challenges, obtainer, maintenance, catalogues, on_demand, errands })
    }

    /// Makes the catalogues of `settings` load certificates on demand, with engines for the keys of names on demand.
    /// Has no effect on a catalogue that is in use; a new one stops when `settings` is dropped.
    pub(crate) fn start_catalogues(&self, settings: &GatewaySettings) -> Result<(), GatewayError> {
        for catalogue in settings.service.hosts.iter().filter_map(|host| host.tls.catalogue.as_ref()) {
            let engines = Arc::clone(&self.engines);
            catalogue.start(Arc::new(move |keystore| engines.for_keys(keystore)), Some(&self.maintenance))?;
        }
        for on_demand in settings.service.hosts.iter().filter_map(|host| host.tls.on_demand.as_ref()) {
            let engines = Arc::clone(&self.engines);
            on_demand.start(Arc::new(move |keystore| engines.for_keys(keystore)));
        }
        Ok(())
    }

    /// Shows the certificates of `tls`, whose keys are in `keys`, to new handshakes. Waits for their first staples, as long as
    /// `settings` allow.
    pub(crate) fn publish(&self, tls: &Termination, keys: &Keystore, settings: &CertificateSettings) {
        if self.errands.permit(&settings.allow_private) {
            self.maintenance.restart();
        }
        let certificates: Vec<_> = tls.configured().flat_map(|host| &host.certificates).cloned().collect();
        self.maintenance.prepare(&certificates, settings.maintenance);
        for host in tls.configured() {
            let keys = keys.subset(host.certificates.iter().map(|certificate| certificate.key));
            self.show_files(host, &host.certificates, keys);
        }
        self.maintenance.follow(tls.slots());
        tls.acceptor.refresh();
        errands::warn_of_long_flights(&self.maintenance, certificates.iter());
    }

    /// Publishes other certificates of the files of these hosts, after one wait for the first staples of all. Hosts that are
    /// not in `tls` are skipped.
    pub(crate) fn renew(&self, tls: &Termination, hosts: Vec<HostCertificates>) {
        let all: Vec<_> = hosts.iter().flat_map(|host| &host.certificates).cloned().collect();
        self.maintenance.prepare_more(&all);
        for HostCertificates { names, certificates, keys } in hosts {
            if let Some(host) = tls.configured().find(|host| host.names == names) {
                self.show_files(host, &certificates, keys);
                self.maintenance.look(&host.slot);
                tls.acceptor.refresh_slot(&host.slot);
            }
        }
        errands::warn_of_long_flights(&self.maintenance, all.iter());
    }

    /// Publishes certificates from the files of `host`. Logs those that are new in its slot.
    fn show_files(&self, host: &HostSettings, certificates: &[Arc<Certificate>], keys: Keystore) {
        let shown = host.slot.load();
        // The chain of an incomplete certificate is completed later by fetching issuers, so a difference in it is not
        // news.
        let is_same = |old: &Certificate, new: &Certificate| {
            old.fingerprint == new.fingerprint && (old.chain == new.chain || !new.is_complete)
        };
        let is_shown = |new: &Certificate| shown.iter().any(|old| is_same(&old.certificate, new));
        for new in certificates.iter().filter(|new| !shown.is_empty() && !is_shown(new)) {
            let (host, file) = (host.names.first(), new.source.display());
            tracing::info!(host, %file, "new handshakes are shown a new certificate");
        }
        self.show(&host.slot, certificates, keys);
    }

    /// Publishes `certificates` in `slot`.
    fn show(&self, slot: &Slot, certificates: &[Arc<Certificate>], keys: Keystore) {
        if certificates.is_empty() {
            return slot.publish(Vec::new());
        }
        let engine = slot.engine(keys, &*self.engines);
        let served = certificates.iter().map(|certificate| self.maintenance.served(certificate, &engine));
        slot.publish(served.collect());
    }

    /// Reports the hosts of `tls` whose certificates are obtained to the obtainer.
    pub(crate) fn show_obtainer(&self, tls: &Termination, shared: &Weak<Shared>) {
        let host = |host: &HostSettings| ObtainedHost {
            names: host.names.clone(),
            publish: Arc::new(Publisher { slot: Arc::clone(&host.slot), shared: Weak::clone(shared) }),
        };
        self.obtainer.follow(tls.obtained().map(host).collect());
    }
}

/// The certificates in the files of one host.
#[derive(Debug)]
pub struct HostCertificates {
    /// The names of the host, as in its settings.
    pub names: Vec<String>,
    /// The certificates.
    pub certificates: Vec<Arc<Certificate>>,
    /// Their private keys, or the engines that have them.
    pub keys: Keystore,
}

/// Publishes obtained certificates into the slot of one host.
struct Publisher {
    slot: Arc<Slot>,
    shared: Weak<Shared>,
}

impl Publish for Publisher {
    fn publish(&self, certificates: Vec<Arc<Certificate>>, keys: Keystore) {
        let Some(shared) = self.shared.upgrade() else { return };
        let maintenance = &shared.certificates.maintenance;
        maintenance.prepare_more(&certificates);
        shared.certificates.show(&self.slot, &certificates, keys);
        maintenance.look(&self.slot);
        shared.live.load().tls.acceptor.refresh_slot(&self.slot);
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("slot", &self.slot).finish_non_exhaustive()
    }
}
