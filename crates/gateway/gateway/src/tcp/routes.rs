//! [`Routes`] of the connections of one listener, and [`TcpServices`], those of all listeners.

use std::collections::BTreeMap;
use std::sync::Arc;

use brisk_certs::{HostMap, UnknownName};
use brisk_telemetry::Metrics;
use brisk_tls::{Acceptor, HostSettings, Resources, TlsError};
use brisk_upstream_group::GroupState;
use brisk_wire::client_hello::ClientHello;

use super::listeners::{self, TcpListener};
use super::metrics::{ServiceMetrics, TcpMetrics};
use super::settings::{TcpSettings, TcpTls};
use crate::GatewayError;
use crate::settings::GatewaySettings;

/// One `[[tcp]]` of the configuration in force.
#[derive(Debug)]
pub(crate) struct TcpService {
    pub(crate) settings: TcpSettings,
    pub(crate) group: Arc<GroupState>,
    pub(crate) metrics: Arc<ServiceMetrics>,
}

/// All `[[tcp]]` of one configuration.
pub(crate) struct TcpServices {
    /// The listeners since the start.
    fixed: Vec<TcpListener>,
    /// Routes of each of these.
    own: Vec<Arc<Routes>>,
    /// Routes of the HTTPS listeners.
    pub(crate) https: Routes,
}

/// Decisions about the connections of one listener.
#[derive(Default)]
pub(crate) struct Routes {
    /// The service of a listener without TLS.
    pub(crate) plain: Option<Arc<TcpService>>,
    /// Services that pass TLS on, by server name, in the order of the file.
    passed: Option<HostMap<Vec<Arc<TcpService>>>>,
    /// Terminates TLS on a listener of its own.
    pub(crate) acceptor: Option<Arc<Acceptor>>,
    /// Services for which an acceptor terminates TLS.
    terminated: Vec<Arc<TcpService>>,
    /// Index of the first of them in the list of the acceptor.
    first: usize,
}

impl TcpServices {
    pub(crate) fn new(
        settings: &GatewaySettings,
        groups: &[Arc<GroupState>],
        resources: &Resources,
        metrics: &Metrics,
        before: Option<&Self>,
    ) -> Result<Self, GatewayError> {
        let listeners = listeners::of(&settings.tcp);
        // Numbers of listeners are those of the sockets, which are bound at the start: a
        // reload must not renumber them.
        let fixed = before.map_or_else(|| listeners.clone(), |before| before.fixed.clone());
        let metrics = metrics.collector::<TcpMetrics>();
        let service = |tcp: &TcpSettings| {
            let group = groups.iter().find(|group| group.settings().name == tcp.upstream)?;
            Some(Arc::new(TcpService {
                settings: tcp.clone(),
                group: Arc::clone(group),
                metrics: metrics.get(&tcp.name),
            }))
        };
        // Every upstream of settings exists.
        let all: Vec<_> = settings.tcp.iter().filter_map(service).collect();
        let of_listener = |services: Vec<usize>| {
            let services: Vec<_> = services.iter().filter_map(|index| all.get(*index).cloned()).collect();
            let mut routes = Routes::new(&services, 0)?;
            routes.acceptor = acceptor(settings, &routes.terminated, resources)?;
            Ok::<_, GatewayError>(Arc::new(routes))
        };
        let own = listeners::services(&fixed, &listeners).into_iter().map(of_listener);
        let own = own.collect::<Result<_, _>>()?;
        let shared: Vec<_> =
            all.iter().filter(|service| service.settings.listen.is_empty()).cloned().collect();
        let https = Routes::new(&shared, settings.service.hosts.len())?;
        Ok(Self { fixed, own, https })
    }

    /// Routes of a listener by its number.
    pub(crate) fn of_listener(&self, number: usize) -> Arc<Routes> {
        Arc::clone(&self.own[number])
    }
}

impl Routes {
    /// Routes to `services`, those of one listener; `first` is the index in the acceptor of the first that terminates TLS.
    fn new(services: &[Arc<TcpService>], first: usize) -> Result<Self, GatewayError> {
        let mut routes = Self { first, ..Self::default() };
        let mut by_name: BTreeMap<&str, Vec<Arc<TcpService>>> = BTreeMap::new();
        let mut default = Vec::new();
        for service in services {
            match service.settings.tls {
                TcpTls::None => routes.plain = Some(Arc::clone(service)),
                TcpTls::Terminate(_) => routes.terminated.push(Arc::clone(service)),
                TcpTls::Passthrough => {
                    for name in &service.settings.names {
                        by_name.entry(name).or_default().push(Arc::clone(service));
                    }
                    default.extend(service.settings.is_default.then(|| Arc::clone(service)));
                }
            }
        }
        if by_name.is_empty() && default.is_empty() {
            return Ok(routes);
        }
        let mut passed = HostMap::new(UnknownName::Default);
        for (name, services) in by_name {
            passed.add([name], services).map_err(TlsError::from)?;
        }
        if !default.is_empty() {
            let number = passed.add([], default).map_err(TlsError::from)?;
            passed.set_default(number);
        }
        routes.passed = Some(passed);
        Ok(routes)
    }

    /// Whether the `ClientHello` of a connection is needed before TLS is terminated.
    pub(crate) fn reads_hello(&self) -> bool {
        self.passed.is_some()
    }

    /// The service to which a connection with this `ClientHello` is passed on. A name of a host of `acceptor` has precedence if it is
    /// more exact.
    pub(crate) fn passes(
        &self,
        hello: &ClientHello,
        acceptor: Option<&Acceptor>,
    ) -> Option<&Arc<TcpService>> {
        let name = hello.server_name.as_deref();
        let found = self.passed.as_ref()?.get(name);
        if acceptor.is_some_and(|acceptor| acceptor.precedence_of(name) > found.precedence()) {
            return None;
        }
        let offers = |service: &&Arc<TcpService>| {
            let alpn = &service.settings.alpn;
            alpn.is_empty() || hello.alpn.iter().any(|offered| alpn.iter().any(|own| **own == **offered))
        };
        found.host()?.iter().find(offers)
    }

    /// The service whose TLS was terminated as the host with this index.
    pub(crate) fn terminated(&self, place: usize) -> Option<&Arc<TcpService>> {
        self.terminated.get(place.checked_sub(self.first)?)
    }
}

/// The acceptor of a listener with these services.
fn acceptor(
    settings: &GatewaySettings,
    services: &[Arc<TcpService>],
    resources: &Resources,
) -> Result<Option<Arc<Acceptor>>, GatewayError> {
    if services.is_empty() {
        return Ok(None);
    }
    // Their slots are those to which `Certificates` publishes.
    let hosts = services.iter().filter_map(|service| service.settings.terminated());
    let has_default = services.iter().any(|service| service.settings.is_default);
    let unknown_host = if has_default { UnknownName::Default } else { UnknownName::Refuse };
    let tls = brisk_tls::TlsSettings { unknown_host, quic: false, ..settings.tls.clone() };
    Ok(Some(Arc::new(Acceptor::new(tls, hosts, resources)?)))
}

/// The hosts of services on the HTTPS listeners, which its acceptor serves after all others.
pub(crate) fn shared_hosts(all: &[TcpSettings]) -> impl Iterator<Item = &HostSettings> {
    all.iter().filter(|tcp| tcp.listen.is_empty()).filter_map(TcpSettings::terminated)
}
