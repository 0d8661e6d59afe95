//! `server_timing` and `visits` of hosts.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Whether responses report the components of their duration (`Server-Timing`): a switch or a table.
#[derive(Clone, Debug)]
pub enum ServerTiming {
    Off,
    On(ServerTimingTable),
}

/// `server_timing = { ... }`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerTimingTable {
    pub allow_origins: Vec<String>,
}

/// Whether visits of the host are measured: a switch, or a table.
#[derive(Clone, Debug)]
pub enum HostVisits {
    Off,
    On(HostVisitsTable),
}

/// `visits = { ... }` of a host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostVisitsTable {
    pub share: Option<f64>,
    pub insert: Option<bool>,
    pub network_errors: bool,
}

impl<'de> Deserialize<'de> for HostVisits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = HostVisits;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false` or a table as { share = 0.1 }")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<HostVisits, E> {
                Ok(if on { HostVisits::On(HostVisitsTable::default()) } else { HostVisits::Off })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<HostVisits, A::Error> {
                HostVisitsTable::deserialize(value::MapAccessDeserializer::new(table)).map(HostVisits::On)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for ServerTiming {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ServerTiming;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false` or a table as { allow_origins = [\"https://www.example.com\"] }")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<ServerTiming, E> {
                Ok(if on { ServerTiming::On(ServerTimingTable::default()) } else { ServerTiming::Off })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<ServerTiming, A::Error> {
                let table = ServerTimingTable::deserialize(value::MapAccessDeserializer::new(table))?;
                Ok(ServerTiming::On(table))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
