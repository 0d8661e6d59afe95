//! `dns`: resolution of the servers that DNS names.

mod keys;
pub mod resolution;

use std::ops::RangeInclusive;
use std::time::Duration;

use brisk_config_file::Period;
use brisk_dns::ResolverSettings;
use brisk_http::server_url::ServerAddress;

use super::servers::UpstreamServer;
use super::{Context, GroupFeature, GroupScope};
pub use keys::{DnsKeys, ResolutionKeys};

/// Permitted values of `min_ttl` and `max_ttl`.
const TTLS: RangeInclusive<Period> = Period(Duration::from_millis(100))..=Period(Duration::from_hours(24));

/// Resolution of the servers that DNS names.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsSettings {
    /// DNS servers, and limits of their answers. Default: the servers of the system, 64 addresses of both families.
    pub resolver: ResolverSettings,
    /// Time after which a name is resolved again at the earliest, even if its records have a smaller TTL, and after a
    /// failure. Default: 1 s.
    pub min_ttl: Duration,
    /// Time after which a name is resolved again at the latest. Default: 5 min.
    pub max_ttl: Duration,
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self {
            resolver: ResolverSettings { servers: Vec::new(), uses_ipv6: true, max_addresses: 64 },
            min_ttl: Duration::from_secs(1),
            max_ttl: Duration::from_mins(5),
        }
    }
}

/// `dns` of groups.
#[derive(Debug)]
pub struct DnsFeature;

impl GroupFeature for DnsFeature {
    type Keys = DnsKeys;
    type Settings = DnsSettings;

    fn resolve(keys: &DnsKeys, group: &GroupScope<'_>, context: &mut Context<'_, '_>) -> DnsSettings {
        let path = group.key("dns");
        let is_resolved = |server: &UpstreamServer| {
            server.resolve || matches!(server.url.address(), ServerAddress::Service(_))
        };
        let findings = &mut *context.findings;
        if findings.written(&path) && !group.keys.servers.servers.iter().any(is_resolved) {
            findings.wrong(
                &path,
                "has no effect: write a server as { url = \"http://app.internal\", resolve = true }, or as \"srv+http://_http._tcp.app.internal\"",
            );
        }
        let keys = &keys.dns;
        let usual = DnsSettings::default();
        let min_ttl = findings.within(&path.key("min_ttl"), keys.min_ttl, Period(usual.min_ttl), &TTLS);
        // A long `min_ttl` alone raises the default of `max_ttl`, which the operator did not write.
        let longest = Period(usual.max_ttl).max(min_ttl);
        let max_ttl = findings.within(&path.key("max_ttl"), keys.max_ttl, longest, &TTLS);
        if min_ttl > max_ttl {
            findings.wrong(&path.key("max_ttl"), format!("{max_ttl} is shorter than `min_ttl`, {min_ttl}"));
        }
        let max_addresses = findings.within(&path.key("max_addresses"), keys.max_addresses, 64, &(1..=1000));
        DnsSettings {
            resolver: ResolverSettings {
                servers: keys.servers.iter().map(|server| server.0).collect(),
                uses_ipv6: keys.ipv6.unwrap_or(usual.resolver.uses_ipv6),
                max_addresses: max_addresses.into(),
            },
            min_ttl: min_ttl.0,
            // A wrong order has been reported.
            max_ttl: max_ttl.0.max(min_ttl.0),
        }
    }
}
