//! HTTP/3 on the wire (RFC 9114), with QPACK (RFC 9204): frames, settings, error codes, and the rules for the frames of a
//! client. Connections are not here.

pub mod error;
pub mod frame;
pub mod order;
pub mod qpack;
pub mod reader;
pub mod settings;
pub mod varint;

#[cfg(test)]
mod tests;
