//! Errors of messages: why a body or an upstream connection cannot be carried on, and which side is to blame.

use std::io;

use brisk_coding::{DecoderError, EncoderError};
use brisk_telemetry::Side;
use brisk_wire::h2::frame::Reason;
use http::StatusCode;
use thiserror::Error;

use crate::http1::{MalformedBody, MalformedResponse};

/// What went wrong on a connection to an upstream.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The server closed it.
    #[error("the server closed the connection")]
    Ended,
    /// It cannot be read or written.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// What the server sent over HTTP/1.1 is no response.
    #[error("{0}")]
    Malformed(#[from] MalformedResponse),
    /// The request body that was being sent failed.
    #[error("{0}")]
    RequestBody(#[source] Box<BodyError>),
    /// What went wrong over HTTP/2.
    #[error("{0}")]
    Http2(#[from] Http2Error),
}

/// What went wrong on a connection to an upstream over HTTP/2, or on a stream of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Http2Error {
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Ended,
    /// The server announced the end of the connection with an error.
    #[error("the server ended the connection with {0}")]
    Goaway(Reason),
    /// The connection cannot be read or written.
    #[error("{0}")]
    Io(io::ErrorKind),
    /// The server has not looked at the request: it refused the stream, or ended the connection before.
    #[error("the server took no further request on this connection")]
    Refused,
    /// The server reset the stream.
    #[error("the server reset the stream with {0}")]
    Reset(Reason),
    /// What the server sent breaks the protocol (RFC 9113).
    #[error("what the server sent is not HTTP/2: {0}")]
    Broken(Reason),
    /// The head of the response is longer than allowed, or has more lines.
    #[error("the head of the response is too large")]
    HeadTooLarge,
    /// What the server sent on another stream ended the connection.
    #[error("another response has broken the connection")]
    Neighbour,
    /// The server sent far more frames without use than requests and data explain.
    #[error("the server sent too many frames without use")]
    Flood,
    /// The server was silent, and did not answer a PING.
    #[error("the server did not answer a PING")]
    Silent,
    /// The request body that was being sent failed.
    #[error("the request body failed")]
    RequestBody,
}

impl ConnectionError {
    /// Whether a connection that was kept may just have reached its end, which says nothing about its server.
    pub fn is_end(&self) -> bool {
        use Http2Error::{Goaway, Refused};
        match self {
            Self::Ended | Self::Io(_) | Self::Http2(Http2Error::Ended | Http2Error::Io(_)) => true,
            Self::Http2(error) => matches!(error, Refused | Goaway(Reason::NO_ERROR)),
            Self::Malformed(_) | Self::RequestBody(_) => false,
        }
    }

    /// Whether another response has broken the connection, where that counts.
    pub fn is_of_another(&self) -> bool {
        matches!(self, Self::Http2(Http2Error::Neighbour))
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

/// Why a body ended early.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The upstream's response body failed.
    #[error("the response body failed: {0}")]
    Upstream(#[source] ConnectionError),
    /// The upstream reset the stream of its response before the end of the body, although it named no error.
    #[error("the response body was cut short by a reset")]
    UpstreamReset,
    /// The upstream paused for too long within a response body.
    #[error("the response body did not come in time")]
    UpstreamTimeout,
    /// The client ended or broke the connection within its request body.
    #[error("the request body failed: {0}")]
    ClientGone(#[source] io::Error),
    /// What the client sent is no body.
    #[error("the request body failed: {0}")]
    ClientMalformed(#[source] MalformedBody),
    /// The client reset the stream of its request before the end of the body, although it named no error.
    #[error("the request body was cut short by a reset")]
    ClientReset,
    /// The client's request body is longer than allowed.
    #[error("the request body is too large")]
    TooLarge,
    /// The client's request body does not have the length that its head states.
    #[error("the request body has another length than its head states")]
    WrongLength,
    /// The client paused for too long within its request body, or sent it too slowly.
    #[error("the request body did not come in time")]
    ClientTimeout,
    /// A request body cannot be kept in a file.
    #[error("cannot keep the request body in a file: {0}")]
    Spill(#[source] io::Error),
    /// The request bodies that are gathered take as much room as they may.
    #[error("there is no room left to keep request bodies")]
    NoRoom,
    /// A file cannot be read.
    #[error("cannot read the file: {0}")]
    File(#[source] io::Error),
    /// The body cannot be compressed.
    #[error("cannot compress the body: {0}")]
    Encoder(#[source] EncoderError),
    /// A response that is to be rewritten cannot be decoded.
    #[error("the response cannot be decoded: {0}")]
    Decoder(#[source] DecoderError),
    /// A response that is to be rewritten is compressed far beyond what pages are.
    #[error("the response is {times} times as long as what was sent of it, as no page is")]
    Bomb {
        /// Bytes after decoding for each byte before.
        times: u64,
    },
}

impl BodyError {
    /// Of a response whose connection, or stream, has failed.
    pub fn of_upstream(error: ConnectionError) -> Self {
        match error {
            // An end only behind `END_STREAM` (RFC 9113 section 8.1).
            ConnectionError::Http2(Http2Error::Reset(Reason::NO_ERROR)) => Self::UpstreamReset,
            error => Self::Upstream(error),
        }
    }

    /// The status for a request whose own body failed.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::ClientTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::ClientGone(_) | Self::ClientMalformed(_) | Self::ClientReset | Self::WrongLength => {
                StatusCode::BAD_REQUEST
            }
            Self::Spill(_) | Self::File(_) | Self::Encoder(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
            Self::Upstream(_)
            | Self::UpstreamReset
            | Self::UpstreamTimeout
            | Self::Decoder(_)
            | Self::Bomb { .. } => StatusCode::BAD_GATEWAY,
        }
    }

    /// The side that is to blame.
    pub fn side(&self) -> Side {
        match self {
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
            | Self::ClientTimeout => Side::Client,
            Self::Spill(_) | Self::NoRoom | Self::File(_) | Self::Encoder(_) => Side::Internal,
        }
    }

    /// A short name for logs and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Upstream(ConnectionError::RequestBody(body)) => body.reason(),
            Self::Upstream(_) | Self::UpstreamReset => "response-body",
            Self::UpstreamTimeout => "response-body-timeout",
            Self::ClientGone(_) | Self::ClientMalformed(_) | Self::ClientReset | Self::WrongLength => {
                "request-body"
            }
            Self::TooLarge => "request-body-too-large",
            Self::ClientTimeout => "request-body-timeout",
            Self::Spill(_) => "request-buffer",
            Self::NoRoom => "request-buffers-full",
            Self::File(_) => "file",
            Self::Encoder(_) => "compression",
            Self::Decoder(_) => "response-coding",
            Self::Bomb { .. } => "response-bomb",
        }
    }
}
