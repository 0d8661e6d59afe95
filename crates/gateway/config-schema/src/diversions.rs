//! `split` and `mirror` of a route: further upstreams.

use std::path::PathBuf;

use brisk_config_file::{Period, Size};
use serde::Deserialize;

use super::{SameSite, Sticky};

/// `split`: another upstream for a share of the visitors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    pub upstream: String,
    pub percent: f64,
    pub cookie: Option<String>,
    pub secret: Option<PathBuf>,
    pub max_age: Option<Period>,
    pub same_site: Option<SameSite>,
    pub secure: Option<bool>,
    pub http_only: Option<bool>,
}

impl Split {
    /// The cookie.
    pub fn sticky(&self) -> Sticky {
        Sticky {
            cookie: self.cookie.clone(),
            secret: self.secret.clone(),
            max_age: self.max_age,
            same_site: self.same_site,
            secure: self.secure,
            http_only: self.http_only,
        }
    }
}

/// `mirror`: another upstream that gets copies of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    pub upstream: String,
    pub percent: Option<f64>,
    pub body_size: Option<Size>,
    pub timeout: Option<Period>,
    pub requests: Option<u32>,
}
