//! Keys of error pages.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor, value};

/// Error pages of a host or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ErrorPagesKeys {
    /// [pages for errors](#error-pages) of this route.
    pub error_pages: Option<ErrorPages>,
}

impl ErrorPages {
    /// The pages that are responses of routes.
    pub fn routes(&self) -> impl Iterator<Item = &RoutePage> {
        self.pages.values().filter_map(|page| match page {
            Page::File(_) => None,
            Page::Route(page) => Some(page),
        })
    }
}

/// Pages by status or class of statuses, as written.
#[derive(Clone, Debug, Default)]
pub struct ErrorPages {
    /// Pages by status, or by `4xx` and `5xx`.
    pub pages: BTreeMap<String, Page>,
    /// Whether error responses of upstreams are replaced too. Default: `false`.
    pub intercept: Option<bool>,
}

impl<'de> Deserialize<'de> for ErrorPages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table;
        impl<'de> Visitor<'de> for Table {
            type Value = ErrorPages;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table as { 404 = \"404.html\", 5xx = \"50x.html\" }")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<ErrorPages, A::Error> {
                let mut pages = ErrorPages::default();
                while let Some(key) = table.next_key::<String>()? {
                    if key == "intercept" {
                        pages.intercept = Some(table.next_value()?);
                    } else {
                        // All other keys are statuses, which a struct cannot have as
                        // fields; `resolve` checks them.
                        pages.pages.insert(key, table.next_value()?);
                    }
                }
                Ok(pages)
            }
        }
        deserializer.deserialize_any(Table)
    }
}

/// One page, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// A file.
    File(PathBuf),
    /// The response of a route of the host.
    Route(RoutePage),
}

/// The response of a route as a page.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutePage {
    /// Path and query of the route, with variables.
    pub route: String,
    /// Status of the response. Default: that of the error.
    pub status: Option<PageStatus>,
}

/// Status of the response of a route in place of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageStatus {
    /// This one.
    Code(u16),
    /// That of the route.
    Route,
}

impl<'de> Deserialize<'de> for PageStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = PageStatus;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a status, or \"route\" for that of the route")
            }

            // Integers of TOML have 64 bits.
            fn visit_i64<E: de::Error>(self, code: i64) -> Result<PageStatus, E> {
                u16::try_from(code)
                    .map(PageStatus::Code)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(code), &self))
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<PageStatus, E> {
                if word == "route" {
                    Ok(PageStatus::Route)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(word), &self))
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Page {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Page;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the path of a file in quotes, or { route = \"/PATH\" }")
            }

            fn visit_str<E: de::Error>(self, file: &str) -> Result<Page, E> {
                Ok(Page::File(file.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Page, A::Error> {
                RoutePage::deserialize(value::MapAccessDeserializer::new(table)).map(Page::Route)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
