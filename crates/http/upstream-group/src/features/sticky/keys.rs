//! Keys of cookies by which clients return.

use std::path::PathBuf;

use brisk_config_file::Period;
use serde::Deserialize;

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StickyKeys {
    /// [Cookie](#sticky-cookies) by which a client returns to its server.
    pub sticky: Option<CookieKeys>,
}

/// `sticky`: the cookie by which clients return to their server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CookieKeys {
    /// Name of the cookie.
    pub cookie: Option<String>,
    /// File with at least 32 random bytes, read again when it changes.
    pub secret: Option<PathBuf>,
    /// Lifetime of the cookie, up to 400 days.
    pub max_age: Option<Period>,
    /// Attribute `SameSite`.
    pub same_site: Option<SameSite>,
    /// Attribute `Secure`.
    pub secure: Option<bool>,
    /// Attribute `HttpOnly`.
    pub http_only: Option<bool>,
}

/// Value of the attribute `SameSite`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SameSite {
    /// `SameSite=Strict`.
    Strict,
    /// `SameSite=Lax`.
    Lax,
    /// `SameSite=None`.
    None,
}
