//! Keys of URLs and cookies in responses of upstreams.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// URLs and cookies in the responses of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResponseUrlsKeys {
    /// With `upstream`: [changes of `Location` and `Refresh`](#locations-and-cookies) in its responses. `true`: URLs of the upstream
    /// become paths of the route. A table: other beginnings of URLs, as `{ "http://app:8080/" = "/" }`.
    pub rewrite_location: Option<RewriteLocation>,
    /// With `upstream`: [changes of `Set-Cookie`](#locations-and-cookies) in its responses. Keys of the table: `path`, `domain`,
    /// `secure`, `http_only`, `same_site`.
    pub cookies: Option<Cookies>,
}

/// `rewrite_location`: the usual rewriting, none, or that of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RewriteLocation {
    /// URLs of the upstream, or none.
    Own(bool),
    /// Texts by the beginnings of URLs that they replace.
    Table(BTreeMap<String, String>),
}

impl<'de> Deserialize<'de> for RewriteLocation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RewriteLocation;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false` or a table as { \"http://app:8080/\" = \"/\" }")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<RewriteLocation, E> {
                Ok(RewriteLocation::Own(on))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<RewriteLocation, A::Error> {
                BTreeMap::deserialize(value::MapAccessDeserializer::new(table)).map(RewriteLocation::Table)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `cookies`: changes of attributes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cookies {
    /// Texts in place of beginnings of `Path`.
    pub path: BTreeMap<String, String>,
    /// Texts in place of values of `Domain`.
    pub domain: BTreeMap<String, String>,
    /// Whether cookies have `Secure`.
    pub secure: Option<bool>,
    /// Whether cookies have `HttpOnly`.
    pub http_only: Option<bool>,
    /// Value of `SameSite`.
    pub same_site: Option<SameSite>,
}

/// `same_site`: a value, or none.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SameSite {
    /// `Strict`.
    Strict,
    /// `Lax`.
    Lax,
    /// `None`.
    None,
    /// No attribute.
    Remove,
}
