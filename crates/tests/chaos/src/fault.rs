//! The faults of a plan, the failures that each permits, and the time of recovery.

use std::fmt::{self, Display};
use std::time::Duration;

/// Kind of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    /// A connection that had been used ended after a request was sent, and before the first byte of its response: browsers repeat
    /// the request.
    Stale,
    /// The same on a connection that had not been used, or during its handshake.
    Closed,
    /// The response ended early, and is known to be incomplete.
    Cut,
    /// The connection was refused.
    Connect,
    /// The handshake failed with an alert.
    Handshake,
    /// 503 with `Retry-After`.
    Unavailable,
    /// 502 or 504 for a request that is safe to repeat.
    Gateway,
    /// 502, 504, or no response for a request that must not be repeated.
    Unsafe,
}

/// A fault that a plan may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Several reloads with changes of the configuration.
    Reloads,
    /// Several new certificates in place of the old one.
    Certificates,
    /// A certificate file that is cut, empty, or missing.
    DamagedCertificate,
    /// A reload of an invalid configuration.
    InvalidConfiguration,
    /// Several upgrades in succession.
    Upgrades,
    /// Upgrades to programs that end at once or are no programs.
    FailedUpgrades,
    /// SIGKILL of a gateway, whose supervisor starts another one.
    GatewayKilled,
    /// SIGTERM of a gateway by another process than its supervisor.
    GatewayTerminated,
    /// SIGKILL of the process with the private keys.
    KeyProcessKilled,
    /// SIGKILL of one of two key servers.
    KeyServerKilled,
    /// SIGSTOP of one of two key servers.
    KeyServerStopped,
    /// SIGKILL of both key servers.
    KeyServersKilled,
    /// SIGKILL of Redis.
    RedisKilled,
    /// SIGSTOP of Redis.
    RedisStopped,
    /// SIGKILL of one of two upstream servers.
    UpstreamKilled,
    /// SIGSTOP of one of two upstream servers.
    UpstreamStopped,
    /// An upstream server whose responses do not arrive.
    Partition,
    /// An upstream server whose responses are late, as after the loss of packets.
    Delay,
    /// A DNS server that does not respond.
    DnsStopped,
    /// A name of upstream servers that no longer exists.
    NoSuchName,
    /// An access log on a full device.
    FullDisk,
    /// More silent connections than the process may have descriptors.
    Descriptors,
    /// Clients that read long responses slowly.
    SlowReaders,
    /// Clients that leave in the middle of responses.
    Aborts,
    /// More slow requests than upstream servers and queues take.
    Overload,
    /// Full handshakes without a pause.
    Handshakes,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 26] = [
        Self::Reloads,
        Self::Certificates,
        Self::DamagedCertificate,
        Self::InvalidConfiguration,
        Self::Upgrades,
        Self::FailedUpgrades,
        Self::GatewayKilled,
        Self::GatewayTerminated,
        Self::KeyProcessKilled,
        Self::KeyServerKilled,
        Self::KeyServerStopped,
        Self::KeyServersKilled,
        Self::RedisKilled,
        Self::RedisStopped,
        Self::UpstreamKilled,
        Self::UpstreamStopped,
        Self::Partition,
        Self::Delay,
        Self::DnsStopped,
        Self::NoSuchName,
        Self::FullDisk,
        Self::Descriptors,
        Self::SlowReaders,
        Self::Aborts,
        Self::Overload,
        Self::Handshakes,
    ];

    /// Name in plans and reports, and in `BRISK_CHAOS_FAULTS`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reloads => "reloads",
            Self::Certificates => "certificates",
            Self::DamagedCertificate => "damaged-certificate",
            Self::InvalidConfiguration => "invalid-configuration",
            Self::Upgrades => "upgrades",
            Self::FailedUpgrades => "failed-upgrades",
            Self::GatewayKilled => "gateway-killed",
            Self::GatewayTerminated => "gateway-terminated",
            Self::KeyProcessKilled => "key-process-killed",
            Self::KeyServerKilled => "key-server-killed",
            Self::KeyServerStopped => "key-server-stopped",
            Self::KeyServersKilled => "key-servers-killed",
            Self::RedisKilled => "redis-killed",
            Self::RedisStopped => "redis-stopped",
            Self::UpstreamKilled => "upstream-killed",
            Self::UpstreamStopped => "upstream-stopped",
            Self::Partition => "partition",
            Self::Delay => "delay",
            Self::DnsStopped => "dns-stopped",
            Self::NoSuchName => "no-such-name",
            Self::FullDisk => "full-disk",
            Self::Descriptors => "descriptors",
            Self::SlowReaders => "slow-readers",
            Self::Aborts => "aborts",
            Self::Overload => "overload",
            Self::Handshakes => "handshakes",
        }
    }

    /// The fault with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// The failures that the fault permits, from its begin to the recovery. All other requests succeed.
    pub(crate) const fn permits(self) -> &'static [Failure] {
        match self {
            Self::Reloads
            | Self::Certificates
            | Self::DamagedCertificate
            | Self::InvalidConfiguration
            | Self::FailedUpgrades
            | Self::KeyProcessKilled
            | Self::KeyServerKilled
            | Self::KeyServerStopped
            | Self::RedisKilled
            | Self::RedisStopped
            | Self::Delay
            | Self::DnsStopped
            | Self::NoSuchName
            | Self::FullDisk
            | Self::SlowReaders
            | Self::Aborts
            | Self::Handshakes => &[],
            // A connection that a gateway accepted a moment before its drain may close before its first request, too.
            Self::Upgrades | Self::GatewayTerminated => &[Failure::Stale, Failure::Closed, Failure::Unsafe],
            // The silent clients have the address of the visitors, so a connection of a visitor gives way before its first request too.
            Self::Descriptors => &[Failure::Stale, Failure::Closed],
            Self::GatewayKilled => &[Failure::Stale, Failure::Closed, Failure::Cut, Failure::Unsafe],
            Self::KeyServersKilled => &[Failure::Handshake],
            Self::UpstreamKilled | Self::UpstreamStopped | Self::Partition => {
                &[Failure::Cut, Failure::Unsafe]
            }
            Self::Overload => &[Failure::Stale, Failure::Unavailable],
        }
    }

    /// Time from the end of the fault until all requests succeed again, on an idle machine.
    pub(crate) const fn recovery(self) -> Duration {
        match self {
            // The start of a process, or the pause of a server that checks or failures have excluded.
            Self::Upgrades
            | Self::GatewayKilled
            | Self::GatewayTerminated
            | Self::KeyServerKilled
            | Self::KeyServerStopped
            | Self::KeyServersKilled
            | Self::RedisKilled
            | Self::RedisStopped
            | Self::UpstreamKilled
            | Self::UpstreamStopped
            | Self::Partition => Duration::from_secs(5),
            _ => Duration::from_secs(3),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_those_of_one_fault_each() {
        let names: BTreeSet<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        assert_eq!(names.len(), Fault::ALL.len());
        assert!(Fault::ALL.iter().all(|fault| Fault::named(fault.name()) == Some(*fault)));
    }
}
