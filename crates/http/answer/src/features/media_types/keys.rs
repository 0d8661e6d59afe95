//! Keys of media types.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Media types of the files of a host or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MediaTypesKeys {
    /// With `static`: values of `Content-Type` by extension, in place of the usual ones, for example `{ wasm = "application/wasm" }`.
    pub types: BTreeMap<String, String>,
    /// With `static`: `Content-Type` of files whose extension is unknown; otherwise `application/octet-stream`.
    pub default_type: Option<String>,
}
