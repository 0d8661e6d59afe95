//! `[limit.NAME]`: limits of requests by key.

use brisk_config_file::Rate;
use serde::Deserialize;

/// A limit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limit {
    pub rate: Option<Rate>,
    pub concurrency: Option<u32>,
    pub by: Option<String>,
    pub status: Option<u16>,
    pub dry_run: Option<bool>,
    pub fleet: Option<bool>,
    pub on_failure: Option<OnFailure>,
    pub keys: Option<u32>,
}

/// The decision about a request without a reply of Redis.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    Local,
    Allow,
    Deny,
}
