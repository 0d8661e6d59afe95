//! Messages of HTTP/1.1 as RFC 9112 has them, without I/O: heads of requests are written, responses are read.

pub(crate) mod chunked;
pub(crate) mod request;
pub(crate) mod response;

use thiserror::Error;

/// Lines that a head or a trailer section of a response may have.
pub(crate) const LINES: usize = 100;

/// Why the bytes that a server sent are no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MalformedResponse {
    /// The status line or a header breaks the grammar.
    #[error("its head is not HTTP/1.1: {0}")]
    Head(httparse::Error),
    /// The status code is not one of three digits, the first at least 1.
    #[error("its status code is out of range")]
    Status,
    /// The head is longer than allowed, or has more lines.
    #[error("its head is too large")]
    HeadTooLarge,
    /// `Content-Length` is not a number, or several that differ.
    #[error("its Content-Length is not one number")]
    Length,
    /// A transfer coding other than chunked.
    #[error("its transfer coding is not supported; supported is `chunked`")]
    TransferCoding,
    /// `Transfer-Encoding` in a response of HTTP/1.0, which has none (RFC 9112 section 6.1).
    #[error("it is of HTTP/1.0 and has a transfer coding")]
    OldTransferCoding,
    /// A chunk does not begin or end as it has to.
    #[error("its body has a malformed chunk")]
    Chunk,
    /// The chunk extensions together are longer than allowed.
    #[error("its body has too long chunk extensions")]
    Extensions,
    /// The trailer section breaks the grammar or is longer than allowed.
    #[error("its trailer section is malformed or too large")]
    Trailers,
}
