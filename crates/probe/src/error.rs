//! Why a probe failed, and the exit code that says so.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

/// The steps of a probe, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// The name becomes addresses.
    Resolve,
    /// TCP connects.
    Connect,
    /// The TLS handshake.
    Handshake,
    /// The request is sent, and the head of the answer awaited.
    Request,
    /// The body of the answer comes.
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

/// Why a probe failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The URL or another setting is wrong.
    #[error("{0}")]
    Settings(String),
    /// This machine is out of something.
    #[error("{0}")]
    System(String),
    /// The name has no address.
    #[error("{host} cannot be resolved: {reason}")]
    Unresolved {
        /// The name.
        host: String,
        /// The error of the resolver.
        reason: String,
    },
    /// TCP does not connect.
    #[error("{0}")]
    Unconnected(String),
    /// The handshake failed.
    #[error("{0}")]
    Handshake(String),
    /// The server did not answer the request, or not by the protocol.
    #[error("{0}")]
    Answer(String),
    /// The time was over.
    #[error("timed out after {limit:?} in {step}{detail}")]
    Timeout {
        /// All that the probe was given.
        limit: Duration,
        /// Where it was.
        step: Step,
        /// What had come until then; empty, or it begins with a comma.
        detail: String,
    },
}

impl ProbeError {
    /// The exit code: 2 wrong arguments, 3 no address, 4 no connection, 5 no handshake, 6 no answer, 7 out of time, else 1.
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
