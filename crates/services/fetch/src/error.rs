//! Errors of requests, with the correction that an operator can make.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::destination::Refused;

/// A failed request. Its text contains method, URL and [`Reason`].
#[derive(Debug, Error)]
#[error("{method} {url}: {reason}")]
pub struct FetchError {
    /// Method of the request.
    pub method: http::Method,
    /// URL of the last request, after redirects.
    pub url: String,
    /// Status of a response whose body could not be read: too long, malformed, cut off or late. `None` without such a
    /// response.
    pub status: Option<http::StatusCode>,
    /// The reason.
    #[source]
    pub reason: Reason,
}

/// Reasons for which a request fails.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The URL cannot be requested.
    #[error("invalid URL: {0}; write one as \"https://host/path\"")]
    Url(String),
    /// The connection failed. The source names host and address.
    #[error("{0}")]
    Connect(#[source] io::Error),
    /// No address of the host is public or permitted by [`Destinations`](crate::Destinations).
    #[error("{0}")]
    Private(Refused),
    /// The handshake failed: the server's certificate is invalid, or the server does not use TLS.
    #[error("TLS: {0}")]
    Tls(#[source] io::Error),
    /// The server does not use HTTP, or closed the connection early.
    #[error("HTTP: {0}")]
    Http(#[source] hyper::Error),
    /// The response was not complete within [`Limits::time`](crate::Limits::time).
    #[error("no response within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The body exceeds [`Limits::body`](crate::Limits::body) bytes.
    #[error("the response is longer than {0} bytes")]
    TooLarge(usize),
    /// The response redirects more often than [`Limits::redirects`](crate::Limits::redirects).
    #[error("more than {0} redirects")]
    TooManyRedirects(u8),
    /// The response redirects to a URL that is not followed: unsupported, or from `https` to `http`.
    #[error("redirect to {0:?}, which is not followed")]
    Redirect(String),
    /// The status is not 200, for callers that accept no other.
    #[error("the server responded with {0}")]
    Status(http::StatusCode),
}
