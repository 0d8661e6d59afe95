//! HTTP/3 on the wire (RFC 9114): QPACK. Frames and streams are not here yet; no part of the gateway serves HTTP/3.

pub mod qpack;
