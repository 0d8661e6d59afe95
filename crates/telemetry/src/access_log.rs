//! The access log: one line per request and one per failed handshake, as text or JSON, described in
//! `docs/access-log.md`.
//!
//! Workers format lines into buffers of their own; one thread per log writes them. A log that cannot keep up drops
//! and counts lines; it never blocks a worker.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::outcome::HandshakeOutcome;
use crate::record::{ConnectionRecord, RequestRecord};

mod clock;
mod fields;
mod json;
mod text;
mod writer;

use writer::Writer;

/// Format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessLogFormat {
    /// The combined format that log tools know, followed by `key=value` fields. The default.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Target of an access log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AccessLogTarget {
    /// Standard output. The default.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, appended to, made with mode 0640 if it is missing.
    File(PathBuf),
}

/// Settings of an access log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessLogSettings {
    /// Format of lines.
    pub format: AccessLogFormat,
    /// Target of the lines.
    pub target: AccessLogTarget,
}

/// Reason for which an access log could not be opened.
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
}

/// An open access log, shared by all workers. Dropping it writes the remaining lines, for at most two seconds.
#[derive(Debug)]
pub struct AccessLog {
    format: AccessLogFormat,
    writer: Writer,
}

impl AccessLog {
    /// Opens the target and starts the thread that writes.
    pub fn open(settings: &AccessLogSettings) -> Result<Self, AccessLogError> {
        let writer = Writer::start(&settings.target)?;
        Ok(Self { format: settings.format, writer })
    }

    /// Writes the line of a request whose response has ended. Well below 1 us; never waits for the target.
    pub fn log(&self, request: &RequestRecord<'_>) {
        self.writer.append(|line| match self.format {
            AccessLogFormat::Text => text::request(line, request),
            AccessLogFormat::Json => json::request(line, request),
        });
    }

    /// Writes the line of a connection whose handshake failed.
    pub fn log_handshake(&self, connection: &ConnectionRecord, outcome: HandshakeOutcome) {
        self.writer.append(|line| match self.format {
            AccessLogFormat::Text => text::handshake(line, connection, outcome),
            AccessLogFormat::Json => json::handshake(line, connection, outcome),
        });
    }

    /// Opens the file again before the next line, for log rotation after the old file was renamed. If that fails, the
    /// old file stays in use and the reason is logged.
    pub fn reopen(&self) {
        self.writer.reopen();
    }

    /// Lines lost so far because the target did not keep up.
    pub fn dropped(&self) -> u64 {
        self.writer.dropped().load(Ordering::Relaxed)
    }

    /// The count of lost lines itself, to be shown in metrics.
    pub(crate) fn dropped_counter(&self) -> Arc<AtomicU64> {
        Arc::clone(self.writer.dropped())
    }
}

#[cfg(test)]
mod tests;
