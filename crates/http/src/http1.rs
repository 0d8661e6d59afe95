//! Messages of HTTP/1.1 as RFC 9112 has them, without I/O.
//!
//! Towards upstreams `request` writes and `response` reads, towards clients `request_head` reads and `answer`
//! writes. In what clients send, lines end with CR LF and nothing else: who took a bare LF for an end would see other
//! headers than a proxy in front that does not.

pub mod answer;
pub mod body;
pub mod chunked;
pub mod request;
pub mod request_head;
pub mod response;

use std::ops::Range;

use thiserror::Error;

pub use body::MalformedBody;

/// Lines that the head of a response or a trailer section may have.
pub const LINES: usize = 100;

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
    /// The body is none.
    #[error(transparent)]
    Body(#[from] MalformedBody),
}

/// Where `part` of `whole` stands in it.
pub fn place(part: &[u8], whole: &[u8]) -> Range<u32> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    // Heads are far shorter than 4 GiB.
    start as u32..(start + part.len()) as u32
}
