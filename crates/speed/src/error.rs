//! Why nothing could be measured.

use std::io;

use aws_lc_rs::error::{KeyRejected, Unspecified};
use brisk_certs::CertError;
use brisk_keys::KeyError;
use brisk_tls::TlsError;
use brisk_tls_client::ClientError;
use thiserror::Error;

/// Why there is no result. One line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SpeedError {
    /// The core does not exist, or this process may not use it.
    #[error("core {core} is none of those that this process may run on: {usable}")]
    Core {
        /// The core that was asked for.
        core: usize,
        /// The numbers of those there are.
        usable: String,
    },
    /// The cryptographic library does not say why.
    #[error("the cryptographic library refuses to work")]
    Library,
    /// A signature was not made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// RSA is not to be performed on a GPU.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] brisk_keys::CudaError),
    /// No certificates for the handshakes.
    #[error(transparent)]
    Certificate(#[from] CertError),
    /// The server of the handshakes cannot be set up.
    #[error(transparent)]
    Server(#[from] TlsError),
    /// A handshake failed.
    #[error("a handshake failed: {0}")]
    Handshake(#[from] ClientError),
    /// A handshake was not what it was to be.
    #[error("a handshake that was to be {wanted} was {found}")]
    Unlike {
        /// How its session was to come about.
        wanted: &'static str,
        /// How it did.
        found: &'static str,
    },
    /// The system has no threads, ports or files left.
    #[error("cannot measure: {0}")]
    System(#[from] io::Error),
}

impl SpeedError {
    /// Whether what was asked for is wrong, rather than what came of it.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Core { .. })
    }
}

impl From<Unspecified> for SpeedError {
    fn from(_: Unspecified) -> Self {
        Self::Library
    }
}

impl From<KeyRejected> for SpeedError {
    fn from(_: KeyRejected) -> Self {
        Self::Library
    }
}
