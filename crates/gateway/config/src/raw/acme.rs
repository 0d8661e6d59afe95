//! `[acme]`, and the key `acme` of a host.

use std::fmt;
use std::path::PathBuf;

use brisk_config_file::{Period, Rate};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor, value};

/// `[acme]`: certificate authorities and the validation of names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Acme {
    pub directory: Option<String>,
    pub trial: Option<Trial>,
    pub ca: Option<PathBuf>,
    pub contact: Vec<String>,
    pub profile: Option<String>,
    pub keys: Option<Vec<AcmeKey>>,
    pub challenges: Option<Vec<Challenge>>,
    pub external_account: Option<ExternalAccount>,
    pub store: Option<AcmeStore>,
    pub dns: Option<Dns>,
    pub fallback: Vec<Authority>,
}

/// Storage of certificates.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AcmeStore {
    Folder,
    Redis,
}

/// `[acme.dns]`: how records for dns-01 are put. One of `server`, `hook` and `acme_dns`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Dns {
    pub server: Option<String>,
    pub zone: Option<String>,
    pub key_name: Option<String>,
    pub key_file: Option<PathBuf>,
    pub key_algorithm: Option<KeyAlgorithm>,
    pub hook: Option<PathBuf>,
    pub cleanup_hook: Option<PathBuf>,
    pub hook_timeout: Option<Period>,
    #[expect(clippy::struct_field_names, reason = "the name of the provider")]
    pub acme_dns: Option<PathBuf>,
    pub wait: Option<Period>,
}

/// An algorithm of the signatures of updates.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum KeyAlgorithm {
    #[serde(rename = "hmac-sha256")]
    Sha256,
    #[serde(rename = "hmac-sha384")]
    Sha384,
    #[serde(rename = "hmac-sha512")]
    Sha512,
}

/// `[[acme.fallback]]`: another authority, used after the previous ones have failed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Authority {
    pub directory: String,
    pub ca: Option<PathBuf>,
    pub profile: Option<String>,
    pub external_account: Option<ExternalAccount>,
}

/// `external_account`: account at the authority to which the ACME account is bound (RFC 8555 section 7.3.4).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExternalAccount {
    pub key_id: String,
    pub key_file: PathBuf,
}

/// `trial`: the directory of the authority for trials, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trial(pub Option<String>);

impl<'de> Deserialize<'de> for Trial {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Trial;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the address of a directory in quotes or `false`")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Trial, E> {
                // `true` has no meaning: a trial directory is on where the authority has one, and needs an
                // address where it does not.
                if on { Err(E::invalid_type(de::Unexpected::Bool(on), &self)) } else { Ok(Trial(None)) }
            }

            fn visit_str<E: de::Error>(self, directory: &str) -> Result<Trial, E> {
                Ok(Trial(Some(directory.to_owned())))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A kind of key.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AcmeKey {
    Ecdsa,
    Rsa,
}

/// A way to prove a name.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum Challenge {
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn,
    #[serde(rename = "http-01")]
    Http,
    #[serde(rename = "dns-01")]
    Dns,
    #[serde(rename = "dns-persist-01")]
    DnsPersist,
}

/// `on_demand` of a host: names that are decided at run time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OnDemand {
    pub ask: Option<String>,
    #[serde(default)]
    pub names: Vec<String>,
    pub wait: Option<Period>,
    pub orders: Option<Rate>,
    pub most: Option<u32>,
}

/// `acme` of a host: whether its certificates are obtained, and which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum HostAcme {
    #[default]
    Off,
    On(HostCertificates),
}

/// Settings of a host that override `[acme]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HostCertificates {
    pub keys: Option<Vec<AcmeKey>>,
    pub profile: Option<String>,
}

impl HostAcme {
    /// Whether certificates are obtained.
    pub(crate) fn is_on(&self) -> bool {
        matches!(self, Self::On(_))
    }
}

impl<'de> Deserialize<'de> for HostAcme {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = HostAcme;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false` or a table, as { keys = [\"ecdsa\", \"rsa\"] }")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<HostAcme, E> {
                // `acme = true` and a table without keys are the same, so `keys` and `profile` of `[acme]`
                // hold in both.
                Ok(if on { HostAcme::On(HostCertificates::default()) } else { HostAcme::Off })
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<HostAcme, A::Error> {
                HostCertificates::deserialize(value::MapAccessDeserializer::new(table)).map(HostAcme::On)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
