//! What is the same on both sides of HTTP/2: the fields of messages, and the wakers of streams.

pub(crate) mod field;
pub(crate) mod wakes;

use http::HeaderValue;

/// The protocol that a request by `CONNECT` asks for (RFC 8441): an extension of the request.
#[derive(Clone, Debug)]
pub(crate) struct Protocol(pub(crate) HeaderValue);
