//! `[map.NAME]`: tables from one value to another.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Map {
    pub(crate) from: String,
    #[serde(default)]
    pub(crate) values: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) patterns: Vec<MapPattern>,
    #[serde(default)]
    pub(crate) default: String,
}

/// An expression and its result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MapPattern {
    pub(crate) regex: String,
    pub(crate) value: String,
}
