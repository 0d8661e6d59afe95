//! `split` of a route: another upstream.

use std::path::PathBuf;

use brisk_config_file::Period;
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
