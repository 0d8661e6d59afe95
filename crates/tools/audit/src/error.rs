//! Failures of an audit.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use brisk_tls_client::ClientError;
use brisk_wire::server_flight::FlightError;

/// Reason why [`run`](crate::run) has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The name has no address.
    #[error("{host} cannot be resolved: {error}")]
    Resolve {
        /// Host name.
        host: String,
        /// Error of the resolver.
        error: io::Error,
    },
    /// The server does not accept connections.
    #[error("cannot connect to {address}: {error}")]
    Connect {
        /// Address.
        address: SocketAddr,
        /// Error of the connection.
        error: io::Error,
    },
    /// The server supports no version of TLS.
    #[error("{address} speaks no version of TLS: {reason}")]
    NoTls {
        /// Address.
        address: SocketAddr,
        /// Reaction of the server.
        reason: String,
    },
    /// The server violated the protocol.
    #[error("the server breaks the protocol at {step}: {error}")]
    Flight {
        /// Current step.
        step: &'static str,
        /// Violation.
        error: FlightError,
    },
    /// Timeout.
    #[error("the audit did not end within {limit:?}, and was at {step}; give it more with --timeout")]
    Time {
        /// Current step.
        step: &'static str,
        /// Limit.
        limit: Duration,
    },
    /// [`Limits::connections`](crate::Limits::connections) was reached.
    #[error("the audit has used its {limit} connections, and was at {step}")]
    Connections {
        /// Current step.
        step: &'static str,
        /// Limit.
        limit: u32,
    },
    /// A file of authorities cannot be read.
    #[error(transparent)]
    Authorities(ClientError),
    /// The TLS client cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The system lacks a resource: runtime or random numbers.
    #[error("{0}")]
    System(String),
}
