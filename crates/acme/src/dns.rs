//! Records that prove names (dns-01, RFC 8555 section 8.4): put where the configuration says, and taken away again.

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

/// How records get into the DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsSettings {
    /// By what.
    pub by: DnsProvider,
    /// How long the authority is kept waiting after a record is there: the time that its copies need. Default: 0.
    pub wait: Duration,
}

/// What changes records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsProvider {
    /// Updates to the primary server of the zone (RFC 2136), signed with a key that both have (RFC 8945).
    Update(UpdateSettings),
    /// A program of the operator.
    Hook(HookSettings),
    /// An acme-dns server, to which `_acme-challenge` of each name is delegated by a CNAME record.
    AcmeDns(AcmeDnsSettings),
}

/// A DNS server that takes updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateSettings {
    /// Host and port.
    pub server: String,
    /// The zone. `None`: the server is asked which zone a name is in.
    pub zone: Option<String>,
    /// The key.
    pub key: TsigKey,
}

/// A key that a DNS server knows.
#[derive(Clone, PartialEq, Eq)]
pub struct TsigKey {
    /// Its name at the server.
    pub name: String,
    /// The algorithm of its signatures.
    pub algorithm: TsigAlgorithm,
    /// The secret, decoded.
    pub secret: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for TsigKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TsigKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A program that changes records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSettings {
    /// Called as `PROGRAM present NAME VALUE`, as lego does, with the variables that certbot sets.
    pub program: PathBuf,
    /// Called instead of `program` to take a record away, as `PROGRAM cleanup NAME VALUE`. `None`: the same.
    pub cleanup: Option<PathBuf>,
    /// How long it may take.
    pub limit: Duration,
}

/// An account with an acme-dns server.
#[derive(Clone, PartialEq, Eq)]
pub struct AcmeDnsSettings {
    /// Its address, without `/update`.
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

/// Why a record could not be put, or taken away.
#[derive(Debug, Error)]
#[error("{by}: {reason}")]
pub struct DnsError {
    /// What was to do it.
    pub by: String,
    /// What went wrong.
    pub reason: String,
}

/// A TXT record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Txt {
    /// `_acme-challenge.` and the name, without a wildcard.
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Txt {
    /// The record that proves `name`, which may be a wildcard.
    pub(crate) fn proving(name: &str, value: String) -> Self {
        Self { name: format!("_acme-challenge.{}", name.strip_prefix("*.").unwrap_or(name)), value }
    }

    /// The name that it is about.
    fn domain(&self) -> &str {
        self.name.split_once('.').map_or("", |(_, domain)| domain)
    }
}

/// Puts the record that answers a challenge of dns-01.
pub(crate) async fn put(dns: &DnsSettings, record: &Txt) -> Result<(), DnsError> {
    // Only acme-dns is asked over HTTP, and its server has a public certificate.
    let http = Client::new(&ClientSettings::default())
        .map_err(|error| DnsError { by: "HTTP client".to_owned(), reason: error.to_string() })?;
    dns.put(record, &http).await
}

impl DnsSettings {
    /// Puts `record`, beside others of its name.
    pub(crate) async fn put(&self, record: &Txt, http: &Client) -> Result<(), DnsError> {
        match &self.by {
            DnsProvider::Update(settings) => update::put(settings, record).await,
            DnsProvider::Hook(settings) => hook::put(settings, record).await,
            DnsProvider::AcmeDns(settings) => acme_dns::put(settings, record, http).await,
        }
    }

    /// Whether the records of one order leave no room for those of another: acme-dns keeps two values, and takes none away.
    pub(crate) fn takes_one_order(&self) -> bool {
        matches!(self.by, DnsProvider::AcmeDns(_))
    }

    /// Takes `record` away, and leaves others of its name.
    pub(crate) async fn remove(&self, record: &Txt) -> Result<(), DnsError> {
        match &self.by {
            DnsProvider::Update(settings) => update::remove(settings, record).await,
            DnsProvider::Hook(settings) => hook::remove(settings, record).await,
            // It keeps the last two values, and has nothing to take one away.
            DnsProvider::AcmeDns(_) => Ok(()),
        }
    }
}
