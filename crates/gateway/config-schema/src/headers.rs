//! Header rules of routes, and the security headers of hosts, HSTS among them.

use std::collections::BTreeMap;
use std::fmt;

use brisk_config_file::Period;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// `request_headers` and `response_headers`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeaderRules {
    pub set: BTreeMap<String, String>,
    pub add: BTreeMap<String, String>,
    pub remove: Vec<String>,
}

/// `security_headers`: `"modern"`, or that with exceptions.
#[derive(Clone, Debug, Default)]
pub struct SecurityHeaders(pub SecurityTable);

/// `hsts`: RFC 6797.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hsts {
    pub max_age: Period,
    #[serde(default)]
    pub include_subdomains: bool,
    #[serde(default)]
    pub preload: bool,
}

/// Exceptions: a value for each header, or `false` to omit it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecurityTable {
    pub hsts: Option<bool>,
    pub content_type_options: Option<bool>,
    pub referrer_policy: Option<TextOrOff>,
    pub frame_options: Option<TextOrOff>,
    pub opener_policy: Option<TextOrOff>,
    pub permissions_policy: Option<TextOrOff>,
}

/// A text, or `false`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextOrOff {
    Off,
    Text(String),
}

impl<'de> Deserialize<'de> for TextOrOff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = TextOrOff;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the value of the header in quotes, or `false`")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<TextOrOff, E> {
                if on { Err(E::invalid_type(de::Unexpected::Bool(on), &self)) } else { Ok(TextOrOff::Off) }
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TextOrOff, E> {
                Ok(TextOrOff::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for SecurityHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = SecurityHeaders;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"modern\", or a table of exceptions as { frame_options = \"DENY\" }")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<SecurityHeaders, E> {
                match word {
                    "modern" => Ok(SecurityHeaders::default()),
                    other => Err(E::unknown_variant(other, &["modern"])),
                }
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<SecurityHeaders, A::Error> {
                SecurityTable::deserialize(value::MapAccessDeserializer::new(table)).map(SecurityHeaders)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
