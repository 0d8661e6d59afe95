//! Errors of settings from which no [`Service`](crate::Service) can be made.

use thiserror::Error;

/// Why no service can be made from the settings.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// A route names an upstream group that does not exist.
    #[error("there is no upstream group {name:?}")]
    UnknownGroup {
        /// The name in the route.
        name: String,
    },
    /// No host is configured.
    #[error("no host is configured: at least one is needed to answer requests")]
    NoHost,
    /// The names of the hosts are wrong or contradict each other.
    #[error(transparent)]
    Names(#[from] brisk_certs::CertError),
}
