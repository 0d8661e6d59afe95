//! `keep_alive` of hosts and routes, and `preconnect` of hosts.

use std::fmt;

use brisk_config_file::Period;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Timeouts of idle connections: a profile, or a table that may start with one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeepAliveTable {
    pub profile: Option<Profile>,
    pub idle: Option<Period>,
    pub requests: Option<u32>,
    pub close: Option<bool>,
}

/// Timeouts of idle connections in either form.
#[derive(Clone, Debug, Default)]
pub struct KeepAlive(pub KeepAliveTable);

/// A kind of service.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    Web,
    Api,
    Video,
}

/// `preconnect`: a path, or a table.
#[derive(Clone, Debug)]
pub struct Preconnect {
    pub path: String,
    pub idle: Option<Period>,
}

impl<'de> Deserialize<'de> for KeepAlive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = KeepAlive;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"web\", \"api\", \"video\" or a table as { idle = \"2m\" }")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<KeepAlive, E> {
                let word = value::StrDeserializer::<E>::new(word);
                let profile = Some(Profile::deserialize(word)?);
                Ok(KeepAlive(KeepAliveTable { profile, ..KeepAliveTable::default() }))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<KeepAlive, A::Error> {
                KeepAliveTable::deserialize(value::MapAccessDeserializer::new(table)).map(KeepAlive)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Preconnect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            path: String,
            idle: Option<Period>,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Preconnect;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path in quotes or { path = PATH, idle = DURATION }")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<Preconnect, E> {
                Ok(Preconnect { path: path.to_owned(), idle: None })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<Preconnect, A::Error> {
                let Table { path, idle } = Table::deserialize(value::MapAccessDeserializer::new(table))?;
                Ok(Preconnect { path, idle })
            }
        }
        deserializer.deserialize_any(Either)
    }
}
