//! Reasons for which an access log could not be opened.

use std::io;
use std::path::PathBuf;

/// Reason for which [`AccessLog::open`](crate::AccessLog::open) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessLogError {
    /// The file could not be opened for appending.
    #[error("cannot open the access log {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The thread that writes could not be started.
    #[error("cannot start the thread that writes the access log: {0}")]
    Thread(#[source] io::Error),
    /// The [`Exporter`](crate::Exporter) could not be prepared.
    #[error("cannot export to {output}: {reason}")]
    Exporter {
        /// The output.
        output: String,
        /// The reason.
        reason: String,
    },
}
