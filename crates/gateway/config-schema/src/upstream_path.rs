//! Keys of a route for the path of its requests to upstreams.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// `strip_prefix`: the path of the route, another prefix, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripPrefix {
    No,
    Route,
    Path(String),
}

impl<'de> Deserialize<'de> for StripPrefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = StripPrefix;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false` or a path in quotes")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<StripPrefix, E> {
                Ok(if on { StripPrefix::Route } else { StripPrefix::No })
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<StripPrefix, E> {
                Ok(StripPrefix::Path(path.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `rewrite_path`: an expression and the path for its matches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewritePath {
    pub pattern: String,
    pub to: String,
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
