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
    pub jwks_url: Option<String>,
    pub jwks_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    pub ca: Option<PathBuf>,
    pub issuer: Option<Texts>,
    pub audience: Option<Texts>,
    pub algorithms: Option<Vec<String>>,
    pub leeway: Option<Period>,
    pub cookie: Option<String>,
    #[serde(default)]
    pub claims_to_headers: BTreeMap<String, String>,
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
