//! Errors of HAR files.

use std::io;
use std::path::PathBuf;

/// The reason why a recording cannot be analysed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HarError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {error}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        #[source]
        error: io::Error,
    },
    /// The path is that of a folder.
    #[error("{} is a folder: name the HAR file in it", .0.display())]
    Folder(PathBuf),
    /// The file exceeds 256 MiB, far above the size of recordings without bodies.
    #[error("{} is larger than 256 MiB: save it without the content of answers", .0.display())]
    TooLarge(PathBuf),
    /// The file is not JSON, or not of the form of HAR 1.2.
    #[error("{} is no HAR file ({error}): save one in the network panel of a browser's developer tools", .file.display())]
    NotHar {
        /// The file.
        file: PathBuf,
        /// The error of the JSON parser.
        #[source]
        error: serde_json::Error,
    },
    /// The recording lacks data, such as `startedDateTime`, or has more requests than one page makes.
    #[error("{}: {reason}", .file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The missing or wrong data.
        reason: String,
    },
}
