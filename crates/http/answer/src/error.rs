//! Errors in settings from which no [`Service`](crate::Service) can be built.

use thiserror::Error;

/// Reason for rejecting [`ServiceSettings`](crate::settings::ServiceSettings).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// A route names an upstream group that does not exist.
    #[error("there is no upstream group {name:?}")]
    UnknownGroup {
        /// Name of the group in the route.
        name: String,
    },
    /// No host is configured.
    #[error("no host is configured: at least one is needed to answer requests")]
    NoHost,
    /// A host name is invalid, or two hosts contradict each other.
    #[error(transparent)]
    Names(#[from] brisk_certs::CertError),
}
