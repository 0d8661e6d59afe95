//! Which certificates are wanted, from whom, and how names are proven.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::dns::DnsSettings;

/// What is the same for all names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeSettings {
    /// The authorities, the preferred one first. The next is asked after some failures of the one before.
    pub authorities: Vec<AuthoritySettings>,
    /// Addresses for the authorities to write to, as `mailto:` URIs. May be empty.
    pub contact: Vec<String>,
    /// How names are proven, the preferred way first; at least one.
    pub challenges: Vec<ChallengeKind>,
    /// How records for dns-01 are put into the DNS. `None` where names are not proven so.
    pub dns: Option<DnsSettings>,
}

/// An authority that issues certificates by ACME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthoritySettings {
    /// The address of its directory.
    pub directory: String,
    /// The directory of its trial authority, where orders are tried that have failed, until one succeeds there: failures count
    /// towards the limits of the real one. `None`: it has none.
    pub trial: Option<String>,
    /// PEM file with the authorities that its server is verified with. `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The account with the authority that a new ACME account is bound to. `None`: it needs none.
    pub external_account: Option<ExternalAccount>,
    /// The profile of certificates, as `shortlived`; `None` is the authority's own choice.
    pub profile: Option<String>,
}

impl AuthoritySettings {
    /// Let's Encrypt, with its staging authority for trials.
    pub fn lets_encrypt() -> Self {
        use instant_acme::LetsEncrypt::{Production, Staging};
        Self { trial: Some(Staging.url().to_owned()), ..Self::new(Production.url()) }
    }

    /// The authority with this directory, and nothing else that is known of it.
    pub fn new(directory: impl Into<String>) -> Self {
        let directory = directory.into();
        Self { directory, trial: None, ca_file: None, external_account: None, profile: None }
    }
}

/// External account binding (RFC 8555 section 7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The identifier of the key.
    pub key_id: String,
    /// The MAC key, decoded.
    pub key: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// Ways to prove a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChallengeKind {
    /// A handshake with a certificate made for it, on port 443 (RFC 8737).
    TlsAlpn01,
    /// A file on port 80 (RFC 8555 section 8.3).
    Http01,
    /// A TXT record (RFC 8555 section 8.4). For wildcards too.
    Dns01,
    /// A TXT record that stands, and that the operator has set once (draft-ietf-acme-dns-persist). For wildcards too.
    DnsPersist01,
}

impl ChallengeKind {
    /// Its name in the protocol.
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
            // The library does not know it, and has nothing to do for it.
            Self::DnsPersist01 => instant_acme::ChallengeType::Unknown(self.name().to_owned()),
        }
    }
}

/// Kinds of keys. A host may have a certificate of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
    /// ECDSA on P-256.
    #[default]
    Ecdsa,
    /// RSA of 2048 bits.
    Rsa,
}

impl KeyKind {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Ecdsa, Self::Rsa];

    /// Its name in configuration, store and log.
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

/// The certificates of one host: one for each kind of key, for all of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The names: host names and wildcards in lower case, addresses as text; at least one. The first one names the host in
    /// store and log.
    pub names: Vec<String>,
    /// The kinds of keys; at least one.
    pub keys: Vec<KeyKind>,
    /// Instead of the profile of the authority.
    pub profile: Option<String>,
}

impl Wanted {
    /// The name of the host in store and log.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}
