//! Questions to several name servers, of which some may fail, refuse, or not understand EDNS.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use tokio::time::{sleep, timeout};

/// Time for the response to one [`attempt`], repetitions and the change to TCP included.
const ATTEMPT: Duration = Duration::from_secs(4);

/// Time after which the next attempt begins, besides those without a response.
const NEXT_ATTEMPT: Duration = Duration::from_secs(1);

/// Time for all attempts of [`NameServers::look_up`], and with search domains for all names.
const QUESTION: Duration = Duration::from_secs(10);

/// The name servers, in the order of the attempts.
///
/// The library sends a question to one server at a time here, since it takes an error of one of several servers (`SERVFAIL`,
/// `REFUSED`, `NOTIMP`) for the response of all.
pub(crate) struct NameServers {
    /// First each server without EDNS, then each with EDNS. Without EDNS (RFC 6891), long responses need TCP, which most servers
    /// support; with it, some servers answer `FORMERR` or not at all, and some firewalls drop fragments. Servers behind a
    /// firewall that drops TCP need EDNS.
    attempts: Vec<TokioResolver>,
}

/// Data of records of one type, and the smallest TTL in seconds. `data` is empty if there are none.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) data: Vec<RData>,
    pub(crate) ttl: u32,
}

impl Records {
    /// The records of one type in the answers to a question.
    pub(crate) fn of(kind: RecordType, answers: &[Record]) -> Self {
        // Aliases (CNAME) on the way have TTLs too.
        let ttl = answers.iter().map(|record| record.ttl).min().unwrap_or(0);
        let records = answers.iter().filter(|record| record.record_type() == kind);
        Self { data: records.map(|record| record.data.clone()).collect(), ttl }
    }

    pub(crate) fn none() -> Self {
        Self { data: Vec::new(), ttl: u32::MAX }
    }
}

impl NameServers {
    /// The given `servers`; without any, those of `/etc/resolv.conf`, with its search domains.
    pub(crate) fn new(servers: &[SocketAddr]) -> Result<Self, NetError> {
        let (config, mut options) = if servers.is_empty() {
            read_system_conf()?
        } else {
            let servers = servers.iter().copied().map(server).collect();
            (ResolverConfig::from_parts(None, Vec::new(), servers), ResolverOpts::default())
        };
        // The caller keeps an answer for its lifetime, so a second cache could only repeat old responses.
        options.cache_size = 0;
        options.timeout = ATTEMPT;
        // A datagram is repeated within the time of an attempt.
        options.attempts = 0;
        let (domain, search, servers) = config.into_parts();
        let attempts =
            [false, true].into_iter().flat_map(|edns0| servers.iter().map(move |one| (edns0, one)));
        let build = |(index, (edns0, server)): (usize, (bool, &NameServerConfig))| {
            let config = ResolverConfig::from_parts(domain.clone(), search.clone(), vec![server.clone()]);
            let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
            // The first attempt finds all that is in the hosts file.
            let use_hosts_file = if index == 0 { ResolveHosts::Always } else { ResolveHosts::Never };
            *builder.options_mut() = options.clone();
            builder.options_mut().edns0 = edns0;
            builder.options_mut().use_hosts_file = use_hosts_file;
            builder.build()
        };
        Ok(Self { attempts: attempts.enumerate().map(build).collect::<Result<_, _>>()? })
    }

    /// The records of one type: the first usable response of any server. No records are a usable response.
    pub(crate) async fn look_up(&self, name: &str, kind: RecordType) -> Result<Records, NetError> {
        // Outside of the future, so that after `QUESTION` the error of a server is reported
        // rather than a mere timeout.
        let mut failure = None;
        let asked = timeout(QUESTION, self.try_all(name, kind, &mut failure)).await;
        match asked.ok().flatten() {
            Some(records) => Ok(records),
            None => Err(failure.unwrap_or(NetError::Timeout)),
        }
    }

    async fn try_all(&self, name: &str, kind: RecordType, failure: &mut Option<NetError>) -> Option<Records> {
        let mut running = FuturesUnordered::new();
        for resolver in &self.attempts {
            running.push(attempt(resolver, name, kind));
            tokio::select! {
                // A failure ends the pause: the next attempt begins at once.
                Some(outcome) = running.next() => match outcome {
                    Ok(records) => return Some(records),
                    Err(error) => note(failure, error),
                },
                () = sleep(NEXT_ATTEMPT) => {}
            }
        }
        while let Some(outcome) = running.next().await {
            match outcome {
                Ok(records) => return Some(records),
                Err(error) => note(failure, error),
            }
        }
        None
    }
}

/// Keeps the failure that explains most: a response of a server rather than none.
fn note(failure: &mut Option<NetError>, error: NetError) {
    if !matches!(failure, Some(NetError::Dns(_))) {
        *failure = Some(error);
    }
}

async fn attempt(resolver: &TokioResolver, name: &str, kind: RecordType) -> Result<Records, NetError> {
    match resolver.lookup(name, kind).await {
        Ok(found) => Ok(Records::of(kind, found.answers())),
        // Another code without records is an error that the library does not know.
        Err(NetError::Dns(DnsError::NoRecordsFound(NoRecords { response_code, .. })))
            if !matches!(response_code, ResponseCode::NoError | ResponseCode::NXDomain) =>
        {
            Err(NetError::Dns(DnsError::ResponseCode(response_code)))
        }
        Err(error) if error.is_no_records_found() => Ok(Records::none()),
        Err(error) => Err(error),
    }
}

fn server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

impl std::fmt::Debug for NameServers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("NameServers").finish_non_exhaustive()
    }
}
