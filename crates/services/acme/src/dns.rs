//! DNS records for `dns-01` (RFC 8555 section 8.4), set through the configured provider and removed after the order.

mod acme_dns;
mod hook;
mod message;
mod update;

use std::path::PathBuf;
use std::time::Duration;

use brisk_fetch::{Client, ClientSettings};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

pub use message::TsigAlgorithm;

/// Method for setting DNS records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsSettings {
    /// The `DnsProvider`.
    pub by: DnsProvider,
    /// Time between setting a record and the check by the authority, for copies to secondary servers. Default: 0.
    pub wait: Duration,
}

/// Interface that changes DNS records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsProvider {
    /// Dynamic updates to the primary server of the zone (RFC 2136), signed with TSIG (RFC 8945).
    Update(UpdateSettings),
    /// A program of the operator.
    Hook(HookSettings),
    /// An `acme-dns` server, to which a `CNAME` record delegates `_acme-challenge` of each name.
    AcmeDns(AcmeDnsSettings),
}

/// A DNS server that accepts dynamic updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateSettings {
    /// Host and port.
    pub server: String,
    /// The zone. `None`: found by `SOA` queries to the server.
    pub zone: Option<String>,
    /// TSIG key that signs updates.
    pub key: TsigKey,
}

/// A TSIG key (RFC 8945).
#[derive(Clone, PartialEq, Eq)]
pub struct TsigKey {
    /// Name of the key at the server.
    pub name: String,
    /// MAC algorithm.
    pub algorithm: TsigAlgorithm,
    /// The secret, decoded.
    pub secret: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for TsigKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TsigKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A program that changes DNS records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSettings {
    /// Called as `PROGRAM present NAME VALUE`, the interface of lego, with the environment variables of certbot.
    pub program: PathBuf,
    /// Called as `PROGRAM cleanup NAME VALUE` to remove a record. `None`: `program`.
    pub cleanup: Option<PathBuf>,
    /// Timeout. At its end the program's process group is killed.
    pub limit: Duration,
}

/// An account with an `acme-dns` server.
#[derive(Clone, PartialEq, Eq)]
pub struct AcmeDnsSettings {
    /// Base URL, without `/update`.
    pub url: String,
    /// `username` of the registration.
    pub username: String,
    /// `password` of the registration.
    pub password: Zeroizing<String>,
    /// `subdomain` of the registration.
    pub subdomain: String,
}

impl std::fmt::Debug for AcmeDnsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcmeDnsSettings").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Failure to set or remove a DNS record.
#[derive(Debug, Error)]
#[error("{by}: {reason}")]
pub struct DnsError {
    /// The `DnsProvider`, with its address.
    pub by: String,
    /// The reason.
    pub reason: String,
}

/// A `TXT` record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Txt {
    /// `_acme-challenge.` and the name, without a wildcard label.
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Txt {
    /// The record that proves `name`, which may be a wildcard (RFC 8555 section 8.4).
    pub(crate) fn proving(name: &str, value: String) -> Self {
        Self { name: format!("_acme-challenge.{}", name.strip_prefix("*.").unwrap_or(name)), value }
    }

    /// The name without `_acme-challenge`.
    fn domain(&self) -> &str {
        self.name.split_once('.').map_or("", |(_, domain)| domain)
    }
}

/// Sets the record that answers a `dns-01` challenge.
pub(crate) async fn put(dns: &DnsSettings, record: &Txt) -> Result<(), DnsError> {
    // Only `acme-dns` uses HTTP. Its certificate must be public: there is no setting for a private CA.
    let http = Client::new(&ClientSettings::default())
        .map_err(|error| DnsError { by: "HTTP client".to_owned(), reason: error.to_string() })?;
    dns.put(record, &http).await
}

impl DnsSettings {
    /// Sets `record`, and keeps other records of the same name.
    pub(crate) async fn put(&self, record: &Txt, http: &Client) -> Result<(), DnsError> {
        match &self.by {
            DnsProvider::Update(settings) => update::put(settings, record).await,
            DnsProvider::Hook(settings) => hook::put(settings, record).await,
            DnsProvider::AcmeDns(settings) => acme_dns::put(settings, record, http).await,
        }
    }

    /// Returns whether the [`DnsProvider`] keeps the records of only one order: `acme-dns` stores two values per
    /// account and cannot remove any.
    pub(crate) fn takes_one_order(&self) -> bool {
        matches!(self.by, DnsProvider::AcmeDns(_))
    }

    /// Removes `record`, and keeps other records of the same name.
    pub(crate) async fn remove(&self, record: &Txt) -> Result<(), DnsError> {
        match &self.by {
            DnsProvider::Update(settings) => update::remove(settings, record).await,
            DnsProvider::Hook(settings) => hook::remove(settings, record).await,
            // `acme-dns` has no operation that removes a value; two newer ones replace it.
            DnsProvider::AcmeDns(_) => Ok(()),
        }
    }
}
