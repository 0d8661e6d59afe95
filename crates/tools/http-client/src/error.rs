//! Reasons why a request has no complete response.

use thiserror::Error;

/// Reason why a request has no complete response.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The connection broke, or the server closed it before the end of the response.
    #[error("{0}")]
    Connection(String),
    /// The server violated the protocol or exceeded a limit.
    #[error("{0}")]
    Protocol(String),
}

impl HttpError {
    pub(crate) fn connection(message: impl Into<String>) -> Self {
        Self::Connection(message.into())
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::Protocol(message.into())
    }
}
