//! Errors of the database of visits.

use std::path::PathBuf;

use thiserror::Error;

use crate::metric::Metric;

/// Reason for which visits cannot be stored or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VisitsError {
    /// The folder cannot be created.
    #[error("cannot make the folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file cannot be used: it is locked, no file, or of another program.
    #[error("cannot use {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
    /// The database was written by a later version of brisk.
    #[error("{} has schema {found}, and this brisk knows schema {known} at most: run the later version, or move the file away", path.display())]
    Later {
        /// The file.
        path: PathBuf,
        /// Schema of the file (`user_version` of `SQLite`).
        found: i64,
        /// Latest schema that this version supports.
        known: i64,
    },
    /// There are no histograms of this [`Metric`].
    #[error("there is no series of {0}: handshake, ttfb, lcp, inp, wait, fcp and cls have one")]
    NoSeries(Metric),
    /// The file of marks cannot be read.
    #[error("marks of deployments cannot be read: {0}")]
    Marks(#[from] std::io::Error),
    /// `SQLite` reported an error.
    #[error("database of visits: {0}")]
    Database(#[from] rusqlite::Error),
}

impl VisitsError {
    /// Whether the file is damaged or not a database, so that it is renamed.
    pub(crate) fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let Self::Database(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
    }

    /// Whether the database has reached its maximum size (`SQLITE_FULL`); a full disk has the same code.
    pub(crate) fn is_full(&self) -> bool {
        let Self::Database(error) = self else { return false };
        error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
    }
}
