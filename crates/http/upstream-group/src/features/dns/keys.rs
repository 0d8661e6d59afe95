//! Keys of the resolution of servers.

use brisk_config_file::{Address, Period};
use serde::Deserialize;

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DnsKeys {
    /// Resolution of servers.
    pub dns: ResolutionKeys,
}

/// `[upstream.NAME.dns]`: resolution of servers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResolutionKeys {
    /// DNS servers, over UDP, and over TCP for large answers. With this key, search domains are not used; `/etc/hosts` is, in any
    /// case.
    pub servers: Vec<Address>,
    /// Time after which a name is resolved again at the earliest.
    pub min_ttl: Option<Period>,
    /// Time after which a name is resolved again at the latest.
    pub max_ttl: Option<Period>,
    /// Number of servers of one name, and of SRV records that are followed, those of the smallest priorities first; further ones
    /// are ignored with a warning. Between 1 and 1000.
    pub max_addresses: Option<u16>,
    /// Use of AAAA records. With `false`, there is no question about them.
    pub ipv6: Option<bool>,
}
