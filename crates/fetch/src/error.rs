//! Why an errand failed, said so that an operator can put it right.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// An errand that failed. The text names the address and the reason.
#[derive(Debug, Error)]
#[error("{method} {url}: {reason}")]
pub struct FetchError {
    /// The method of the request.
    pub method: http::Method,
    /// The address that was asked last: after redirects, not the first.
    pub url: String,
    /// What went wrong.
    #[source]
    pub reason: Reason,
}

/// What went wrong with an errand.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The address cannot be asked.
    #[error("not an address that can be asked: {0}; write one as \"https://host/path\"")]
    Url(String),
    /// There is no connection, or it was lost. The text of the source names host and address.
    #[error("{0}")]
    Connect(#[source] io::Error),
    /// The server could not be verified, or does not speak TLS.
    #[error("TLS: {0}")]
    Tls(#[source] io::Error),
    /// The server does not speak HTTP, or closed the connection in the middle.
    #[error("HTTP: {0}")]
    Http(#[source] hyper::Error),
    /// No whole answer came in time.
    #[error("no answer within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The answer is longer than it may be, in bytes.
    #[error("the answer is longer than {0} bytes")]
    TooLarge(usize),
    /// The answer leads elsewhere too often.
    #[error("more than {0} redirects")]
    TooManyRedirects(u8),
    /// The answer leads to where this client does not go.
    #[error("redirected to {0:?}, which is not followed")]
    Redirect(String),
    /// The answer was another than 200, for callers that take nothing else.
    #[error("the server answered {0}")]
    Status(http::StatusCode),
}
