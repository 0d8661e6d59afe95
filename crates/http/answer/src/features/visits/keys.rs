//! Keys of measurements.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Components of the duration of responses of a host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerTimingKeys {
    /// Timings of a response in the header [`Server-Timing`](visitors.md#server-timing). `allow_origins`: at most 16 origins,
    /// or `["*"]`, whose pages may read it too (`Timing-Allow-Origin`); default none.
    pub server_timing: Option<ServerTiming>,
}

/// Measurement of the visits of a host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VisitsKeys {
    /// Measurement of [visitors' waiting times](visitors.md#beacons) by a script in pages.
    pub visits: Option<HostVisits>,
}

/// Whether responses report the components of their duration (`Server-Timing`): a switch or a table.
#[derive(Clone, Debug)]
pub enum ServerTiming {
    /// Off.
    Off,
    /// On, with these keys.
    On(ServerTimingTable),
}

/// `server_timing = { ... }`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerTimingTable {
    /// Origins of other pages that may read the timings, or `*` for all.
    pub allow_origins: Vec<String>,
}

/// Whether visits of the host are measured: a switch, or a table.
#[derive(Clone, Debug)]
pub enum HostVisits {
    /// Off.
    Off,
    /// On, with these keys.
    On(HostVisitsTable),
}

/// `visits = { ... }` of a host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostVisitsTable {
    /// Share of page views that are measured, drawn for each page view.
    pub share: Option<f64>,
    /// Insertion of the script into pages. With `false`, the pages must contain `<script async src="/.brisk/rum.js"></script>`.
    pub insert: Option<bool>,
    /// Reports of failed requests to this host by browsers ([Network Error
    /// Logging](https://www.w3.org/TR/network-error-logging/), Chromium): `NEL` and `Report-To` with responses to page views,
    /// unless the application sends its own.
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
