//! The access log: one line per request, per failed handshake and per malformed request, as text or JSON, described in
//! `docs/access-log.md`.
//!
//! Workers format lines into buffers of their own; one thread per log writes them. A log that cannot keep up drops
//! and counts lines; it never blocks a worker.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::outcome::HandshakeOutcome;
use crate::record::{ConnectionRecord, MalformedRecord, RequestRecord};
use crate::throttle::Throttle;

mod clock;
mod fields;
mod json;
mod template;
mod text;
mod writer;

pub use template::LogTemplate;
use writer::Writer;

/// Interval between lines of malformed requests after [`MALFORMED_BURST`] lines, so that clients cannot displace the lines of
/// requests.
const MALFORMED_INTERVAL: Duration = Duration::from_millis(100);
const MALFORMED_BURST: u32 = 100;

/// Maximum length of the excerpt of a malformed request, in bytes.
const EXCERPT: usize = 200;

/// Format of lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AccessLogFormat {
    /// The combined format that log tools know, followed by `key=value` fields. The default.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
    /// A form of the operator.
    Template(Arc<LogTemplate>),
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
    /// Share of the requests that have a line; of those that fail or get a status of 500 and above, all. Default: `None`, all
    /// requests.
    pub sample: Option<Sample>,
    /// Lines of first requests and of failed handshakes contain the start and the milestones of their connection. Default:
    /// `false`.
    pub has_milestones: bool,
}

/// A share of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample(u64);

impl Sample {
    /// A share; `None` unless it is above 0 and at most 1.
    pub fn new(share: f64) -> Option<Self> {
        // The conversion saturates.
        (share > 0.0 && share <= 1.0).then_some(Self((share * u64::MAX as f64) as u64))
    }

    /// Whether the request has a line. Its ID is random.
    fn includes(self, request: &RequestRecord<'_>) -> bool {
        request.id.0 <= self.0 || request.error.is_some() || request.status >= 500
    }
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
    has_milestones: bool,
    sample: Option<Sample>,
    malformed: Throttle,
    writer: Writer,
}

impl AccessLog {
    /// Opens the target and starts the thread that writes.
    pub fn open(settings: &AccessLogSettings) -> Result<Self, AccessLogError> {
        let writer = Writer::start(&settings.target)?;
        Ok(Self {
            format: settings.format.clone(),
            sample: settings.sample,
            has_milestones: settings.has_milestones,
            malformed: Throttle::with_burst(MALFORMED_INTERVAL, MALFORMED_BURST),
            writer,
        })
    }

    /// Writes the line of a request whose response has ended. Well below 1 us; never waits for the target.
    pub fn log(&self, request: &RequestRecord<'_>) {
        if self.sample.is_some_and(|sample| !sample.includes(request)) {
            return;
        }
        let has_milestones = self.has_milestones && request.connection.requests == 1;
        self.writer.append(|line| match &self.format {
            AccessLogFormat::Text => text::request(line, request, has_milestones),
            AccessLogFormat::Json => json::request(line, request, has_milestones),
            AccessLogFormat::Template(template) => template.request(line, request),
        });
    }

    /// Names of the request headers that a line needs, in lower case.
    pub fn headers(&self) -> &[Box<str>] {
        match &self.format {
            AccessLogFormat::Text | AccessLogFormat::Json => &[],
            AccessLogFormat::Template(template) => template.headers(),
        }
    }

    /// Writes the line of a connection whose handshake failed.
    pub fn log_handshake(&self, connection: &ConnectionRecord, outcome: HandshakeOutcome) {
        let has_milestones = self.has_milestones;
        self.writer.append(|line| match &self.format {
            AccessLogFormat::Text => text::handshake(line, connection, outcome, has_milestones),
            AccessLogFormat::Json => json::handshake(line, connection, outcome, has_milestones),
            AccessLogFormat::Template(template) => template.handshake(line, connection, outcome),
        });
    }

    /// Writes the line of a malformed request, or counts it for a later line if there are too many.
    pub fn log_malformed(&self, request: &MalformedRecord<'_>) {
        let Some(suppressed) = self.malformed.pass() else { return };
        let excerpt = &request.excerpt[..request.excerpt.len().min(EXCERPT)];
        let request = MalformedRecord { excerpt, ..*request };
        self.writer.append(|line| match &self.format {
            AccessLogFormat::Text => text::malformed(line, &request, suppressed),
            AccessLogFormat::Json => json::malformed(line, &request, suppressed),
            AccessLogFormat::Template(template) => template.malformed(line, &request),
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
