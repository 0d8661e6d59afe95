//! HTTP/1.1 messages (RFC 9112), without I/O.
//!
//! For upstreams, [`request`] encodes and [`response`] parses; for clients, [`request_head`] parses and [`answer`] encodes.
//! Lines from clients must end with `\r\n`: a parser that accepts a bare `\n` would see other headers than a proxy in front
//! that does not.

pub mod answer;
pub mod body;
pub mod chunked;
mod names;
pub mod request;
pub mod request_head;
pub mod response;
mod shared_head;

use std::ops::Range;

use thiserror::Error;

use crate::cgi::fastcgi::RecordFault;
pub use body::MalformedBody;

/// Default maximum number of headers in a response, and maximum number of fields in a trailer section.
pub const LINES: usize = 100;

/// Limits for a head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Maximum size in bytes, including the empty line at the end.
    pub size: usize,
    /// Maximum number of headers.
    pub lines: usize,
}

/// Reason why bytes from a server are not a valid response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MalformedResponse {
    /// The status line or a header has a syntax error.
    #[error("its head is not HTTP/1.1: {0}")]
    Head(httparse::Error),
    /// The status code is not a number from `100` to `999`.
    #[error("its status code is out of range")]
    Status,
    /// The head exceeds the limit of bytes or of headers.
    #[error("its head is too large")]
    HeadTooLarge,
    /// The interim responses before the response exceed their limit of number or bytes.
    #[error("too many interim responses (1xx) came before it")]
    Interim,
    /// `Content-Length` is not a number, or its values differ.
    #[error("its Content-Length is not one number")]
    Length,
    /// A transfer coding other than `chunked`.
    #[error("its transfer coding is not supported; supported is `chunked`")]
    TransferCoding,
    /// `Transfer-Encoding` in a response of HTTP/1.0, which has none (RFC 9112 section 6.1).
    #[error("it is of HTTP/1.0 and has a transfer coding")]
    OldTransferCoding,
    /// The body has a syntax error.
    #[error(transparent)]
    Body(#[from] MalformedBody),
    /// Bytes that are no FastCGI.
    #[error("it has {0}")]
    Record(#[from] RecordFault),
    /// The application of a FastCGI server ended without a head.
    #[error("the application ended without the head of a response")]
    NoHead,
}

/// Position of `part`, a subslice of `whole`.
pub fn place(part: &[u8], whole: &[u8]) -> Range<u32> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    // Does not truncate: heads are far shorter than 4 GiB.
    start as u32..(start + part.len()) as u32
}
