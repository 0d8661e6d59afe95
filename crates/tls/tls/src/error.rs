//! Errors of TLS settings; errors of a single connection are [`Refusal`](crate::Refusal)s.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Reasons why TLS cannot be set up as configured, found at the start and at each reload.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// No host is configured.
    #[error("no host is configured: at least one is needed to answer TLS clients")]
    NoHost,
    /// A host has no certificate.
    #[error("host {host} has no certificate")]
    NoCertificate {
        /// First name of the host.
        host: String,
    },
    /// Two hosts have the same name, or a name is malformed.
    #[error("host names: {0}")]
    Names(#[from] brisk_certs::CertError),
    /// [`ClientCertificates::roots`](crate::ClientCertificates::roots) or the revocation lists of a host cannot be used.
    #[error("client certificate authorities of host {host}: {reason}")]
    ClientRoots {
        /// First name of the host.
        host: String,
        /// The fault.
        reason: String,
    },
    /// The authorities of a [`Connector`](crate::connector::Connector) cannot be loaded.
    #[error(transparent)]
    Roots(#[from] brisk_tls_base::RootsError),
    /// The key log is enabled, but `SSLKEYLOGFILE` is not set.
    #[error("the key log is on, but the environment variable SSLKEYLOGFILE does not name a file")]
    KeyLogUnnamed,
    /// The key log cannot be opened.
    #[error("cannot open the key log {path}: {source}")]
    KeyLog {
        /// Path in `SSLKEYLOGFILE`.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// An [`Identity`](crate::connector::Identity), or the authorities beside it, cannot be used.
    #[error("{0}")]
    Connector(String),
    /// [`rustls`] refuses the configuration.
    #[error("TLS configuration: {0}")]
    Rustls(#[from] rustls::Error),
}
