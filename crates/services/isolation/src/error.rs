//! [`IsolationError`], the reason for which keys cannot be isolated.

use std::io;

use brisk_sandbox::SandboxError;
use rustix::io::Errno;
use thiserror::Error;

/// Reason for which keys cannot be isolated.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IsolationError {
    /// The system refuses a process, a socket, a thread or a privilege.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A debugger is attached to the key process.
    #[error("the key process is traced by the process {tracer}, which would see the keys")]
    Traced {
        /// Process id of the debugger.
        tracer: String,
    },
    /// The parent ended before this process had started.
    #[error("the process that started this one is gone")]
    Orphan,
    /// The configuration names a user that does not exist, or the table of users cannot be read.
    #[error(transparent)]
    NoUser(#[from] SandboxError),
    /// The system refuses to change the user.
    #[error("the key process cannot become the user {user}: {source}")]
    User {
        /// Id of the user.
        user: u32,
        /// Cause.
        source: nix::Error,
    },
    /// The program cannot run as a key process.
    #[error("{0}")]
    Program(String),
}

impl From<Errno> for IsolationError {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}
