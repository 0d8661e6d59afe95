//! Keys of signed links.

use std::path::PathBuf;

use serde::Deserialize;

/// Signed links of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SignedLinksKeys {
    /// [signature and expiry](#signed-links) that requests need: otherwise 403, or 410 after the expiry.
    pub signed_links: Option<SignedLinks>,
}

/// `signed_links` of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SignedLinks {
    /// Files with the secrets, of which each is accepted. Not with `md5`.
    pub keys: Vec<PathBuf>,
    /// The signed text. Default: `{expires}{decoded_path}`.
    pub text: Option<String>,
    /// The signature of a request. Default: `{request.query.signature}`.
    pub signature: Option<String>,
    /// The second since 1970 until which a link is valid, or `none`. Default: `{request.query.expires}`.
    pub expires: Option<String>,
    /// Whether the signature is MD5 of the text, as in nginx, and not HMAC-SHA-256.
    pub md5: bool,
}
