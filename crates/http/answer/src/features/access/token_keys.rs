//! `jwt` of routes: tokens of an issuer.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use brisk_config_file::Period;
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserializer, Visitor};

/// `jwt`: JSON Web Tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jwt {
    /// URL of the key set of the issuer.
    pub jwks_url: Option<String>,
    /// File with a key set.
    pub jwks_file: Option<PathBuf>,
    /// File with one public key (PEM).
    pub key_file: Option<PathBuf>,
    /// With `jwks_url`: PEM file with the authorities of its certificate.
    pub ca: Option<PathBuf>,
    /// Accepted values of `iss`.
    pub issuer: Option<Texts>,
    /// Accepted values of `aud`. Without this key, a token with `aud` is refused, because it is for another application.
    pub audience: Option<Texts>,
    /// Accepted algorithms: `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384`, `EdDSA`.
    pub algorithms: Option<Vec<String>>,
    /// Permitted difference of the clocks for `exp` and `nbf`, at most `"10m"`.
    pub leeway: Option<Period>,
    /// Name of a cookie with the token; without it, the token is in `Authorization: Bearer`.
    pub cookie: Option<String>,
    /// With `upstream`: headers with the values of claims. `org.id` is the member `id` of the claim `org`.
    #[serde(default)]
    pub claims_to_headers: BTreeMap<String, String>,
    /// With `upstream`: whether upstreams get the header `Authorization`.
    pub forward: Option<bool>,
}

/// A text, or a list of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts(pub Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes, or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(vec![text.to_owned()]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Texts, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Texts)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
