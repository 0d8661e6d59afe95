//! Keys of early hints: a switch, links, or a table.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor, value};

/// Early hints of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EarlyHintsKeys {
    /// With `upstream`: [Early Hints](pages.md#early-hints) (103) for pages. Keys of the table: `links`, `upstream` and
    /// `learn`.
    pub early_hints: Option<EarlyHints>,
}

/// Hints sent before the responses with pages.
#[derive(Clone, Debug)]
pub enum EarlyHints {
    /// Off.
    Off,
    /// On, with these keys.
    On(HintsTable),
}

/// `early_hints = { ... }`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HintsTable {
    /// Hints for every page of the route, at most 16. Relations: `preload` (with `as`), `modulepreload` and `preconnect`.
    pub links: Vec<String>,
    /// Forwarding of the links in the upstream's own 103.
    pub upstream: Option<bool>,
    /// Use of the `Link` headers of the last response for the same host name and path as hints.
    pub learn: Option<bool>,
}

impl<'de> Deserialize<'de> for EarlyHints {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = EarlyHints;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false`, a list of links or a table as { learn = false }")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<EarlyHints, E> {
                Ok(if on { EarlyHints::On(HintsTable::default()) } else { EarlyHints::Off })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<EarlyHints, A::Error> {
                let links = Vec::deserialize(value::SeqAccessDeserializer::new(list))?;
                Ok(EarlyHints::On(HintsTable { links, upstream: Some(false), learn: Some(false) }))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<EarlyHints, A::Error> {
                HintsTable::deserialize(value::MapAccessDeserializer::new(table)).map(EarlyHints::On)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
