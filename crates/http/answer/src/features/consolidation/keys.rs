//! Keys of consolidation: origins and the paths under which they are served.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Other origins of a host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostConsolidationKeys {
    /// [other origins](pages.md#one-domain-in-place-of-many) below paths of this host: `{ "https://static.example" = "/_s" }`,
    /// or `{ path, upstream, cookies, integrity }` in place of the path. Their pages get the rights of this host's pages.
    pub consolidate: BTreeMap<String, Consolidate>,
}

/// Translation of documents of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouteConsolidationKeys {
    /// With `consolidate` of the host: change of URLs in the documents of this route.
    pub rewrite: Option<RewriteDocuments>,
}

/// Path of an origin: a string or a table.
#[derive(Clone, Debug)]
pub struct Consolidate(pub ConsolidateTable);

/// `{ path = "/_s", ... }`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsolidateTable {
    /// Prefix of the origin's URLs on this host. Letters, digits, `-`, `_`, `.` and `~`; not within another such path, and no
    /// route of the host may be there. A text in place of a table is the path.
    pub path: String,
    /// The [upstream](configuration.md#upstreamname) that receives the requests. The default is the origin, with TLS verified
    /// by the system's authorities and the defaults of upstreams. Only configured origins are ever contacted.
    pub upstream: Option<String>,
    /// Handling of cookies, see below.
    pub cookies: Option<Cookies>,
    /// Whether style sheets with `integrity` are loaded below the path too, see [below](#style-sheets-with-a-digest).
    #[serde(default)]
    pub integrity: bool,
}

/// Cookies that an origin receives and may set.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Cookies {
    /// Cookies of the origin, under names of its own.
    Own,
    /// No cookie.
    None,
    /// The cookies of the host.
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

/// `rewrite`: whether the documents of consolidated origins are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewriteDocuments(pub bool);

impl<'de> Deserialize<'de> for RewriteDocuments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Switch;
        impl Visitor<'_> for Switch {
            type Value = RewriteDocuments;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true` or `false` for URLs in documents; for paths of requests, `rewrite_path`")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<RewriteDocuments, E> {
                Ok(RewriteDocuments(on))
            }
        }
        deserializer.deserialize_any(Switch)
    }
}
