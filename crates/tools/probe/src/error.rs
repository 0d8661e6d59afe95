//! Failures of a probe and their exit codes.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

/// Steps of a probe in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Name resolution.
    Resolve,
    /// TCP handshake.
    Connect,
    /// TLS handshake.
    Handshake,
    /// Sending the request and waiting for the head of the response.
    Request,
    /// Receiving the body.
    Body,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Resolve => "resolving the name",
            Self::Connect => "connecting",
            Self::Handshake => "the TLS handshake",
            Self::Request => "waiting for the head of the answer",
            Self::Body => "receiving the body",
        })
    }
}

/// Failure of a probe.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The URL or another setting is invalid.
    #[error("{0}")]
    Settings(String),
    /// This machine lacks a resource.
    #[error("{0}")]
    System(String),
    /// The name has no address.
    #[error("{host} cannot be resolved: {reason}")]
    Unresolved {
        /// Name of the host.
        host: String,
        /// Error of the resolver.
        reason: String,
    },
    /// TCP did not connect.
    #[error("{0}")]
    Unconnected(String),
    /// The handshake failed.
    #[error("{0}")]
    Handshake(String),
    /// The server did not respond to the request, or violated HTTP.
    #[error("{0}")]
    Answer(String),
    /// Timeout.
    #[error("timed out after {limit:?} in {step}{detail}")]
    Timeout {
        /// Timeout of the connection.
        limit: Duration,
        /// Step in which the time was over.
        step: Step,
        /// Progress until then; empty, or begins with a comma or a space.
        detail: String,
    },
}

impl ProbeError {
    /// Exit code: `2` for wrong arguments, `3` no address, `4` no connection, `5` no handshake, `6` no response, `7` timeout,
    /// otherwise `1`.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::System(_) => 1,
            Self::Settings(_) => 2,
            Self::Unresolved { .. } => 3,
            Self::Unconnected(_) => 4,
            Self::Handshake(_) => 5,
            Self::Answer(_) => 6,
            Self::Timeout { .. } => 7,
        }
    }
}
