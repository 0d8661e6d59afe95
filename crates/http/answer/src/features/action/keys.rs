//! Keys of the response of a route, and of the path of requests to upstreams.

use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

use super::rewrite_keys::Rewrites;

/// The response of a route: exactly one of `upstream`, `static`, `respond`, `redirect`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ActionKeys {
    /// Name of the `[upstream.NAME]` that handles the requests.
    pub upstream: Option<String>,
    /// Folder with files, found by the part of the path after `path`; `index.html` for folders. With `exact`, also a single file.
    #[serde(rename = "static")]
    pub directory: Option<PathBuf>,
    /// Fixed response; default status 200, no body, `"text/plain; charset=utf-8"`. The body may have
    /// [variables](pages.md#variables-in-bodies).
    pub respond: Option<Respond>,
    /// Redirect: value of `Location`, in which `{path}` is the requested path and query, and `{host}` the host; further
    /// [variables](pages.md#variables-in-redirects). Without a scheme it starts with `/`. Status 308 (default), 301, 302, 303
    /// or 307.
    pub redirect: Option<Redirect>,
    /// With `upstream`: removal of `path`, or of this prefix of `path`, from the path that the [upstream
    /// receives](#paths-for-upstreams).
    pub strip_prefix: Option<StripPrefix>,
    /// With `upstream`: this path in place of `path`, or in place of the prefix in `strip_prefix`.
    pub replace_prefix: Option<String>,
    /// With `upstream`: another path and query, formed from the groups of a [regular expression](#paths-for-upstreams); of a
    /// list, the first whose expression matches. Not together with the two keys above. With `static`: as `rewrite_files`.
    pub rewrite_path: Option<Rewrites>,
    /// With `static`: path below the folder, or list of paths of which the first with a file is sent, for [paths that an
    /// expression matches](#paths-for-upstreams); of a list of tables, the first whose expression matches.
    pub rewrite_files: Option<Rewrites>,
    /// With `upstream` and a slash at the end of `path`: [redirect](#paths-for-upstreams) of requests without the slash also where
    /// another route without `exact` matches.
    pub final_slash: Option<bool>,
    /// With `static`: use of [copies](pages.md#copies-beside-files) with `.br`, `.zst` or `.gz` after the name of a file.
    pub precompressed: Option<bool>,
    /// With `static`: file below the folder for [paths without a file](#fallback-of-static-files), for example `"/index.html"`; or
    /// the upstream that handles their requests, as `{ upstream = "app" }`.
    pub fallback: Option<Fallback>,
    /// With `static`: names of the page of a folder, of which the first that exists is sent.
    pub index: Option<Vec<String>>,
    /// With `static`: page with the [files of a folder](#lists-of-files) that has no `index`.
    pub listing: Option<bool>,
}

/// `strip_prefix`: the path of the route, another prefix, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripPrefix {
    /// The whole path.
    No,
    /// The path of the route.
    Route,
    /// This prefix.
    Path(String),
}

impl<'de> Deserialize<'de> for StripPrefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A visitor, because an untagged enum reports that no variant matches, and names no accepted form.
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

/// `fallback`: for paths without a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// A file of the folder.
    File(String),
    /// Name of an upstream.
    Upstream(String),
}

impl<'de> Deserialize<'de> for Fallback {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            upstream: String,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Fallback;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the path of a file in quotes, or { upstream = NAME }")
            }

            fn visit_str<E: de::Error>(self, file: &str) -> Result<Fallback, E> {
                Ok(Fallback::File(file.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<Fallback, A::Error> {
                let Table { upstream } = Table::deserialize(value::MapAccessDeserializer::new(table))?;
                Ok(Fallback::Upstream(upstream))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl ActionKeys {
    /// Name and key of the upstream for all requests or for those without a file.
    pub fn any_upstream(&self) -> Option<(&str, &'static str)> {
        let fallback = match &self.fallback {
            // Without `static`, a fallback is a mistake, which the resolution reports.
            Some(Fallback::Upstream(name)) if self.directory.is_some() => Some((name.as_str(), "fallback")),
            _ => None,
        };
        self.upstream.as_deref().map(|name| (name, "upstream")).or(fallback)
    }
}

/// `redirect`: where to, and with which status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Value of `Location`, with variables.
    pub to: String,
    /// Status code. Default: 308.
    pub status: Option<u16>,
}

impl<'de> Deserialize<'de> for Redirect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            to: String,
            status: Option<u16>,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Redirect;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL in quotes or { to = URL, status = NUMBER }")
            }

            fn visit_str<E: de::Error>(self, to: &str) -> Result<Redirect, E> {
                Ok(Redirect { to: to.to_owned(), status: None })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<Redirect, A::Error> {
                let Table { to, status } = Table::deserialize(value::MapAccessDeserializer::new(table))?;
                Ok(Redirect { to, status })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `respond`: a response of the configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Respond {
    /// Status code. Default: 200.
    pub status: Option<u16>,
    /// Content, with variables. Default: none.
    pub body: Option<String>,
    /// Value of `Content-Type`. Default: `text/plain; charset=utf-8`.
    pub content_type: Option<String>,
}
