//! Errors of TLS settings; errors of a single connection are [`Refusal`](crate::Refusal)s.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Reasons why TLS cannot be set up as configured.
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
    /// The client authorities of a host cannot be used.
    #[error("client certificate authorities of host {host}: {reason}")]
    ClientRoots {
        /// First name of the host.
        host: String,
        /// The fault.
        reason: String,
    },
    /// The authorities for verifying upstreams cannot be loaded.
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
    /// Certificates of a connector or of an internal listener cannot be used.
    #[error("{0}")]
    Connector(String),
    /// rustls refuses the configuration.
    #[error("TLS configuration: {0}")]
    Rustls(#[from] rustls::Error),
}
