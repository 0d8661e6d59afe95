//! Why an audit ended without a result.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use brisk_tls_client::ClientError;
use brisk_wire::server_flight::FlightError;

/// Why an audit ended without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The name has no address.
    #[error("{host} cannot be resolved: {error}")]
    Resolve {
        /// The name.
        host: String,
        /// Why.
        error: io::Error,
    },
    /// No connection.
    #[error("cannot connect to {address}: {error}")]
    Connect {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// No version of TLS is spoken.
    #[error("{address} speaks no version of TLS: {reason}")]
    NoTls {
        /// The address.
        address: SocketAddr,
        /// What it did instead.
        reason: String,
    },
    /// The server sent what it may not.
    #[error("the server breaks the protocol at {step}: {error}")]
    Flight {
        /// What was asked.
        step: &'static str,
        /// What is wrong.
        error: FlightError,
    },
    /// The time is over.
    #[error("the audit did not end within {limit:?}, and was at {step}; give it more with --timeout")]
    Time {
        /// What was asked.
        step: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// All connections are used.
    #[error("the audit has used its {limit} connections, and was at {step}")]
    Connections {
        /// What was asked.
        step: &'static str,
        /// The limit.
        limit: u32,
    },
    /// The authorities that the caller named cannot be read.
    #[error(transparent)]
    Authorities(ClientError),
    /// The TLS client cannot be made as it should.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No runtime, no random numbers.
    #[error("{0}")]
    System(String),
}
