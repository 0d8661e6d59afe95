//! Requests, independent of the protocol version.

/// A `GET` request for an `https` URL.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Host, with the port unless it is `443`.
    pub authority: &'a str,
    /// Path and query; begins with a slash.
    pub path: &'a str,
    /// Value of `User-Agent`.
    pub agent: &'a str,
}

/// Codings that every request accepts. Responses are not decoded.
pub(crate) const CODINGS: &str = "gzip, br, zstd";
