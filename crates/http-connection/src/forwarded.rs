//! The forwarding headers of a client, as far as all its requests share them.

use http::HeaderValue;

/// The values for one connection and authority, made once.
#[derive(Debug)]
pub struct ForwardedValues {
    /// Authority of the requests.
    pub authority: Box<str>,
    /// Address of the client, as in `X-Forwarded-For`.
    pub client: HeaderValue,
    /// `X-Forwarded-Proto`.
    pub proto: HeaderValue,
    /// `X-Forwarded-Host`.
    pub host: Option<HeaderValue>,
    /// Element of `Forwarded` (RFC 7239).
    pub element: HeaderValue,
}
