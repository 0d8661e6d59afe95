//! HTTP/2 on the wire (RFC 9113), with HPACK (RFC 7541) and priorities (RFC 9218). Streams and windows are not here.

pub mod block;
pub mod frame;
pub mod hpack;
pub mod priority;
pub mod reader;
pub mod settings;
