//! Addresses of servers from DNS: A and AAAA records of a name, or SRV records of a service, with their lifetime. For audits,
//! also the authorities that may issue certificates for a name (CAA records).
//!
//! Nothing is cached: the caller asks again at the end of the lifetime. The hosts file (`/etc/hosts`) precedes DNS.

use std::cmp::max;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::future::{join, try_join_all};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use thiserror::Error;

/// Timeout of one question to one DNS server. A question is sent twice to each server.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The DNS servers to ask, and the limits of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverSettings {
    /// DNS servers. Empty: those of `/etc/resolv.conf`, with its search domains.
    pub servers: Vec<SocketAddr>,
    /// Whether AAAA records are used, besides A records.
    pub uses_ipv6: bool,
    /// Maximum number of addresses of a name or a service, and of CAA records of a name. Further ones are ignored.
    pub max_addresses: usize,
}

/// Asks DNS servers. Questions need the I/O and timers of a tokio runtime.
pub struct Resolver {
    inner: TokioResolver,
    uses_ipv6: bool,
    max_addresses: usize,
}

/// A question about servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question<'a> {
    /// The addresses of a host, with this port.
    Host(&'a str, u16),
    /// The servers of a service, by the name of its SRV records, such as `_http._tcp.app.internal` (RFC 2782).
    Service(&'a str),
}

/// The addresses of a name or of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The addresses in ascending order, each once. At least one.
    pub endpoints: Vec<Endpoint>,
    /// Time for which the answer is valid: the smallest TTL of its records.
    pub lifetime: Duration,
    /// Number of addresses beyond the maximum.
    pub ignored: usize,
}

/// An address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address and port.
    pub address: SocketAddr,
    /// Share of the requests, of an SRV record; at least 1. `None` for a name without SRV records.
    pub weight: Option<u16>,
    /// Whether an SRV record with a smaller priority exists, which must be preferred (RFC 2782).
    pub is_backup: bool,
}

/// A CAA record (RFC 8659 section 4): a property of a name for authorities that issue certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Whether authorities that do not know the tag must not issue.
    pub is_critical: bool,
    /// The tag, in lower case: `issue`, `issuewild`, `iodef` or another.
    pub tag: String,
    /// The value. Bytes that are not UTF-8 are replaced.
    pub value: String,
}

/// The CAA records that apply to a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The name that has the records: the name that was asked for, or the closest of its parents with records.
    pub name: String,
    /// The records, at least one.
    pub all: Vec<Property>,
}

/// Reason for a missing answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DnsError {
    /// The DNS servers of the system are unknown.
    #[error("cannot read the DNS servers of /etc/resolv.conf: {0}")]
    System(#[source] NetError),
    /// The name exists without addresses, or not at all.
    #[error("{name} has no {records} records")]
    NoRecords {
        /// The name.
        name: String,
        /// The types of records that were looked for.
        records: &'static str,
    },
    /// No DNS server has answered the question.
    #[error("cannot resolve {name}: {source}")]
    Failed {
        /// The name.
        name: String,
        /// The last error.
        source: NetError,
    },
}

/// Records of one type, and the smallest of their TTLs in seconds. Empty if there are none.
struct Records {
    records: Vec<Record>,
    ttl: u32,
}

impl Resolver {
    /// Reads `/etc/resolv.conf`, unless the settings have servers, and `/etc/hosts`.
    ///
    /// # Errors
    ///
    /// [`DnsError::System`] if the file is needed and unreadable or malformed.
    pub fn new(settings: &ResolverSettings) -> Result<Self, DnsError> {
        let mut builder = if settings.servers.is_empty() {
            TokioResolver::builder_tokio().map_err(DnsError::System)?
        } else {
            let servers = settings.servers.iter().copied().map(server).collect();
            let config = ResolverConfig::from_parts(None, Vec::new(), servers);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let options = builder.options_mut();
        options.cache_size = 0;
        options.timeout = TIMEOUT;
        options.edns0 = true;
        options.try_tcp_on_error = true;
        let inner = builder.build().map_err(DnsError::System)?;
        Ok(Self { inner, uses_ipv6: settings.uses_ipv6, max_addresses: settings.max_addresses })
    }

    /// Asks for addresses.
    ///
    /// # Errors
    ///
    /// [`DnsError`] if there are none, or if a question about them failed.
    pub async fn ask(&self, question: Question<'_>) -> Result<Answer, DnsError> {
        match question {
            Question::Host(name, port) => self.host(name, port).await,
            Question::Service(name) => self.service(name).await,
        }
    }

    /// The CAA records that apply to a name: its own, otherwise those of the closest parent that has any. `None` if there are
    /// none up to the top-level domain.
    ///
    /// # Errors
    ///
    /// [`DnsError::Failed`] if a question failed. An authority must not issue then (RFC 8659 section 3).
    pub async fn properties(&self, name: &str) -> Result<Option<Properties>, DnsError> {
        let mut name = name.trim_end_matches('.');
        loop {
            // With the dot, search domains are not appended.
            let found = self.records(&format!("{name}."), RecordType::CAA).await?;
            let properties = found.records.iter().filter_map(|record| match &record.data {
                RData::CAA(caa) => Some(Property {
                    is_critical: caa.issuer_critical,
                    tag: caa.tag.to_ascii_lowercase(),
                    value: String::from_utf8_lossy(&caa.value).into_owned(),
                }),
                _ => None,
            });
            let all: Vec<_> = properties.take(self.max_addresses).collect();
            if !all.is_empty() {
                return Ok(Some(Properties { name: name.to_owned(), all }));
            }
            let Some((_, parent)) = name.split_once('.') else { return Ok(None) };
            name = parent;
        }
    }

    async fn host(&self, name: &str, port: u16) -> Result<Answer, DnsError> {
        let (ips, ttl) = self.ips(name).await?;
        let endpoint = |ip| Endpoint { address: SocketAddr::new(ip, port), weight: None, is_backup: false };
        self.answer(ips.into_iter().map(endpoint).collect(), ttl)
            .ok_or_else(|| DnsError::NoRecords { name: name.to_owned(), records: "A or AAAA" })
    }

    async fn service(&self, name: &str) -> Result<Answer, DnsError> {
        let found = self.records(name, RecordType::SRV).await?;
        let services = found.records.iter().filter_map(|record| match &record.data {
            // RFC 2782: the root as the target means that the service is not offered.
            RData::SRV(service) if !service.target.is_root() => Some(service),
            _ => None,
        });
        let servers = services.take(self.max_addresses).map(async |service| {
            let (ips, ttl) = self.ips(&service.target.to_ascii()).await?;
            Ok::<_, DnsError>((service, ips, ttl))
        });
        let servers = try_join_all(servers).await?;
        let ttl = servers.iter().filter(|(_, ips, _)| !ips.is_empty()).map(|(_, _, ttl)| *ttl).min();
        let with_addresses = servers.iter().filter(|(_, ips, _)| !ips.is_empty());
        let first = with_addresses.map(|(service, ..)| service.priority).min();
        let endpoints = servers.iter().flat_map(|(service, ips, _)| {
            ips.iter().map(|ip| Endpoint {
                address: SocketAddr::new(*ip, service.port),
                weight: Some(max(service.weight, 1)),
                is_backup: Some(service.priority) > first,
            })
        });
        self.answer(endpoints.collect(), found.ttl.min(ttl.unwrap_or(u32::MAX)))
            .ok_or_else(|| DnsError::NoRecords { name: name.to_owned(), records: "usable SRV" })
    }

    fn answer(&self, mut endpoints: Vec<Endpoint>, ttl: u32) -> Option<Answer> {
        // In an order of their own, since DNS servers rotate records. Servers of the first priority precede backups.
        endpoints.sort_by_key(|endpoint| (endpoint.is_backup, endpoint.address));
        endpoints.dedup_by_key(|endpoint| endpoint.address);
        let ignored = endpoints.len().saturating_sub(self.max_addresses);
        endpoints.truncate(self.max_addresses);
        let lifetime = Duration::from_secs(ttl.into());
        (!endpoints.is_empty()).then_some(Answer { endpoints, lifetime, ignored })
    }

    /// The addresses of a host, and their TTL. Empty if it has none.
    async fn ips(&self, name: &str) -> Result<(Vec<IpAddr>, u32), DnsError> {
        let v6 = async {
            if self.uses_ipv6 { self.records(name, RecordType::AAAA).await } else { Ok(Records::none()) }
        };
        // One failed question fails both, so that the addresses of one family are not mistaken for all.
        let (v4, v6) = join(self.records(name, RecordType::A), v6).await;
        let (v4, v6) = (v4?, v6?);
        let ttl = v4.ttl.min(v6.ttl);
        let records = v4.records.into_iter().chain(v6.records);
        Ok((records.filter_map(|record| record.data.ip_addr()).collect(), ttl))
    }

    async fn records(&self, name: &str, kind: RecordType) -> Result<Records, DnsError> {
        match self.inner.lookup(name, kind).await {
            Ok(found) => {
                // Aliases (CNAME) on the way have TTLs too.
                let ttl = found.answers().iter().map(|record| record.ttl).min().unwrap_or(0);
                let records = found.answers().iter().filter(|record| record.record_type() == kind);
                Ok(Records { records: records.cloned().collect(), ttl })
            }
            Err(error) if error.is_no_records_found() => Ok(Records::none()),
            Err(source) => Err(DnsError::Failed { name: name.to_owned(), source }),
        }
    }
}

impl Records {
    fn none() -> Self {
        Self { records: Vec::new(), ttl: u32::MAX }
    }
}

fn server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Resolver").finish_non_exhaustive()
    }
}
