//! Errors at the start of a dashboard.

use std::io;
use std::net::SocketAddr;

use brisk_tls::TlsError;
use thiserror::Error;

/// Reasons for which a [`Dashboard`](crate::Dashboard) cannot start or apply settings.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DashboardError {
    /// The address cannot be bound.
    #[error("the dashboard cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The certificate or the client authorities cannot be used.
    #[error("the dashboard's TLS: {0}")]
    Tls(#[from] TlsError),
    /// The system provides no thread or no random numbers.
    #[error("the dashboard cannot start: {0}")]
    Start(String),
}
