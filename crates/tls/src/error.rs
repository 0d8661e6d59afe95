//! Errors of setting TLS up; what goes wrong with one connection is a [`Refusal`](crate::Refusal).

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why TLS cannot be set up as configured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// No host is configured.
    #[error("no host is configured: at least one is needed to answer TLS clients")]
    NoHost,
    /// A host has no certificate.
    #[error("host {host} has no certificate")]
    NoCertificate {
        /// The first name of the host.
        host: String,
    },
    /// Two hosts claim one name, or a name is malformed.
    #[error("host names: {0}")]
    Names(#[from] brisk_certs::CertError),
    /// The client authorities of a host cannot be used.
    #[error("client certificate authorities of host {host}: {reason}")]
    ClientRoots {
        /// The first name of the host.
        host: String,
        /// The reason.
        reason: String,
    },
    /// The authorities that upstreams are verified with cannot be loaded.
    #[error(transparent)]
    Roots(#[from] brisk_tls_base::RootsError),
    /// The key log was asked for, but `SSLKEYLOGFILE` is not set.
    #[error("the key log is on, but the environment variable SSLKEYLOGFILE does not name a file")]
    KeyLogUnnamed,
    /// The key log cannot be opened.
    #[error("cannot open the key log {path}: {source}")]
    KeyLog {
        /// The file that `SSLKEYLOGFILE` names.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Certificates that upstreams are verified with cannot be used.
    #[error("{0}")]
    Connector(String),
    /// rustls refuses the configuration.
    #[error("TLS configuration: {0}")]
    Rustls(#[from] rustls::Error),
}
