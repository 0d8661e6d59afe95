//! TLS termination across reloads: rustls configurations, certificate slots, and the engine.

use std::sync::Arc;

use brisk_certs::Slot;
use brisk_net::rates::Rates;
use brisk_telemetry::metrics::CertificateExpiry;
use brisk_tls::{Acceptor, HostSettings, Resources, TlsSettings};

use crate::GatewayError;
use crate::settings::{GatewaySettings, TcpSettings};
use crate::tcp::routes::shared_hosts;
use crate::unix_time::unix_seconds;

/// The part of a configuration that is about TLS.
pub(crate) struct Termination {
    pub(crate) acceptor: Arc<Acceptor>,
    settings: TlsSettings,
    /// Hosts of the acceptor: those with routes, then those of `[[tcp]]` on the same listeners.
    hosts: Vec<HostSettings>,
    /// Hosts of `[[tcp]]` with listeners of their own, which have acceptors of their own.
    tcp: Vec<HostSettings>,
    rates: Option<Arc<Rates>>,
}

impl Termination {
    /// Reuses the [`Acceptor`] of `before` unless settings other than certificates have changed. Certificates are not
    /// served before they are [published](crate::certificates::Certificates::publish).
    pub(crate) fn new(
        settings: &GatewaySettings,
        resources: &Resources,
        before: Option<&Self>,
    ) -> Result<Self, GatewayError> {
        let shared = shared_hosts(&settings.tcp);
        let hosts = settings.service.hosts.iter().map(|host| &host.tls).chain(shared);
        let hosts = with_slots(hosts, before.map_or(&[], |before| &before.hosts));
        let tcp = settings.tcp.iter().filter(|tcp| !tcp.listen.is_empty());
        let tcp = tcp.filter_map(TcpSettings::terminated).cloned().collect();
        let rates = resources.key_gate.rates.clone();
        // An acceptor holds the configurations of rustls for all hosts: a reload that changes routes only
        // must not build thousands of them again.
        let acceptor = match before.filter(|before| before.accepts(&settings.tls, &hosts, rates.as_ref())) {
            Some(before) => Arc::clone(&before.acceptor),
            None => Arc::new(Acceptor::new(settings.tls.clone(), &hosts, resources)?),
        };
        Ok(Self { acceptor, settings: settings.tls.clone(), hosts, tcp, rates })
    }

    /// The hosts whose certificates are in files.
    pub(crate) fn configured(&self) -> impl Iterator<Item = &HostSettings> {
        self.hosts.iter().filter(|host| !host.obtained).chain(&self.tcp)
    }

    /// The [`Slot`]s of all hosts.
    pub(crate) fn slots(&self) -> Vec<Arc<Slot>> {
        self.hosts.iter().chain(&self.tcp).map(|host| Arc::clone(&host.slot)).collect()
    }

    /// The [`Slot`] of a host that has one of `names`.
    pub(crate) fn slot_of(&self, names: &[String]) -> Option<Arc<Slot>> {
        let has_name = |host: &&HostSettings| host.names.iter().any(|name| names.contains(name));
        self.hosts.iter().find(has_name).map(|host| Arc::clone(&host.slot))
    }

    /// The end of the validity of each certificate from a file that is shown.
    pub(crate) fn expiries(&self) -> Vec<CertificateExpiry> {
        let of_host = |host: &HostSettings| {
            let name = host.names.first().cloned().unwrap_or_default();
            let shown = Vec::clone(&host.slot.load()).into_iter().map(|served| served.certificate);
            shown.map(move |certificate| CertificateExpiry {
                host: name.clone(),
                algorithm: certificate.algorithm.label().to_owned(),
                not_after: i64::try_from(unix_seconds(certificate.not_after)).unwrap_or(i64::MAX),
            })
        };
        self.configured().flat_map(of_host).collect()
    }

    /// The hosts whose certificates are obtained, by names and slot.
    pub(crate) fn obtained(&self) -> impl Iterator<Item = &HostSettings> {
        self.hosts.iter().filter(|host| host.obtained)
    }

    fn accepts(&self, settings: &TlsSettings, hosts: &[HostSettings], rates: Option<&Arc<Rates>>) -> bool {
        self.settings == *settings
            // The same table, not equal limits: the acceptor charges key operations to the table that it holds.
            && self.rates.as_ref().map(Arc::as_ptr) == rates.map(Arc::as_ptr)
            && self.hosts.len() == hosts.len()
            && self.hosts.iter().zip(hosts).all(|(own, other)| own.is_accepted_like(other))
    }
}

/// The `hosts`, each with the [`Slot`] of the host in `before` that has the same names.
fn with_slots<'h>(
    hosts: impl Iterator<Item = &'h HostSettings>,
    before: &[HostSettings],
) -> Vec<HostSettings> {
    let with_slot = |host: &HostSettings| {
        // Keeps the slot of a host with the same names, so that obtained certificates survive a reload.
        let same = before.iter().find(|before| before.names == host.names).unwrap_or(host);
        HostSettings { slot: Arc::clone(&same.slot), ..host.clone() }
    };
    hosts.map(with_slot).collect()
}
