//! Errors of messages: reasons why a body or an upstream connection failed, and the side responsible.

use std::io;

use brisk_coding::{DecoderError, EncoderError};
use brisk_telemetry::Side;
use brisk_wire::h2::frame::Reason;
use http::StatusCode;
use thiserror::Error;

use crate::http1::{MalformedBody, MalformedResponse};

/// Failure of a connection to an upstream.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Ended,
    /// A read or a write failed.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The bytes from the server are not a valid HTTP/1.1 response.
    #[error("{0}")]
    Malformed(#[from] MalformedResponse),
    /// The request body failed while it was sent.
    #[error("{0}")]
    RequestBody(#[source] Box<BodyError>),
    /// A response before this one ended the use of the connection (HTTP/1.1 pipelining).
    #[error("another response ended the use of the connection")]
    Neighbour,
    /// Failure over HTTP/2.
    #[error("{0}")]
    Http2(#[from] Http2Error),
}

/// Failure of an HTTP/2 connection to an upstream, or of one of its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Http2Error {
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Ended,
    /// The server sent `GOAWAY` with an error.
    #[error("the server ended the connection with {0}")]
    Goaway(Reason),
    /// A read or a write failed.
    #[error("{0}")]
    Io(io::ErrorKind),
    /// The server did not process the request: it refused the stream (`REFUSED_STREAM`), or ended the connection before it
    /// (RFC 9113 section 8.7). The request may be repeated.
    #[error("the server took no further request on this connection")]
    Refused,
    /// The server sent `RST_STREAM`.
    #[error("the server reset the stream with {0}")]
    Reset(Reason),
    /// The server violated the protocol (RFC 9113).
    #[error("what the server sent is not HTTP/2: {0}")]
    Broken(Reason),
    /// The head of the response exceeds the limit of bytes or of headers.
    #[error("the head of the response is too large")]
    HeadTooLarge,
    /// The interim responses before the response exceed their limit of number or bytes.
    #[error("too many interim responses (1xx) came before the response")]
    Interim,
    /// The connection failed because of another stream's response.
    #[error("another response has broken the connection")]
    Neighbour,
    /// The server sent far more control frames than requests and data explain.
    #[error("the server sent too many frames without use")]
    Flood,
    /// The server was silent and did not respond to a `PING`.
    #[error("the server did not answer a PING")]
    Silent,
    /// The request body failed while it was sent.
    #[error("the request body failed")]
    RequestBody,
    /// The client has not read its responses and has its share of the memory for them.
    #[error("the client has its share of the memory for responses")]
    ClientMemory,
}

impl ConnectionError {
    /// Whether a kept connection may simply have reached its end, which does not count against its server.
    pub fn is_end(&self) -> bool {
        use Http2Error::{Goaway, Refused};
        match self {
            // A request on a kept connection that the server has just closed fails with a reset, which is no
            // fault of the server.
            Self::Ended | Self::Io(_) | Self::Http2(Http2Error::Ended | Http2Error::Io(_)) => true,
            Self::Http2(error) => matches!(error, Refused | Goaway(Reason::NO_ERROR)),
            Self::Malformed(_) | Self::RequestBody(_) | Self::Neighbour => false,
        }
    }

    /// Whether the failure was caused by another response, which does not count against this request.
    pub fn is_of_another(&self) -> bool {
        matches!(self, Self::Neighbour | Self::Http2(Http2Error::Neighbour))
    }
}

impl From<MalformedBody> for ConnectionError {
    fn from(error: MalformedBody) -> Self {
        Self::Malformed(error.into())
    }
}

impl From<BodyError> for ConnectionError {
    fn from(error: BodyError) -> Self {
        Self::RequestBody(Box::new(error))
    }
}

/// Reason why a body ended early.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The upstream's response body failed.
    #[error("the response body failed: {0}")]
    Upstream(#[source] ConnectionError),
    /// The upstream reset the response's stream with `NO_ERROR` before the end of the body.
    #[error("the response body was cut short by a reset")]
    UpstreamReset,
    /// The client has its share of the memory for responses that it does not read.
    #[error("the client has its share of the memory for responses")]
    ClientMemory,
    /// The time of the route for the request and its response has passed.
    #[error("the response did not end in the time of its route")]
    RequestTimeout,
    /// The upstream paused for longer than the timeout within a response body.
    #[error("the response body did not come in time")]
    UpstreamTimeout,
    /// The client ended or broke the connection within its request body.
    #[error("the request body failed: {0}")]
    ClientGone(#[source] io::Error),
    /// The bytes from the client are not a valid body.
    #[error("the request body failed: {0}")]
    ClientMalformed(#[source] MalformedBody),
    /// The client reset the request's stream before the end of the body.
    #[error("the request body was cut short by a reset")]
    ClientReset,
    /// The client's request body exceeds the limit.
    #[error("the request body is too large")]
    TooLarge,
    /// The length of the client's request body differs from its head.
    #[error("the request body has another length than its head states")]
    WrongLength,
    /// The client paused for longer than the timeout within its request body, or sent it too slowly.
    #[error("the request body did not come in time")]
    ClientTimeout,
    /// A request body cannot be written to a file.
    #[error("cannot keep the request body in a file: {0}")]
    Spill(#[source] io::Error),
    /// The limit for buffered request bodies is reached.
    #[error("there is no room left to keep request bodies")]
    NoRoom,
    /// A file cannot be read.
    #[error("cannot read the file: {0}")]
    File(#[source] io::Error),
    /// The body cannot be compressed.
    #[error("cannot compress the body: {0}")]
    Encoder(#[source] EncoderError),
    /// A response to be rewritten cannot be decoded.
    #[error("the response cannot be decoded: {0}")]
    Decoder(#[source] DecoderError),
    /// A response to be rewritten has a compression ratio far above that of pages.
    #[error("the response is {times} times as long as what was sent of it, as no page is")]
    Bomb {
        /// Compression ratio: decoded bytes per encoded byte.
        times: u64,
    },
}

impl BodyError {
    /// Converts the failure of a response's connection or stream, which is [`Self::UpstreamReset`] for `NO_ERROR`.
    pub fn of_upstream(error: ConnectionError) -> Self {
        match error {
            // RFC 9113 section 8.1: `NO_ERROR` before `END_STREAM` still means a truncated body.
            ConnectionError::Http2(Http2Error::Reset(Reason::NO_ERROR)) => Self::UpstreamReset,
            ConnectionError::Http2(Http2Error::ClientMemory) => Self::ClientMemory,
            error => Self::Upstream(error),
        }
    }

    /// Status of the response to a request whose own body failed.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::ClientTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::ClientGone(_) | Self::ClientMalformed(_) | Self::ClientReset | Self::WrongLength => {
                StatusCode::BAD_REQUEST
            }
            Self::Spill(_) | Self::File(_) | Self::Encoder(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NoRoom | Self::ClientMemory => StatusCode::SERVICE_UNAVAILABLE,
            Self::RequestTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Upstream(_)
            | Self::UpstreamReset
            | Self::UpstreamTimeout
            | Self::Decoder(_)
            | Self::Bomb { .. } => StatusCode::BAD_GATEWAY,
        }
    }

    /// Side that is responsible for the failure.
    pub fn side(&self) -> Side {
        match self {
            // The body of a request fails on the connection of the upstream, but its own side is responsible.
            Self::Upstream(ConnectionError::RequestBody(body)) => body.side(),
            Self::Upstream(_)
            | Self::UpstreamReset
            | Self::UpstreamTimeout
            | Self::Decoder(_)
            | Self::Bomb { .. } => Side::Upstream,
            Self::ClientGone(_)
            | Self::ClientMalformed(_)
            | Self::ClientReset
            | Self::WrongLength
            | Self::TooLarge
            | Self::ClientTimeout
            | Self::ClientMemory => Side::Client,
            Self::Spill(_) | Self::NoRoom | Self::File(_) | Self::Encoder(_) | Self::RequestTimeout => {
                Side::Internal
            }
        }
    }

    /// Keyword for logs and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Upstream(ConnectionError::RequestBody(body)) => body.reason(),
            Self::Upstream(_) | Self::UpstreamReset => "response-body",
            Self::RequestTimeout => "request-timeout",
            Self::UpstreamTimeout => "response-body-timeout",
            Self::ClientGone(_) | Self::ClientMalformed(_) | Self::ClientReset | Self::WrongLength => {
                "request-body"
            }
            Self::TooLarge => "request-body-too-large",
            Self::ClientTimeout => "request-body-timeout",
            Self::Spill(_) => "request-buffer",
            Self::NoRoom => "request-buffers-full",
            Self::ClientMemory => "response-memory",
            Self::File(_) => "file",
            Self::Encoder(_) => "compression",
            Self::Decoder(_) => "response-coding",
            Self::Bomb { .. } => "response-bomb",
        }
    }
}
