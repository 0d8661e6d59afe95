//! Keys of compression: a switch, or a table.

use std::fmt;

use brisk_config_file::Size;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Compression of a host or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompressionKeys {
    /// Compression of responses with zstd, br or gzip, as the client accepts. Keys of the table: `codings`, `types`, `least`,
    /// `zstd_level`, `br_quality`, `gzip_level`, `breach_guard`, `arrivals` and `dictionaries`, see
    /// [pages.md](pages.md#compression).
    pub compression: Option<Compression>,
}

/// Whether, and how, responses are compressed.
#[derive(Clone, Debug)]
pub enum Compression {
    /// Off.
    Off,
    /// On, with these keys.
    On(Box<CompressionTable>),
}

/// `compression = { ... }`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompressionTable {
    /// Codings offered. The weights in the client's `Accept-Encoding` decide (RFC 9110 section 12.5.3); between equal weights,
    /// the first coding of this list wins.
    pub codings: Option<Vec<CodingName>>,
    /// Compressed types: `"text/html"`, `"text/*"` or `"*+json"`. The default contains `text/*`, `*+json`, `*+xml`, JSON,
    /// JavaScript, XML, WebAssembly, TrueType and OpenType fonts, icons and bitmaps.
    pub types: Option<Vec<String>>,
    /// Minimum length of a compressed response, if the length is known. A shorter response saves no packet.
    pub least: Option<Size>,
    /// Level of zstd.
    pub zstd_level: Option<u8>,
    /// Quality of brotli. Quality 11, the default of brotli itself, takes ten times as long as 5 and is suited to files.
    pub br_quality: Option<u8>,
    /// Level of gzip.
    pub gzip_level: Option<u8>,
    /// Protection against BREACH, see [below](#secrets-in-compressed-responses).
    pub breach_guard: Option<BreachGuard>,
    /// Pages per session and hour that are compressed with [padding](#padded-pages) for visitors from other sites; 0 for none.
    pub arrivals: Option<u32>,
    /// Compression against [responses that the client already has](#dictionaries) (RFC 9842).
    pub dictionaries: Option<bool>,
}

/// A coding by its name in HTTP.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum CodingName {
    /// Zstandard (RFC 8878).
    Zstd,
    /// Brotli (RFC 7932).
    Br,
    /// gzip (RFC 1952).
    Gzip,
}

/// Whose requests get no compressed answers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum BreachGuard {
    /// Requests from other sites.
    CrossSite,
    /// Requests from other origins, also of the same site.
    SameSite,
    /// Off.
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
