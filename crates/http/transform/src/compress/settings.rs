//! Settings of compression.

use std::str::FromStr as _;

use brisk_coding::Coding;
use http::HeaderValue;

use super::media::{self, MediaPattern};

/// Media types of text, and types that compress like text.
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

/// Compression settings of a route: `compression`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionSettings {
    /// Offered codings in order of preference. Default: `zstd`, `br`, `gzip`.
    pub codings: Vec<Coding>,
    /// Levels of the codings, by [`Coding::index`]. Default: `zstd` 3, `br` 4, `gzip` 6.
    pub levels: [u8; Coding::ALL.len()],
    /// Compressed media types. Default: text and types that compress like text.
    pub types: Vec<MediaPattern>,
    /// Minimum length of a compressed response in bytes. Default: 512.
    pub least: u64,
    /// Requests without compressed responses. Default: requests from other sites.
    pub guard: BreachGuard,
    /// Pages for visitors who arrive from other sites that are compressed with padding: maximum per session and hour. 0
    /// for none. Default: 16.
    pub arrivals: u32,
    /// Whether responses with `Use-As-Dictionary` are stored and used to compress later responses. Default: `false`.
    pub dictionaries: bool,
}

/// Protection against BREACH: requests with credentials that browsers add by themselves (cookies, passwords, client
/// certificates, logins of the connection) whose responses are not compressed, except a few padded pages
/// ([`CompressionSettings::arrivals`]).
///
/// Decided by the initiator of the request, which browsers send in `Sec-Fetch-Site`. `public` responses and static
/// files are always compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BreachGuard {
    /// Requests from other sites (`cross-site`) and from browsers without the header.
    #[default]
    CrossSite,
    /// Requests from other origins, including subdomains of the same site (`same-site`).
    SameSite,
    /// No requests.
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
            arrivals: 16,
            dictionaries: false,
        }
    }
}

impl CompressionSettings {
    pub(super) fn level(&self, coding: Coding) -> u8 {
        self.levels[coding.index()]
    }

    /// Whether responses with this `Content-Type` are compressed.
    pub(super) fn takes(&self, content_type: &HeaderValue) -> bool {
        let essence = media::essence(content_type.as_bytes());
        self.types.iter().any(|pattern| pattern.fits(essence))
    }
}
