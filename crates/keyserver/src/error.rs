//! Why a key server cannot start, or cannot take over new settings.

use brisk_server::ServerError;
use brisk_tls::TlsError;
use thiserror::Error;

/// Why a key server cannot start, or cannot take over new settings.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyServerError {
    /// The server cannot start or go on.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
