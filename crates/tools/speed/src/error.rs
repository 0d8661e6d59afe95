//! Errors of a run.

use std::io;

use aws_lc_rs::error::{KeyRejected, Unspecified};
use brisk_certs::CertError;
use brisk_keys::KeyError;
use brisk_tls::TlsError;
use brisk_tls_client::ClientError;
use thiserror::Error;

/// Why [`run`](crate::run) failed. The message has one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SpeedError {
    /// [`Settings::core`](crate::Settings::core) does not exist, or is not in the affinity mask of the calling thread.
    #[error("core {core} is none of those that this process may run on: {usable}")]
    Core {
        /// The requested core.
        core: usize,
        /// The usable cores.
        usable: String,
    },
    /// The cryptographic library failed without a reason ([`Unspecified`]).
    #[error("the cryptographic library refuses to work")]
    Library,
    /// A signature failed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Certificates for the handshakes could not be created.
    #[error(transparent)]
    Certificate(#[from] CertError),
    /// The [`Acceptor`](brisk_tls::Acceptor) of the handshakes cannot be set up.
    #[error(transparent)]
    Server(#[from] TlsError),
    /// A handshake failed.
    #[error("a handshake failed: {0}")]
    Handshake(#[from] ClientError),
    /// A handshake was not of the expected kind: full where `wanted` is resumed, or the reverse.
    #[error("a handshake that was to be {wanted} was {found}")]
    Unlike {
        /// The expected kind.
        wanted: &'static str,
        /// The actual kind.
        found: &'static str,
    },
    /// The system has no threads, ports or files left.
    #[error("cannot measure: {0}")]
    System(#[from] io::Error),
}

impl SpeedError {
    /// Whether the [`Settings`](crate::Settings) are wrong, as opposed to the system: only [`Core`](Self::Core).
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
