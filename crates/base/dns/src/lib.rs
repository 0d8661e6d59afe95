//! Addresses of servers from DNS: `A` and `AAAA` records of a name, or `SRV` records of a service, with their lifetime. For
//! audits, also the authorities that may issue certificates for a name (`CAA` records).
//!
//! Each type of records of each name is independent: a failure of one leaves the others. Responses are not cached: the caller
//! asks again at the end of the lifetime. The hosts file (`/etc/hosts`) precedes DNS.

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod known;
mod name_servers;

use std::cmp::{Reverse, max};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::{Either, join_all, select};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{RData, RecordType};
use thiserror::Error;
use tokio::time::timeout;

pub use self::known::Known;
use self::name_servers::{NameServers, Records};

/// Time for the second family of addresses after the first has arrived. Later addresses arrive with the next question. RFC 8305
/// section 3 waits 50 ms; servers of an upstream group are not as urgent.
const SECOND_FAMILY: Duration = Duration::from_secs(1);

/// Maximum number of aliases (`CNAME`) between a service and its `SRV` records.
const ALIASES: usize = 8;

/// The DNS servers of a [`Resolver`], and the limits of an [`Answer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverSettings {
    /// DNS servers. Empty: those of `/etc/resolv.conf`, with its search domains.
    pub servers: Vec<SocketAddr>,
    /// Whether `AAAA` records are used, besides `A` records.
    pub uses_ipv6: bool,
    /// Maximum number of addresses of a name or a service, and of `CAA` records of a name. Further ones are ignored.
    pub max_addresses: usize,
}

/// Asks DNS servers. Questions need the I/O and timers of a tokio runtime.
#[derive(Debug)]
pub struct Resolver {
    servers: NameServers,
    uses_ipv6: bool,
    max_addresses: usize,
}

/// A question about servers, for [`Resolver::ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question<'a> {
    /// The addresses of a host, with this port.
    Host(&'a str, u16),
    /// The servers of a service, by the name of its `SRV` records, such as `_http._tcp.app.internal` (RFC 2782).
    Service(&'a str),
}

/// The addresses of a name or of a service, as [`Endpoint`]s.
#[derive(Debug)]
pub struct Answer {
    /// The addresses, at least one. Each address occurs once: of the `SRV` records that lead to an address, the record with the
    /// smallest priority counts, and of several with that priority, the record with the largest weight. Addresses of the
    /// smallest priority precede backups; both parts are in ascending order.
    pub endpoints: Vec<Endpoint>,
    /// Time for which the answer is valid: the smallest TTL of its records.
    pub lifetime: Duration,
    /// Number of addresses and of `SRV` records beyond [`ResolverSettings::max_addresses`].
    pub ignored: usize,
    /// Reason for which a part of the addresses was not renewed: one family, or one target of a service. The addresses of this
    /// part are those of an earlier answer, if there are any.
    pub failure: Option<DnsError>,
}

/// An address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address and port.
    pub address: SocketAddr,
    /// Share of the requests, of an `SRV` record; at least 1, also for the weight 0. `None` for [`Question::Host`].
    pub weight: Option<u16>,
    /// Whether an `SRV` record with a smaller priority exists, which must be preferred (RFC 2782).
    pub is_backup: bool,
}

/// A `CAA` record (RFC 8659 section 4): a property of a name for authorities that issue certificates.
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

/// Reason for a missing [`Answer`].
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
    /// No DNS server has given a usable response to the question.
    #[error("cannot resolve {name}: {source}")]
    Failed {
        /// The name.
        name: String,
        /// The last error.
        source: NetError,
    },
}

/// The addresses of one host, by family.
struct Addresses {
    v4: Result<Records, DnsError>,
    /// `None` without [`ResolverSettings::uses_ipv6`].
    v6: Option<Result<Records, DnsError>>,
}

/// `SRV` records, by priority.
struct Services {
    all: Vec<SRV>,
    ttl: u32,
    ignored: usize,
}

impl Resolver {
    /// Reads `/etc/resolv.conf`, unless [`ResolverSettings::servers`] has some, and `/etc/hosts`.
    ///
    /// # Errors
    ///
    /// [`DnsError::System`] if the file is needed and unreadable or malformed.
    pub fn new(settings: &ResolverSettings) -> Result<Self, DnsError> {
        let servers = NameServers::new(&settings.servers).map_err(DnsError::System)?;
        Ok(Self { servers, uses_ipv6: settings.uses_ipv6, max_addresses: settings.max_addresses })
    }

    /// Resolves addresses. `known` contains the addresses of earlier answers to the same question. If a part of the answer fails, the
    /// known addresses of this part replace it.
    ///
    /// # Errors
    ///
    /// [`DnsError`] if there are no addresses, or if all questions about them failed. `known` is unchanged then.
    pub async fn ask(&self, question: Question<'_>, known: &mut Known) -> Result<Answer, DnsError> {
        match question {
            Question::Host(name, port) => self.host(name, port, known).await,
            Question::Service(name) => self.service(name, known).await,
        }
    }

    /// The `CAA` records that apply to a name: its own, otherwise those of the closest parent that has any. `None` if there are
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
            let properties = found.data.iter().filter_map(|data| match data {
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
            // RFC 8659 section 3: the closest name with records decides alone; records of
            // its parents do not count.
            let Some((_, parent)) = name.split_once('.') else { return Ok(None) };
            name = parent;
        }
    }

    async fn host(&self, name: &str, port: u16, known: &mut Known) -> Result<Answer, DnsError> {
        let found = self.addresses(name).await;
        let mut renewal = known.renew(Instant::now(), self.max_addresses);
        let (ips, ttl) = renewal.merge(name, found);
        let endpoint = |ip| Endpoint { address: SocketAddr::new(ip, port), weight: None, is_backup: false };
        let endpoints: Vec<_> = ips.into_iter().map(endpoint).collect();
        let none = || DnsError::NoRecords { name: name.to_owned(), records: "A or AAAA" };
        let failure = renewal.finish(!endpoints.is_empty(), none)?;
        Ok(Answer::new(endpoints, ttl, 0, self.max_addresses, failure))
    }

    async fn service(&self, name: &str, known: &mut Known) -> Result<Answer, DnsError> {
        let services = self.services(name).await?;
        let targets: Vec<_> = services.all.iter().map(|service| service.target.to_ascii()).collect();
        let found = join_all(targets.iter().map(|target| self.addresses(target))).await;
        services.answer(name, found, known, self.max_addresses)
    }

    /// The `SRV` records of a service, those of the smallest priority first.
    async fn services(&self, name: &str) -> Result<Services, DnsError> {
        let mut name = name.to_owned();
        let mut alias_ttl = u32::MAX;
        // Bounded, because the aliases of a faulty zone may form a loop.
        for _ in 0..ALIASES {
            let found = self.records(&name, RecordType::SRV).await?;
            let all: Vec<_> = found.data.into_iter().filter_map(service_of).collect();
            if all.is_empty()
                && let Some((alias, ttl)) = self.alias(&name).await?
            {
                name = alias;
                alias_ttl = alias_ttl.min(ttl);
                continue;
            }
            return Ok(Services::new(all, found.ttl.min(alias_ttl), self.max_addresses));
        }
        Err(DnsError::NoRecords { name, records: "usable SRV" })
    }

    /// The name of which `name` is an alias, with the TTL. The library follows aliases of all types of records except `SRV`.
    async fn alias(&self, name: &str) -> Result<Option<(String, u32)>, DnsError> {
        let found = self.records(name, RecordType::CNAME).await?;
        let alias = found.data.iter().find_map(|data| match data {
            RData::CNAME(alias) => Some(alias.0.to_ascii()),
            _ => None,
        });
        Ok(alias.map(|alias| (alias, found.ttl)))
    }

    /// The addresses of a host. RFC 4074 section 4: many servers answer questions about `AAAA` records with an error, or not at
    /// all, so a failure of one family says nothing about the other.
    async fn addresses(&self, name: &str) -> Addresses {
        let v4 = pin!(self.records(name, RecordType::A));
        if !self.uses_ipv6 {
            return Addresses { v4: v4.await, v6: None };
        }
        let v6 = pin!(self.records(name, RecordType::AAAA));
        match select(v4, v6).await {
            Either::Left((v4, v6)) => Addresses { v6: Some(self.second(name, &v4, v6).await), v4 },
            Either::Right((v6, v4)) => Addresses { v4: self.second(name, &v6, v4).await, v6: Some(v6) },
        }
    }

    /// The second family, for which a host with addresses of the first waits for [`SECOND_FAMILY`] only.
    async fn second(
        &self,
        name: &str,
        first: &Result<Records, DnsError>,
        second: impl Future<Output = Result<Records, DnsError>>,
    ) -> Result<Records, DnsError> {
        if !first.as_ref().is_ok_and(|records| !records.data.is_empty()) {
            return second.await;
        }
        let late = |_| Err(DnsError::Failed { name: name.to_owned(), source: NetError::Timeout });
        timeout(SECOND_FAMILY, second).await.unwrap_or_else(late)
    }

    async fn records(&self, name: &str, kind: RecordType) -> Result<Records, DnsError> {
        let found = self.servers.look_up(name, kind).await;
        found.map_err(|source| DnsError::Failed { name: name.to_owned(), source })
    }
}

impl Services {
    fn new(mut all: Vec<SRV>, ttl: u32, max_addresses: usize) -> Self {
        // RFC 2782: the root as the target means that the service is not offered.
        all.retain(|service| !service.target.is_root());
        // Sorted before the cut: DNS servers rotate records, so that the cut of an unsorted list would
        // replace servers with each response and could drop those of the smallest priority.
        all.sort_by(|one, other| (one.priority, &one.target).cmp(&(other.priority, &other.target)));
        let ignored = all.len().saturating_sub(max_addresses);
        all.truncate(max_addresses);
        Self { all, ttl, ignored }
    }

    /// The servers of the service `name`, with the addresses found for each record.
    fn answer(
        &self,
        name: &str,
        found: Vec<Addresses>,
        known: &mut Known,
        max_addresses: usize,
    ) -> Result<Answer, DnsError> {
        let mut renewal = known.renew(Instant::now(), max_addresses);
        let targets = self.all.iter().zip(found);
        let addresses: Vec<_> = targets
            .map(|(service, found)| (service, renewal.merge(&service.target.to_ascii(), found)))
            .collect();
        let servers = addresses.iter().filter(|(_, (ips, _))| !ips.is_empty());
        let ttl = servers.clone().map(|(_, (_, ttl))| *ttl).min().unwrap_or(u32::MAX);
        // RFC 2782: the first priority whose target can be reached, so that of a target with addresses.
        let first = servers.clone().map(|(service, _)| service.priority).min();
        let endpoints: Vec<_> = servers
            .flat_map(|(service, (ips, _))| {
                ips.iter().map(move |ip| Endpoint {
                    address: SocketAddr::new(*ip, service.port),
                    // RFC 2782: a record of weight 0 still has a small chance beside records of other weights.
                    weight: Some(max(service.weight, 1)),
                    is_backup: Some(service.priority) > first,
                })
            })
            .collect();
        let none = || DnsError::NoRecords { name: name.to_owned(), records: "usable SRV" };
        let failure = renewal.finish(!endpoints.is_empty(), none)?;
        Ok(Answer::new(endpoints, self.ttl.min(ttl), self.ignored, max_addresses, failure))
    }
}

impl Answer {
    fn new(
        endpoints: Vec<Endpoint>,
        ttl: u32,
        ignored: usize,
        max_addresses: usize,
        failure: Option<DnsError>,
    ) -> Self {
        let mut endpoints = distinct(endpoints);
        let ignored = ignored + endpoints.len().saturating_sub(max_addresses);
        endpoints.truncate(max_addresses);
        Self { endpoints, lifetime: Duration::from_secs(ttl.into()), ignored, failure }
    }
}

/// The endpoints in the order of [`Answer::endpoints`], of each address the preferred one.
fn distinct(mut endpoints: Vec<Endpoint>) -> Vec<Endpoint> {
    endpoints
        .sort_unstable_by_key(|endpoint| (endpoint.is_backup, endpoint.address, Reverse(endpoint.weight)));
    // Endpoints of one address with different priorities are not neighbours.
    let mut seen = HashSet::with_capacity(endpoints.len());
    endpoints.retain(|endpoint| seen.insert(endpoint.address));
    endpoints
}

fn service_of(data: RData) -> Option<SRV> {
    match data {
        RData::SRV(service) => Some(service),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
