//! Errors of upstreams: the reason for a missing response, and the responsible side.

use std::io;

use brisk_http::cgi::TooManyVariables;
use brisk_http::error::ConnectionError;
use brisk_telemetry::Side;
use brisk_upstream_group::DialError;
use http::StatusCode;
use thiserror::Error;

/// Reason why an upstream group returned no response.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// Connecting to the last server tried failed, including TLS: `502`.
    #[error("{0}")]
    Connect(#[source] io::Error),
    /// Connecting to the last server tried took longer than `timeouts.connect`: `504`.
    #[error("cannot connect in time")]
    ConnectTimeout,
    /// All servers have reached `pool.max_connections`: `503`.
    #[error("no server may have another connection")]
    ConnectionLimit,
    /// All servers have reached `pool.max_connections`, and `pool.queue.size` requests wait, or as many as one client may have.
    #[error("no further request may wait for a connection")]
    QueueFull,
    /// The server is overloaded, and has as many requests as its limit: `503`.
    #[error("the server is overloaded and gets no further request at present")]
    ServerLimit,
    /// The server accepted no further stream on its HTTP/2 connection within `timeouts.head`: `503`.
    #[error("the server took no further request in time")]
    StreamLimit,
    /// The connection failed or was closed before the response began.
    #[error("the connection failed before the response: {0}")]
    Closed(#[source] ConnectionError),
    /// The group has no server.
    #[error("the upstream group has no server")]
    NoServer,
    /// The response is not valid HTTP: `502`.
    #[error("the response is malformed: {0}")]
    Malformed(#[source] ConnectionError),
    /// The response has a transfer coding other than `chunked` (RFC 9112 section 6.1).
    #[error("the response has a transfer coding that is not supported; supported is `chunked`")]
    TransferCoding,
    /// The head of the response exceeds `head_size` or `headers` of the upstream.
    #[error("the head of the response is too large: raise `head_size` or `headers` of the upstream")]
    HeadTooLarge,
    /// The interim responses (1xx) before the response exceed their limits: 100 of them, and 64 KiB.
    #[error("too many interim responses (1xx) before the response; the limit is 100, and 64 KiB in total")]
    InterimResponses,
    /// The response exceeded `timeouts.head`: `504`.
    #[error("no response in time")]
    HeadTimeout,
    /// The server switched protocols (`101`) without a request for it.
    #[error("the server switched protocols unasked")]
    UnexpectedUpgrade,
    /// The client requested another protocol, and the server refused or does not support it.
    #[error("the server did not switch protocols")]
    NotSwitched,
    /// The head of the request exceeds the limit of uwsgi: `431`.
    #[error(transparent)]
    RequestHeadTooLarge(#[from] TooManyVariables),
    /// A request of the gateway itself has no variables for an application server, which would run no script and seem to
    /// succeed: `502`.
    #[error("an application server gets only the requests of routes")]
    NoVariables,
    /// An application server cannot get a request body of unknown length: `411`.
    #[error("an application server needs the length of the request body")]
    LengthRequired,
    /// The client's request body ended early or was malformed.
    #[error("the request body failed: {0}")]
    RequestBody(#[source] ConnectionError),
    /// The gathered request body could not be read back.
    #[error("the gathered request body failed: {0}")]
    RequestBuffer(#[source] ConnectionError),
    /// The client's request body exceeds `body_size`: `413`.
    #[error("the request body is too large")]
    RequestBodyTooLarge,
    /// The client paused within its request body for too long: `408`.
    #[error("the request body did not come in time")]
    RequestBodyTimeout,
}

impl From<DialError> for UpstreamError {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Failed(error) => Self::Connect(error),
            DialError::Timeout => Self::ConnectTimeout,
        }
    }
}

impl UpstreamError {
    /// The status code for the client, from `400` to `504`.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Connect(_)
            | Self::Closed(_)
            | Self::Malformed(_)
            | Self::TransferCoding
            | Self::HeadTooLarge
            | Self::InterimResponses
            | Self::UnexpectedUpgrade
            | Self::NotSwitched
            | Self::NoVariables => StatusCode::BAD_GATEWAY,
            Self::ConnectionLimit
            | Self::QueueFull
            | Self::ServerLimit
            | Self::StreamLimit
            | Self::NoServer => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectTimeout | Self::HeadTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::RequestBuffer(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::RequestBody(_) => StatusCode::BAD_REQUEST,
            Self::RequestBodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RequestHeadTooLarge(_) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::LengthRequired => StatusCode::LENGTH_REQUIRED,
            Self::RequestBodyTimeout => StatusCode::REQUEST_TIMEOUT,
        }
    }

    /// The responsible side.
    pub fn side(&self) -> Side {
        match self {
            Self::RequestHeadTooLarge(_)
            | Self::LengthRequired
            | Self::RequestBody(_)
            | Self::RequestBodyTooLarge
            | Self::RequestBodyTimeout => Side::Client,
            Self::ConnectionLimit
            | Self::QueueFull
            | Self::ServerLimit
            | Self::StreamLimit
            | Self::NoServer
            | Self::NoVariables
            | Self::RequestBuffer(_) => Side::Internal,
            _ => Side::Upstream,
        }
    }

    /// A short name for logs and metrics, such as `connect-timeout`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::ConnectTimeout => "connect-timeout",
            Self::ConnectionLimit => "connection-limit",
            Self::QueueFull => "queue-full",
            Self::ServerLimit => "server-limit",
            Self::StreamLimit => "stream-limit",
            Self::NoServer => "no-server",
            Self::Closed(_) => "closed",
            Self::Malformed(_) => "malformed-response",
            Self::TransferCoding => "transfer-coding",
            Self::HeadTooLarge => "response-head-too-large",
            Self::InterimResponses => "interim-responses",
            Self::HeadTimeout => "response-timeout",
            Self::UnexpectedUpgrade => "unexpected-upgrade",
            Self::NotSwitched => "not-switched",
            Self::RequestHeadTooLarge(_) => "request-head-too-large",
            Self::NoVariables => "no-variables",
            Self::LengthRequired => "length-required",
            Self::RequestBody(_) => "request-body",
            Self::RequestBuffer(_) => "request-buffer",
            Self::RequestBodyTooLarge => "request-body-too-large",
            Self::RequestBodyTimeout => "request-body-timeout",
        }
    }

    /// Whether the error counts as a failure of the server for passive health checks (`health.max_failures`): [`Self::side`] is
    /// [`Side::Upstream`], and no other request on the connection is the cause.
    pub(crate) fn blames_server(&self) -> bool {
        let is_of_another = matches!(self, Self::Closed(error) if error.is_of_another());
        self.side() == Side::Upstream && !is_of_another
    }
}
