//! `compression` of hosts and routes: a switch, or a table.

use std::fmt;

use brisk_config_file::Size;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Whether, and how, answers are compressed.
#[derive(Clone, Debug)]
pub enum Compression {
    Off,
    On(Box<CompressionTable>),
}

/// `compression = { ... }`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompressionTable {
    pub codings: Option<Vec<CodingName>>,
    pub types: Option<Vec<String>>,
    pub least: Option<Size>,
    pub zstd_level: Option<u8>,
    pub br_quality: Option<u8>,
    pub gzip_level: Option<u8>,
    pub breach_guard: Option<BreachGuard>,
    pub arrivals: Option<u32>,
    pub dictionaries: Option<bool>,
}

/// A coding by its name in HTTP.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum CodingName {
    Zstd,
    Br,
    Gzip,
}

/// Whose requests get no compressed answers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum BreachGuard {
    CrossSite,
    SameSite,
    Off,
}

impl<'de> Deserialize<'de> for Compression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Compression;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false` or a table as { least = \"1KiB\" }")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Compression, E> {
                Ok(if on { Compression::On(Box::default()) } else { Compression::Off })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<Compression, A::Error> {
                let table = CompressionTable::deserialize(value::MapAccessDeserializer::new(table))?;
                Ok(Compression::On(Box::new(table)))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
