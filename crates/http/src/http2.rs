//! HTTP/2 messages on both sides of the gateway: their fields.

pub mod field;

use http::HeaderValue;

/// Protocol of an extended `CONNECT` (RFC 8441), as an extension of the request.
#[derive(Clone, Debug)]
pub struct Protocol(pub HeaderValue);
