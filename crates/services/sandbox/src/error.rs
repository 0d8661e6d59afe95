//! [`SandboxError`], the reason for which a process keeps its user.

use std::io;

use thiserror::Error;

/// Reason for which [`drop_privileges`](crate::drop_privileges) failed: the process must not serve then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The table of users cannot be read.
    #[error("cannot look up the user \"{name}\": {source}")]
    LookUp {
        /// The name of the user.
        name: String,
        /// Cause.
        source: nix::Error,
    },
    /// There is no such user.
    #[error("there is no user \"{name}\": create it, as `useradd --system {name}`, or write another one")]
    NoUser {
        /// The name of the user.
        name: String,
    },
    /// The system refuses to change the user.
    #[error("cannot become the user \"{name}\": {source}")]
    Become {
        /// The name of the user.
        name: String,
        /// Cause.
        source: nix::Error,
    },
    /// The system refuses to keep the capability to listen.
    #[error("cannot keep the capability to bind ports below 1024: {0}")]
    Capabilities(io::Error),
}
