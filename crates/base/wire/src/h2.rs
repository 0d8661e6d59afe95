//! HTTP/2 on the wire (RFC 9113), with HPACK (RFC 7541). Streams and windows are not here.

pub mod block;
pub mod frame;
pub mod hpack;
pub mod reader;
pub mod settings;
