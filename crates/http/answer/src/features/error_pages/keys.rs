//! Keys of error pages.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// Error pages of a host or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ErrorPagesKeys {
    /// [pages for errors](#error-pages) of this route.
    pub error_pages: Option<ErrorPages>,
}

/// Files by status or class of statuses, as written.
#[derive(Clone, Debug, Default)]
pub struct ErrorPages {
    /// Files by status, or by `4xx` and `5xx`.
    pub files: BTreeMap<String, PathBuf>,
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
                        pages.files.insert(key, table.next_value()?);
                    }
                }
                Ok(pages)
            }
        }
        deserializer.deserialize_any(Table)
    }
}
