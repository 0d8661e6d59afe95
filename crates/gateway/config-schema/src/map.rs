//! `[map.NAME]`: tables from one value to another.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Map {
    pub from: String,
    #[serde(default)]
    pub values: BTreeMap<String, String>,
    #[serde(default)]
    pub patterns: Vec<MapPattern>,
    #[serde(default)]
    pub default: String,
}

/// An expression and its result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapPattern {
    pub regex: String,
    pub value: String,
}
