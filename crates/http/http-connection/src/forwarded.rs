//! Forwarding headers of a client, shared by its requests.

use http::HeaderValue;

/// Values for one connection and authority, computed once.
#[derive(Debug)]
pub struct ForwardedValues {
    /// Authority of the requests, as in `Host`; may be empty.
    pub authority: HeaderValue,
    /// Address of the client, as in `X-Forwarded-For`.
    pub client: HeaderValue,
    /// `X-Forwarded-Proto`.
    pub proto: HeaderValue,
    /// `X-Forwarded-Host`.
    pub host: Option<HeaderValue>,
    /// Element of `Forwarded` (RFC 7239).
    pub element: HeaderValue,
}
