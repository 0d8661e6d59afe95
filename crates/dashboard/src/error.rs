//! Why a dashboard cannot start.

use std::io;
use std::net::SocketAddr;

use brisk_tls::TlsError;
use thiserror::Error;

/// Why a dashboard cannot start or take new settings over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DashboardError {
    /// Its address cannot be bound.
    #[error("the dashboard cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// Its certificate or the authorities of its clients cannot be used.
    #[error("the dashboard's TLS: {0}")]
    Tls(#[from] TlsError),
    /// The system refuses a thread or random numbers.
    #[error("the dashboard cannot start: {0}")]
    Start(String),
}
