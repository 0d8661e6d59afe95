//! [`HostConfig`], the [`ServerConfig`]s of a host, built once from [`HostSettings`] and used by every handshake.

use std::fmt;
use std::sync::Arc;

use brisk_certs::challenge;
use brisk_wire::HttpVersion;
use brisk_wire::client_hello::ClientHello;
use brisk_wire::registry::ProtocolVersion;
use quinn_proto::crypto::rustls::QuicServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use rustls::{RootCertStore, compress, version};

use crate::TlsError;
use crate::hooks::{ChosenCertificate, Sessions, Tickets};
use crate::key_log::KeyLogFile;
use crate::provider::provider;
use crate::resources::Resources;
use crate::settings::{ClientCertificates, HostSettings, TlsSettings, UnknownRevocation};

/// The [`ServerConfig`]s of a host, of which one suits each client.
#[derive(Clone)]
pub(crate) struct HostConfig {
    every: SuiteOrders,
    /// For clients that offer TLS 1.3, if TLS 1.3 sessions are in the store while TLS 1.2 uses tickets.
    stateful: Option<SuiteOrders>,
    /// For certificates of a catalogue and on demand, without certificate compression: it takes some milliseconds of a
    /// worker, and there are too many certificates to cache the results.
    of_folder: Option<Box<Self>>,
    /// Variants with [other numbers of tickets](HostSettings::other_tickets).
    with_tickets: Vec<(usize, Self)>,
}

impl HostConfig {
    fn new(every: SuiteOrders, stateful: Option<SuiteOrders>) -> Self {
        Self { every, stateful, of_folder: None, with_tickets: Vec::new() }
    }

    /// The variant of [`HostSettings::other_tickets`] with this number of tickets, or this configuration if there is none.
    pub(crate) fn with_tickets(&self, tickets: Option<usize>) -> &Self {
        let found =
            tickets.and_then(|tickets| self.with_tickets.iter().find(|(number, _)| *number == tickets));
        found.map_or(self, |(_, config)| config)
    }

    /// The configuration for this client and a certificate of the host itself.
    pub(crate) fn choose(&self, hello: &ClientHello) -> &Arc<ServerConfig> {
        // rustls keeps TLS 1.3 sessions in the store only without a ticketer, which clients of TLS 1.2
        // still need.
        let orders = self.stateful.as_ref().filter(|_| hello.offers_version(ProtocolVersion::TLS1_3));
        orders.unwrap_or(&self.every).choose(hello)
    }

    /// The configuration for this client and a certificate of the catalogue or on demand.
    pub(crate) fn choose_for_folder(&self, hello: &ClientHello) -> &Arc<ServerConfig> {
        self.of_folder.as_deref().unwrap_or(self).choose(hello)
    }
}

/// A [`ServerConfig`], once for each way of choosing a suite.
#[derive(Clone)]
struct SuiteOrders {
    server: Arc<ServerConfig>,
    client: Arc<ServerConfig>,
}

impl SuiteOrders {
    fn new(mut config: ServerConfig) -> Self {
        // rustls reads the order from the configuration, so that each order needs one of its own.
        config.ignore_client_order = false;
        let client = Arc::new(config.clone());
        config.ignore_client_order = true;
        Self { server: Arc::new(config), client }
    }

    /// A client without AES in hardware lists ChaCha20 first; then the client's order decides.
    fn choose(&self, hello: &ClientHello) -> &Arc<ServerConfig> {
        if prefers_chacha20(hello) { &self.client } else { &self.server }
    }
}

impl fmt::Debug for HostConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostConfig")
    }
}

/// Whether the first known suite uses ChaCha20; browsers put an unknown one before it (RFC 8701).
fn prefers_chacha20(hello: &ClientHello) -> bool {
    hello.suites.iter().find_map(|suite| suite.name()).is_some_and(|name| name.contains("CHACHA20"))
}

/// The transport of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Quic,
}

/// Initial keys and Retry tags of QUIC, which depend on no host.
pub(crate) fn quic_initial() -> Result<QuicServerConfig, TlsError> {
    let config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        // The builder requires a resolver. It is never called, because this configuration performs no
        // handshakes.
        .with_cert_resolver(Arc::new(ChosenCertificate));
    let missing = |_| rustls::Error::General("TLS_AES_128_GCM_SHA256 is missing".into());
    Ok(QuicServerConfig::try_from(config).map_err(missing)?)
}

/// Parts shared by the configurations of all hosts.
pub(crate) struct ConfigBuilder<'a> {
    settings: &'a TlsSettings,
    provider: Arc<CryptoProvider>,
    resources: &'a Resources,
    compression_cache: Arc<compress::CompressionCache>,
    key_log: Option<Arc<KeyLogFile>>,
}

impl<'a> ConfigBuilder<'a> {
    pub(crate) fn new(settings: &'a TlsSettings, resources: &'a Resources) -> Result<Self, TlsError> {
        let key_log = if settings.key_log { Some(Arc::new(KeyLogFile::from_environment()?)) } else { None };
        Ok(Self {
            settings,
            provider: Arc::new(provider()),
            resources,
            compression_cache: Arc::new(compress::CompressionCache::new(256)),
            key_log,
        })
    }

    /// The [`HostConfig`] of a host for its handshakes over `transport`.
    pub(crate) fn host(&self, host: &HostSettings, transport: Transport) -> Result<HostConfig, TlsError> {
        let name = host.names.first().map_or("(default)", String::as_str);
        let may_lack =
            host.obtained || host.without_tls || host.catalogue.is_some() || host.on_demand.is_some();
        if host.certificates.is_empty() && !may_lack {
            return Err(TlsError::NoCertificate { host: name.to_owned() });
        }
        let versions: &[&rustls::SupportedProtocolVersion] =
            if transport == Transport::Quic || self.settings.min_version == ProtocolVersion::TLS1_3 {
                &[&version::TLS13]
            } else {
                &[&version::TLS13, &version::TLS12]
            };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(versions)?;
        let builder = match host.demands.clients() {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(self.client_verifier(name, clients)?),
        };
        let mut config = builder.with_cert_resolver(Arc::new(ChosenCertificate));
        self.apply(&mut config, transport);
        if let Some(protocols) = &host.protocols {
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        }
        let with_tickets = host.other_tickets.iter().map(|tickets| {
            let mut config = config.clone();
            config.send_tls13_tickets = *tickets;
            (*tickets, self.with_names(config, host, transport))
        });
        let with_tickets = with_tickets.collect();
        Ok(HostConfig { with_tickets, ..self.with_names(config, host, transport) })
    }

    /// Adds the configuration for certificates of [`HostSettings::catalogue`] or [`HostSettings::on_demand`], if the host has
    /// them.
    fn with_names(&self, config: ServerConfig, host: &HostSettings, transport: Transport) -> HostConfig {
        let has_names = host.catalogue.is_some() || host.on_demand.is_some();
        let of_folder = has_names.then(|| {
            let mut config = config.clone();
            config.cert_compressors.clear();
            Box::new(self.with_sessions(config, host, transport))
        });
        HostConfig { of_folder, ..self.with_sessions(config, host, transport) }
    }

    /// The configuration for authorities that validate by `tls-alpn-01`: that protocol only, and no sessions (RFC 8737
    /// section 4).
    pub(crate) fn challenge(&self) -> Result<HostConfig, TlsError> {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ChosenCertificate));
        config.alpn_protocols = vec![challenge::ALPN.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(HostConfig::new(SuiteOrders::new(config), None))
    }

    fn apply(&self, config: &mut ServerConfig, transport: Transport) {
        let protocols: &[HttpVersion] = match transport {
            Transport::Tcp => &self.settings.protocols,
            Transport::Quic => &[HttpVersion::Http3],
        };
        config.alpn_protocols = protocols.iter().map(|version| version.alpn().as_bytes().to_vec()).collect();
        config.send_tls13_tickets = self.settings.tickets_per_handshake;
        if self.settings.certificate_compression {
            config.cert_compression_cache = Arc::clone(&self.compression_cache);
        } else {
            config.cert_compressors.clear();
        }
        // Compressed client certificates are not supported, because decompression would be work on behalf of unknown
        // clients.
        config.cert_decompressors.clear();
        if let Some(key_log) = &self.key_log {
            config.key_log = Arc::clone(key_log) as _;
        }
    }

    /// Configures the storage of sessions. [`rustls`] stores TLS 1.3 sessions only if it has no ticketer, and accepts early
    /// data only then.
    fn with_sessions(
        &self,
        mut config: ServerConfig,
        host: &HostSettings,
        transport: Transport,
    ) -> HostConfig {
        let demands = &host.demands;
        let lifetime = self.settings.session_lifetime;
        let Resources { sessions: store, keyring, session_ids: ids, .. } = self.resources.clone();
        config.session_storage = Arc::new(Sessions { store, ids, lifetime, demands: demands.clone() });
        let early_data = if demands.clients().is_some() { 0 } else { host.early_data };
        let mut stateful = config.clone();
        stateful.max_early_data_size = match transport {
            // RFC 9001 section 4.6.1: the sentinel, because QUIC bounds early data by flow control.
            Transport::Quic if early_data > 0 => u32::MAX,
            Transport::Tcp | Transport::Quic => early_data,
        };
        // Otherwise a response to early data would wait for the client's Finished.
        stateful.send_half_rtt_data = early_data > 0;
        if !self.settings.tickets {
            return HostConfig::new(SuiteOrders::new(stateful), None);
        }
        config.ticketer = Arc::new(Tickets { keyring, lifetime, demands: demands.clone() });
        let stateful = (self.settings.stateful || early_data > 0).then(|| SuiteOrders::new(stateful));
        HostConfig::new(SuiteOrders::new(config), stateful)
    }

    fn client_verifier(
        &self,
        host: &str,
        clients: &ClientCertificates,
    ) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
        let wrong = |reason: String| TlsError::ClientRoots { host: host.to_owned(), reason };
        let mut roots = RootCertStore::empty();
        for root in &clients.roots {
            roots.add(root.clone()).map_err(|error| wrong(error.to_string()))?;
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider));
        let builder = if clients.required { builder } else { builder.allow_unauthenticated() };
        let builder = match &clients.revocation {
            None => builder,
            Some(revocation) => {
                let builder = builder.with_crls(revocation.lists.iter().map(|list| list.der.clone()));
                match revocation.unknown {
                    // By default, rustls uses expired lists without an error.
                    UnknownRevocation::Refuse => builder.enforce_revocation_expiration(),
                    UnknownRevocation::Accept => builder.allow_unknown_revocation_status(),
                }
            }
        };
        builder.build().map_err(|error| wrong(error.to_string()))
    }
}
