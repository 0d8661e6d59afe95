//! Keys of idle connections, and of connections that pages open in advance.

use std::fmt;

use brisk_config_file::Period;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Idle connections after requests of a host or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeepAliveKeys {
    /// [idle time of connections](pages.md#keep-alive) after requests of this route. Keys of the table: `profile`, `idle`,
    /// `requests`, `close`.
    pub keep_alive: Option<KeepAlive>,
}

/// Connections that pages of a host open in advance.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PreconnectKeys {
    /// Endpoint by which pages [open a connection in advance](pages.md#connections-before-the-click). `idle`: idle time of the
    /// connection, default that of `keep_alive`, or `"2m"`; between `"1s"` and `"24h"`.
    pub preconnect: Option<Preconnect>,
}

/// Timeouts of idle connections: a profile, or a table that may start with one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeepAliveTable {
    /// Kind of service that the other keys start with.
    pub profile: Option<Profile>,
    /// Idle time, between `"1s"` and `"24h"`.
    pub idle: Option<Period>,
    /// The connection closes after the response to such a request, once it has had this number of requests of any kind.
    pub requests: Option<u32>,
    /// The connection closes after the response, for example after a download that is the client's only request. Over HTTP/2,
    /// the other requests in progress are completed first.
    pub close: Option<bool>,
}

/// Timeouts of idle connections in either form.
#[derive(Clone, Debug, Default)]
pub struct KeepAlive(pub KeepAliveTable);

/// A kind of service.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Pages.
    Web,
    /// Programs.
    Api,
    /// Streams.
    Video,
}

/// `preconnect`: a path, or a table.
#[derive(Clone, Debug)]
pub struct Preconnect {
    /// Path of the endpoint.
    pub path: String,
    /// Idle time of connections that are opened with the endpoint.
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
