//! Messages of HTTP/2 as both sides of the gateway have them: their fields.

pub mod field;

use http::HeaderValue;

/// The protocol that a request by `CONNECT` asks for (RFC 8441): an extension of the request.
#[derive(Clone, Debug)]
pub struct Protocol(pub HeaderValue);
