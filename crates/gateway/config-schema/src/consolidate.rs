//! `consolidate` of hosts: origins and the paths under which they are served.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Path of an origin: a string or a table.
#[derive(Clone, Debug)]
pub struct Consolidate(pub ConsolidateTable);

/// `{ path = "/_s", ... }`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsolidateTable {
    pub path: String,
    pub upstream: Option<String>,
    pub cookies: Option<Cookies>,
    #[serde(default)]
    pub integrity: bool,
}

/// Cookies that an origin receives and may set.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Cookies {
    Own,
    None,
    Host,
}

impl<'de> Deserialize<'de> for Consolidate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Consolidate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path as \"/_s\", or a table as { path = \"/_s\", upstream = \"static\" }")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<Consolidate, E> {
                Ok(Consolidate(ConsolidateTable {
                    path: path.to_owned(),
                    upstream: None,
                    cookies: None,
                    integrity: false,
                }))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<Consolidate, A::Error> {
                ConsolidateTable::deserialize(value::MapAccessDeserializer::new(table)).map(Consolidate)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
