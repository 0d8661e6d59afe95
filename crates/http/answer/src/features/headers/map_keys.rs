//! `[map.NAME]`: tables from one value to another.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Map {
    /// Value that is looked up.
    pub from: String,
    /// Results by exact value.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
    /// Results by network, if `from` is an address and no exact value is equal. The longest prefix decides.
    #[serde(default)]
    pub networks: BTreeMap<String, String>,
    /// Results by regular expression, in this order, if no exact value is equal. `{1}` or `{name}` in `value` is the text of a
    /// [group](pages.md#variables).
    #[serde(default)]
    pub patterns: Vec<MapPattern>,
    /// Result for all other values.
    #[serde(default)]
    pub default: String,
}

/// An expression and its result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapPattern {
    /// Regular expression for the value.
    pub regex: String,
    /// Result, which may contain groups of the expression.
    pub value: String,
}
