//! Selection of the host, its configuration and its certificate for a client. Nothing is sent here: the caller answers on
//! TCP or QUIC.

use std::net::IpAddr;
use std::sync::Arc;

use brisk_certs::{Catalogue, CatalogueLookup, HostMap, Names, OnDemand, UnknownName, challenge};
use brisk_wire::client_hello::ClientHello;
use brisk_wire::registry::ProtocolVersion;
use rustls::AlertDescription;
use rustls::ServerConfig;
use rustls::sign::CertifiedKey;

use super::facts::HostFacts;
use crate::TlsError;
use crate::demands::Demands;
use crate::groups;
use crate::host_config::HostConfig;
use crate::notes::HandshakeInput;
use crate::prepared_slot::PreparedSlot;
use crate::settings::HostSettings;

/// The hosts of an [`Acceptor`](crate::Acceptor), by name.
pub(crate) struct Hosts {
    pub(crate) map: HostMap<Host>,
}

/// The decision about a [`ClientHello`]. The variants are in the order of the checks.
pub(crate) enum Selection<'a> {
    /// No host can accept the `ClientHello`: the alert to be sent, and the reason.
    Unanswerable(AlertDescription, &'static str),
    /// The client is an authority that validates by `tls-alpn-01` (RFC 8737).
    Validation,
    /// No host has the name. RFC 6066 section 3: the alert `unrecognized_name` is fatal, because the reaction of clients
    /// to a warning is unpredictable.
    UnknownName,
    /// The host that serves the name.
    Host(&'a Host),
}

impl Hosts {
    /// Selects the [`Host`] for `hello`, or the reason for a refusal. With versions below `min_version` only, the alert is
    /// `protocol_version`.
    pub(crate) fn select(&self, hello: &ClientHello, min_version: ProtocolVersion) -> Selection<'_> {
        if let Some((alert, reason)) = unanswerable(hello, min_version) {
            return Selection::Unanswerable(alert, reason);
        }
        // Before the hosts: RFC 8737 section 3 requires a certificate made for the validation, whichever
        // host has the name.
        if is_validation(hello) {
            return Selection::Validation;
        }
        match self.map.get(hello.server_name.as_deref()).host() {
            Some(host) => Selection::Host(host),
            None => Selection::UnknownName,
        }
    }
}

/// The alert for a [`ClientHello`] that no host can accept, and the reason. rustls would send `handshake_failure` for most of
/// them.
fn unanswerable(
    hello: &ClientHello,
    min_version: ProtocolVersion,
) -> Option<(AlertDescription, &'static str)> {
    // RFC 8446 section 6.2: "protocol_version" if the version of the peer is recognised but not supported.
    if hello.versions.iter().all(|version| *version < min_version) {
        let reason = "the client offers only versions that are too old";
        return Some((AlertDescription::ProtocolVersion, reason));
    }
    // RFC 8446 section 9.2: the requirements on a ClientHello of TLS 1.3, and the alert "missing_extension".
    let (groups, shares) = (!hello.groups.is_empty(), hello.key_shares.is_some());
    let misses = groups != shares || (!hello.has_psk && (!groups || hello.signature_schemes.is_empty()));
    (hello.offers_version(ProtocolVersion::TLS1_3) && misses).then_some((
        AlertDescription::MissingExtension,
        "TLS 1.3 without supported_groups, key_share or signature_algorithms",
    ))
}

/// Whether the client is a validating authority: it offers this protocol only (RFC 8737 section 3).
fn is_validation(hello: &ClientHello) -> bool {
    matches!(&hello.alpn[..], [only] if only == challenge::ALPN)
}

/// A host, with everything that its handshakes need.
#[derive(Debug)]
pub(crate) struct Host {
    /// Index in the list of hosts.
    pub(crate) place: usize,
    pub(crate) demands: Demands,
    pub(crate) hashes_client_certificates: bool,
    pub(crate) config: HostConfig,
    /// The configurations for QUIC; `None` unless [`HostSettings::quic`] and `TlsSettings::quic` are set.
    pub(crate) quic: Option<HostConfig>,
    pub(crate) prepared: PreparedSlot,
    pub(crate) catalogue: Option<Arc<Catalogue>>,
    pub(crate) on_demand: Option<OnDemandNames>,
}

/// The host's part of a handshake: input of [`rustls`] and of its callbacks.
pub(crate) struct Preparation {
    /// The [`ServerConfig`] for this client.
    pub(crate) config: Arc<ServerConfig>,
    /// The certificate; `None` if none suits the client.
    pub(crate) certificate: Option<Arc<CertifiedKey>>,
    /// Input of the callbacks in `hooks`.
    pub(crate) input: HandshakeInput,
    pub(crate) demands: Demands,
    pub(crate) facts: HostFacts,
}

impl Host {
    /// Prepares the handshake of `client` with one of the host's configurations. Waits for the certificate if it must be
    /// read or ordered, until the host's timeout.
    pub(crate) async fn prepare(
        &self,
        config: &HostConfig,
        hello: &ClientHello,
        client: Option<IpAddr>,
    ) -> Preparation {
        let (certificate, config) = self.certificate(hello, client, config).await;
        let takes_early_data = config.max_early_data_size > 0;
        let input = HandshakeInput {
            group: groups::choose(hello),
            early_data: hello.early_data && takes_early_data,
            // Each configuration offers TLS 1.3, so a client that offers it too uses no older version.
            tls12: !hello.offers_version(ProtocolVersion::TLS1_3),
            client,
        };
        let facts = HostFacts {
            takes_early_data,
            keeps_client_chain: self.demands.keeps_certificates(),
            hashes_client_certificate: self.hashes_client_certificates,
        };
        Preparation { config: Arc::clone(config), certificate, input, demands: self.demands.clone(), facts }
    }

    /// The certificate for this client, and the matching configuration. Waits for the catalogue to read a file, or for
    /// a certificate on demand, until the host's timeout.
    async fn certificate<'h>(
        &'h self,
        hello: &ClientHello,
        client: Option<IpAddr>,
        config: &'h HostConfig,
    ) -> (Option<Arc<CertifiedKey>>, &'h Arc<ServerConfig>) {
        if let (Some(catalogue), Some(name)) = (&self.catalogue, hello.server_name.as_deref()) {
            // No fallback to the host's own certificates, because they are for other names.
            let served = match catalogue.find(name) {
                CatalogueLookup::Ready(served) => Some(Some(served)),
                CatalogueLookup::Loading(loading) => Some(loading.await.ok()),
                CatalogueLookup::Failed => Some(None),
                CatalogueLookup::Missing => None,
            };
            if let Some(served) = served {
                let certificate = served.and_then(|served| self.prepared.of(&served, hello));
                return (certificate, config.choose_for_folder(hello));
            }
        }
        if let (Some(on_demand), Some(name)) = (&self.on_demand, hello.server_name.as_deref())
            && on_demand.is_for(name)
        {
            let served = on_demand.names.find(name, client).await;
            let certificate = served.and_then(|served| self.prepared.of(&served, hello));
            return (certificate, config.choose_for_folder(hello));
        }
        (self.prepared.choose(hello), config.choose(hello))
    }
}

/// Names of an [`OnDemand`], except those that the host has otherwise.
#[derive(Debug)]
pub(crate) struct OnDemandNames {
    names: Arc<OnDemand>,
    own: HostMap<()>,
}

impl OnDemandNames {
    pub(crate) fn new(host: &HostSettings) -> Result<Option<Self>, TlsError> {
        let Some(names) = host.on_demand.clone() else { return Ok(None) };
        let mut own = HostMap::new(UnknownName::Refuse);
        own.add(host.names.iter().map(String::as_str), ())?;
        Ok(Some(Self { names, own }))
    }

    /// Configured certificates take precedence.
    fn is_for(&self, name: &str) -> bool {
        self.own.get(Some(name)).host().is_none() && self.names.has(name)
    }
}
