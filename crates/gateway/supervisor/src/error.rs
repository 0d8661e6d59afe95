//! [`SupervisorError`] and [`UpgradeError`], the reasons for which a supervisor or an upgrade cannot start.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Reason for which a supervisor cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// The system refuses a socket or a runtime.
    #[error("cannot supervise: {0}")]
    System(#[source] io::Error),
    /// Signals cannot be received.
    #[error("cannot receive signals: {0}")]
    Signals(#[source] io::Error),
    /// The pid file cannot be written.
    #[error("cannot write the pid file {path}: {source}", path = path.display())]
    PidFile {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The first generation cannot be started.
    #[error("cannot start {program}: {source}", program = program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Reason for which `brisk upgrade` has not replaced the gateway.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UpgradeError {
    /// The pid file cannot be read.
    #[error("{path}: {source}; name the file of `brisk supervise --pid-file`, or write --pid", path = path.display())]
    PidFile {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// No supervisor has this process id, or it refuses the user of the caller.
    #[error(
        "process {id} takes no orders: {source}; write the id of `brisk supervise`, and run the command as its user or as \
         root, in its network namespace"
    )]
    NoSupervisor {
        /// The process id.
        id: i32,
        /// The error of the system.
        source: io::Error,
    },
    /// The connection broke before the outcome was known.
    #[error("the supervisor ended before the upgrade: {0}")]
    Ended(#[source] io::Error),
    /// The supervisor has refused the upgrade, or the new program did not become ready; the old one serves.
    #[error("not upgraded: {0}")]
    Refused(String),
}
