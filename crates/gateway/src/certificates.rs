//! The certificates of all hosts: engines for their keys, their staples, their publication from files and from authorities.

use std::fmt;
use std::sync::{Arc, Weak};

use brisk_certs::{Care, CareSettings, Certificate, Challenges, Publish, Slot};
use brisk_keys::{Engines, Keystore};
use brisk_telemetry::Metrics;
use brisk_tls::HostSettings;

use crate::GatewayError;
use crate::errands::{self, CertificateMetrics};
use crate::obtained::{ObtainedHost, Obtainer};
use crate::settings::{CertificateSettings, GatewaySettings};
use crate::shared::Shared;
use crate::termination::Termination;

/// The source of certificates and of operations with their keys. Outlives reloads.
pub(crate) struct Certificates {
    /// The engines of the process.
    pub(crate) engines: Arc<dyn Engines>,
    /// Responses to authorities that check a name.
    pub(crate) challenges: Arc<Challenges>,
    obtainer: Arc<dyn Obtainer>,
    /// Keeps staples, completes chains, notices revocation.
    pub(crate) care: Arc<Care>,
}

impl Certificates {
    pub(crate) fn new(
        settings: &CertificateSettings,
        engines: Arc<dyn Engines>,
        challenges: Arc<Challenges>,
        obtainer: Arc<dyn Obtainer>,
        metrics: &Metrics,
    ) -> Result<Self, GatewayError> {
        let care = Arc::new(errands::start(settings)?);
        let replaces = Arc::clone(&obtainer);
        care.on_revoked(move |certificate| replaces.revoked(certificate));
        metrics.register(CertificateMetrics(Arc::clone(&care)));
        Ok(Self { engines, challenges, obtainer, care })
    }

    /// Has the catalogues of `settings` load certificates on demand, and names on demand make engines of their keys. A catalogue
    /// in force has begun already and stays as it is; a new one ends with `settings`.
    pub(crate) fn start_catalogues(&self, settings: &GatewaySettings) -> Result<(), GatewayError> {
        for catalogue in settings.service.hosts.iter().filter_map(|host| host.tls.catalogue.as_ref()) {
            let engines = Arc::clone(&self.engines);
            catalogue.start(Arc::new(move |keystore| engines.for_keys(keystore)), Some(&self.care))?;
        }
        for on_demand in settings.service.hosts.iter().filter_map(|host| host.tls.on_demand.as_ref()) {
            let engines = Arc::clone(&self.engines);
            on_demand.start(Arc::new(move |keystore| engines.for_keys(keystore)));
        }
        Ok(())
    }

    /// Shows the certificates of `tls` to new handshakes. Waits for their first staples, as long as `settings` allow.
    pub(crate) fn publish(&self, tls: &Termination, settings: CareSettings) {
        let certificates: Vec<_> = tls.configured().cloned().collect();
        self.care.prepare(&certificates, settings);
        tls.publish(&self.care);
        errands::warn_of_long_flights(&self.care, certificates.iter());
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

/// Publishes into the slot of one host.
struct Publisher {
    slot: Arc<Slot>,
    shared: Weak<Shared>,
}

impl Publish for Publisher {
    fn publish(&self, certificates: Vec<Arc<Certificate>>, keys: Keystore) {
        let Some(shared) = self.shared.upgrade() else { return };
        let Certificates { engines, care, .. } = &shared.certificates;
        let engine = engines.for_keys(Arc::new(keys));
        care.prepare_more(&certificates);
        let served = certificates.iter().map(|certificate| care.served(certificate, &engine));
        self.slot.publish(served.collect());
        care.look(&self.slot);
        shared.live.load().tls.acceptor.refresh_slot(&self.slot);
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("slot", &self.slot).finish_non_exhaustive()
    }
}
