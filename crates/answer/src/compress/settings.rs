//! What an operator decides about compression.

use std::str::FromStr as _;

use brisk_coding::Coding;
use http::HeaderValue;

use super::media::{self, MediaPattern};

/// The types that are text, or as compressible as text.
const TYPES: [&str; 20] = [
    "text/*",
    "*+json",
    "*+xml",
    "application/json",
    "application/javascript",
    "application/x-javascript",
    "application/ecmascript",
    "application/xml",
    "application/wasm",
    "application/x-ndjson",
    "application/json-seq",
    "application/rtf",
    "application/toml",
    "application/yaml",
    "application/vnd.ms-fontobject",
    "font/ttf",
    "font/otf",
    "image/bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
];

/// The compression of the answers of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionSettings {
    /// The codings that are offered, the preferred first. Default: zstd, br, gzip.
    pub codings: Vec<Coding>,
    /// Their levels, by [`Coding::index`]. Default: zstd 3, br 4, gzip 6.
    pub levels: [u8; Coding::ALL.len()],
    /// What is compressed. Default: text, and what compresses like text.
    pub types: Vec<MediaPattern>,
    /// Bytes of the shortest answer that is compressed. Default: 512.
    pub least: u64,
    /// Whose requests get no compressed answers. Default: those of other sites.
    pub guard: BreachGuard,
    /// Whether answers that say `Use-As-Dictionary` are kept, and later ones compressed against them. Default: no.
    pub dictionaries: bool,
}

/// Which requests with credentials (cookies, `Authorization` that is no bearer token) get answers that are not compressed,
/// by what the browser says of who made them (`Sec-Fetch-Site`). Answers that are `public` and files are compressed for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BreachGuard {
    /// Those made by other sites, and those of browsers that do not say.
    #[default]
    CrossSite,
    /// Those made by other origins, subdomains of the same site among them.
    SameSite,
    /// None.
    Off,
}

impl Default for CompressionSettings {
    fn default() -> Self {
        let pattern = |text: &&str| MediaPattern::from_str(text).expect("the patterns here are right");
        Self {
            codings: Coding::ALL.to_vec(),
            levels: [3, 4, 6],
            types: TYPES.iter().map(pattern).collect(),
            least: 512,
            guard: BreachGuard::default(),
            dictionaries: false,
        }
    }
}

impl CompressionSettings {
    pub(super) fn level(&self, coding: Coding) -> u8 {
        self.levels[coding.index()]
    }

    /// Whether what has this `Content-Type` is compressed.
    pub(super) fn takes(&self, content_type: &HeaderValue) -> bool {
        let essence = media::essence(content_type.as_bytes());
        self.types.iter().any(|pattern| pattern.fits(essence))
    }
}
