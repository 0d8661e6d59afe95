//! The forwarding headers of a client, as far as all its requests share them.

use http::HeaderValue;

/// The values for one connection and authority, made once.
#[derive(Debug)]
pub(crate) struct ForwardedValues {
    pub(crate) authority: Box<str>,
    pub(crate) client: HeaderValue,
    pub(crate) proto: HeaderValue,
    pub(crate) host: Option<HeaderValue>,
    pub(crate) element: HeaderValue,
}
