//! `[limit.NAME]`: limits of requests by key; timeouts and bandwidth of a route.

use brisk_config_file::{Period, Rate, Size};
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

/// `timeouts` of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouteTimeouts {
    pub head: Option<Period>,
    pub body: Option<Period>,
    pub request: Option<Period>,
}

/// `bandwidth` of a route.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    pub rate: Size,
    pub after: Option<Size>,
}
