//! Settings: authorities, challenges and wanted certificates.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use brisk_fetch::PrivateHost;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::dns::DnsSettings;

/// Settings that apply to all names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeSettings {
    /// Authorities, the preferred first. The next one is used after three consecutive failures.
    pub authorities: Vec<AuthoritySettings>,
    /// Contact addresses for the account, as `mailto:` URIs. May be empty.
    pub contact: Vec<String>,
    /// Challenges, the preferred first; at least one.
    pub challenges: Vec<ChallengeKind>,
    /// Provider of `dns-01` records. `None` if `dns-01` is not used.
    pub dns: Option<DnsSettings>,
    /// Hosts outside of the public internet to which authorities may redirect or refer. Hosts of the directories
    /// themselves need not be listed.
    pub allow_private: Arc<[PrivateHost]>,
}

/// An ACME certification authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthoritySettings {
    /// URL of its directory (RFC 8555 section 7.1.1).
    pub directory: String,
    /// Directory URL of its trial authority, as Let's Encrypt's staging. After a failed verification, orders go there
    /// until one succeeds, because failures count towards the rate limits of the real authority. `None`: no trial.
    pub trial: Option<String>,
    /// PEM file with trust anchors for its HTTPS server. `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// External account binding. `None`: not required.
    pub external_account: Option<ExternalAccount>,
    /// Certificate profile, for example `shortlived`. `None`: the authority's default.
    pub profile: Option<String>,
}

impl AuthoritySettings {
    /// Let's Encrypt, with its staging environment for trials.
    pub fn lets_encrypt() -> Self {
        use instant_acme::LetsEncrypt::{Production, Staging};
        Self { trial: Some(Staging.url().to_owned()), ..Self::new(Production.url()) }
    }

    /// The authority with this directory URL, and defaults otherwise.
    pub fn new(directory: impl Into<String>) -> Self {
        let directory = directory.into();
        Self { directory, trial: None, ca_file: None, external_account: None, profile: None }
    }
}

/// External account binding (RFC 8555 section 7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Key identifier from the authority.
    pub key_id: String,
    /// MAC key, decoded.
    pub key: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// Challenges: methods to prove control over a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChallengeKind {
    /// A handshake with a special certificate on port 443 (RFC 8737). Not for wildcards.
    TlsAlpn01,
    /// A response on port 80 (RFC 8555 section 8.3). Not for wildcards.
    Http01,
    /// A `TXT` record (RFC 8555 section 8.4). The only one besides `dns-persist-01` for wildcards.
    Dns01,
    /// A permanent `TXT` record that the operator sets once (draft-ietf-acme-dns-persist).
    DnsPersist01,
}

impl ChallengeKind {
    /// Name of the challenge in the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Http01 => "http-01",
            Self::Dns01 => "dns-01",
            Self::DnsPersist01 => "dns-persist-01",
        }
    }

    pub(crate) fn of_protocol(self) -> instant_acme::ChallengeType {
        match self {
            Self::TlsAlpn01 => instant_acme::ChallengeType::TlsAlpn01,
            Self::Http01 => instant_acme::ChallengeType::Http01,
            Self::Dns01 => instant_acme::ChallengeType::Dns01,
            // `instant-acme` has no variant for it, and needs none: nothing is published.
            Self::DnsPersist01 => instant_acme::ChallengeType::Unknown(self.name().to_owned()),
        }
    }
}

/// Kinds of keys. A host may have one certificate of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
    /// ECDSA with P-256.
    #[default]
    Ecdsa,
    /// RSA with 2048 bits.
    Rsa,
}

impl KeyKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Ecdsa, Self::Rsa];

    /// Name in configuration, store and log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ecdsa => "ecdsa",
            Self::Rsa => "rsa",
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The certificates of one host: one for each kind of key, each for all names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSpec {
    /// Host names and wildcards in lower case, and IP addresses; at least one. The first names the host in store and
    /// log.
    pub names: Vec<String>,
    /// Kinds of keys; at least one.
    pub keys: Vec<KeyKind>,
    /// Certificate profile; replaces the profile of the authority.
    pub profile: Option<String>,
}

impl CertificateSpec {
    /// Name of the host in store and log.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}
