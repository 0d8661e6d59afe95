//! Certificates of all hosts: engines for their keys, staples, and publication from files and authorities.

mod fetching;
pub(crate) mod key_checks;
mod metrics;
mod obtainer;
pub(crate) mod report;

use std::fmt;
use std::sync::{Arc, Weak};

use brisk_certs::{Catalogues, Certificate, Challenges, Maintenance, OnDemandHosts, Publish, Slot};
use brisk_keys::{Engines, Keystore};
use brisk_tls::HostSettings;

use self::fetching::CertificateFetcher;
use self::key_checks::{KeyChecks, KeyMetrics, Publication};
use self::metrics::CertificateMetrics;
pub use self::obtainer::{ObtainedHost, Obtainer};
use crate::GatewayError;
use crate::configuration::termination::Termination;
use crate::settings::{CertificateSettings, GatewaySettings};
use crate::shared::{Environment, Shared};

/// The source of certificates and of operations with their keys. Outlives reloads.
pub(crate) struct Certificates {
    /// The engines of the process.
    pub(crate) engines: Arc<dyn Engines>,
    /// Responses to authorities that check a name (RFC 8555 section 8).
    pub(crate) challenges: Arc<Challenges>,
    obtainer: Arc<dyn Obtainer>,
    /// Keeps staples, completes chains, notices revocation.
    pub(crate) maintenance: Arc<Maintenance>,
    /// Folders of certificates in use.
    pub(crate) catalogues: Catalogues,
    /// Hosts with names on demand in use.
    pub(crate) on_demand: OnDemandHosts,
    /// Shows certificates whose keys answer.
    pub(crate) checks: Arc<KeyChecks>,
    fetcher: Arc<CertificateFetcher>,
}

impl Certificates {
    pub(crate) fn new(
        settings: &CertificateSettings,
        environment: &Environment,
    ) -> Result<Self, GatewayError> {
        let Environment { engines, challenges, obtainer, catalogues, on_demand, .. } = environment.clone();
        let fetcher = Arc::new(CertificateFetcher::new(Arc::clone(&settings.allow_private)));
        let maintenance = Arc::new(fetching::start(settings, Arc::clone(&fetcher))?);
        let replaces = Arc::clone(&obtainer);
        maintenance.on_revoked(move |certificate| replaces.revoked(certificate));
        let metrics = CertificateMetrics {
            maintenance: Arc::clone(&maintenance),
            catalogues: catalogues.clone(),
            on_demand: on_demand.clone(),
        };
        environment.metrics.register(metrics);
        let checks = KeyChecks::new(&maintenance, &engines, environment.refused_keys.clone());
        environment.metrics.register(KeyMetrics(Arc::clone(&checks)));
        Ok(Self { engines, challenges, obtainer, maintenance, catalogues, on_demand, checks, fetcher })
    }

    /// Makes the [`Catalogues`] of `settings` load certificates on demand, with engines for the keys of names on demand.
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

    /// Shows the certificates of `tls`, whose keys are in `keys`, to new handshakes, as soon as their keys answer; the hosts
    /// before are `before`. Waits for the first staples, as long as `settings` allow, and at most two seconds for the
    /// answers of keys outside this process.
    pub(crate) fn publish(
        &self,
        tls: &Termination,
        keys: &Keystore,
        settings: &CertificateSettings,
        before: Option<&Termination>,
    ) {
        // Fetches that were refused for their destination would otherwise wait for the end of their
        // pauses, up to six hours.
        if self.fetcher.permit(&settings.allow_private) {
            self.maintenance.restart();
        }
        let certificates: Vec<_> = tls.configured().flat_map(|host| &host.certificates).cloned().collect();
        // Before the publication, so that the first handshake with a certificate has its staple.
        self.maintenance.prepare(&certificates, settings.maintenance);
        let publication = |host: &HostSettings| {
            let keys = keys.subset(host.certificates.iter().map(|certificate| certificate.key));
            let before = before.and_then(|before| before.slot_of(&host.names));
            Publication { before, ..of_files(host, host.certificates.clone(), keys) }
        };
        let slots = tls.slots();
        self.checks.publish(tls.configured().map(publication).collect());
        self.checks.keep(&slots);
        self.maintenance.follow(slots);
        tls.acceptor.refresh();
        report::warn_of_long_flights(&self.maintenance, certificates.iter());
    }

    /// Publishes other certificates of the files of `hosts`, after one wait for the first staples of all. Hosts that are
    /// not in `tls` are skipped.
    pub(crate) fn renew(&self, tls: &Termination, hosts: Vec<HostCertificates>) {
        let all: Vec<_> = hosts.iter().flat_map(|host| &host.certificates).cloned().collect();
        // One wait for all hosts: a wait for each would multiply with the number of renewed certificates.
        self.maintenance.prepare_more(&all);
        let (mut publications, mut slots) = (Vec::new(), Vec::new());
        for HostCertificates { names, certificates, keys } in hosts {
            if let Some(host) = tls.configured().find(|host| host.names == names) {
                slots.push(Arc::clone(&host.slot));
                publications.push(of_files(host, certificates, keys));
            }
        }
        self.checks.publish(publications);
        self.shown(tls, &slots);
        report::warn_of_long_flights(&self.maintenance, all.iter());
    }

    /// Makes new handshakes use the certificates that `slots` of `tls` show now.
    pub(crate) fn shown(&self, tls: &Termination, slots: &[Arc<Slot>]) {
        for slot in slots {
            self.maintenance.look(slot);
            tls.acceptor.refresh_slot(slot);
        }
    }

    /// Reports the hosts of `tls` whose certificates are obtained to [`Obtainer::follow`].
    pub(crate) fn show_obtainer(&self, tls: &Termination, shared: &Weak<Shared>) {
        let host = |host: &HostSettings| ObtainedHost {
            names: host.names.clone(),
            publish: Arc::new(Publisher {
                host: host.names.first().cloned().unwrap_or_default(),
                slot: Arc::clone(&host.slot),
                shared: Weak::clone(shared),
            }),
        };
        self.obtainer.follow(tls.obtained().map(host).collect());
    }
}

/// [`Publication`] of certificates from the files of `host`.
fn of_files(host: &HostSettings, certificates: Vec<Arc<Certificate>>, keys: Keystore) -> Publication {
    let name = host.names.first().cloned().unwrap_or_default();
    let slot = Arc::clone(&host.slot);
    Publication { host: name, slot, before: None, certificates, keys, is_announced: true }
}

/// The certificates in the files of one host.
#[derive(Debug)]
pub struct HostCertificates {
    /// The names of the host, as in its [`HostSettings`].
    pub names: Vec<String>,
    /// The certificates.
    pub certificates: Vec<Arc<Certificate>>,
    /// Their private keys, or the engines that have them.
    pub keys: Keystore,
}

/// Publishes obtained certificates into the [`Slot`] of one host.
struct Publisher {
    host: String,
    slot: Arc<Slot>,
    shared: Weak<Shared>,
}

impl Publish for Publisher {
    fn publish(&self, certificates: Vec<Arc<Certificate>>, keys: Keystore) {
        // Weak, because `shared` owns the obtainer, which owns this value.
        let Some(shared) = self.shared.upgrade() else { return };
        shared.certificates.maintenance.prepare_more(&certificates);
        let (host, slot) = (self.host.clone(), Arc::clone(&self.slot));
        let publication = Publication { host, slot, before: None, certificates, keys, is_announced: false };
        shared.certificates.checks.publish(vec![publication]);
        // The configuration in force now: a reload since the start may have replaced the
        // acceptor and kept the slot.
        shared.certificates.shown(&shared.live.load().tls, std::slice::from_ref(&self.slot));
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("slot", &self.slot).finish_non_exhaustive()
    }
}
