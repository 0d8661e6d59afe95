//! Errors at the start or reload of a key server.

use brisk_server::ServerError;
use brisk_tls::TlsError;
use thiserror::Error;

/// Reasons for which a key server cannot start or apply settings.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyServerError {
    /// The server cannot start or continue.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The TLS settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
