//! The access log: one line per request, per failed handshake and per malformed request, as text or JSON, described in
//! `docs/access-log.md`.
//!
//! A log has several outputs, each with a format, a target and a thread of its own. Workers format lines into buffers of
//! their own; the thread writes them. An output that cannot keep up drops and counts lines; it never blocks a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::outcome::HandshakeOutcome;
use crate::record::{ConnectionEnd, ConnectionRecord, MalformedRecord, RequestRecord};
use crate::throttle::Throttle;

mod clock;
mod envelope;
mod error;
mod event;
mod fields;
mod json;
mod otlp;
mod pairs;
mod receiver;
mod settings;
mod template;
mod text;
mod writer;

use envelope::Envelope;
pub use error::AccessLogError;
use event::Event;
pub use otlp::{Connect, Exported, Exporter};
pub use settings::{
    AccessLogFormat, AccessLogSettings, AccessLogTarget, AppName, ElementId, ExportHeaders, Facility,
    JournalSettings, OtlpSettings, OtlpSignal, Sample, Severity, SyslogServer, SyslogSettings,
};
pub use template::LogTemplate;
use writer::Writer;

/// Interval between lines of malformed requests after [`MALFORMED_BURST`] lines, so that clients cannot displace the lines of
/// requests.
const MALFORMED_INTERVAL: Duration = Duration::from_millis(100);
const MALFORMED_BURST: u32 = 100;

/// Maximum length of the excerpt of a malformed request, in bytes.
const EXCERPT: usize = 200;

/// Timeout for writing the remaining lines when the log is closed.
const LAST_LINES: Duration = Duration::from_secs(2);

/// An open access log, shared by all workers. Its outputs write the remaining lines after it was dropped; only
/// [`close`](Self::close) waits for them.
#[derive(Debug)]
pub struct AccessLog {
    outputs: Box<[Output]>,
    headers: Box<[Box<str>]>,
    malformed: Throttle,
}

/// One output.
#[derive(Debug)]
struct Output {
    name: Box<str>,
    format: AccessLogFormat,
    envelope: Envelope,
    has_milestones: bool,
    sample: Option<Sample>,
    writer: Writer,
}

impl AccessLog {
    /// Opens the targets and starts a thread for each; `connect` creates the exporters of OTLP. `None` without outputs.
    ///
    /// # Errors
    ///
    /// A file that cannot be opened, or trust anchors of an exporter that cannot be read. A receiver that cannot be reached is no error: it may be started later.
    pub fn open(outputs: &[AccessLogSettings], connect: Connect) -> Result<Option<Self>, AccessLogError> {
        let mut headers = Vec::new();
        let outputs = outputs.iter().map(|output| Output::open(output, connect, &mut headers));
        let outputs = outputs.collect::<Result<Box<[_]>, _>>()?;
        let malformed = Throttle::with_burst(MALFORMED_INTERVAL, MALFORMED_BURST);
        Ok((!outputs.is_empty()).then(|| Self { outputs, headers: headers.into(), malformed }))
    }

    /// Writes the lines of a request whose response has ended. Well below 1 us for each output; never waits for a target.
    pub fn log(&self, request: &RequestRecord<'_>) {
        for output in &self.outputs {
            if output.sample.is_none_or(|sample| sample.includes(request)) {
                output.log(Event::Request(request));
            }
        }
    }

    /// Names of the request headers that the lines need, in lower case.
    pub fn headers(&self) -> &[Box<str>] {
        &self.headers
    }

    /// Writes the lines of a connection whose handshake failed.
    pub fn log_handshake(&self, connection: &ConnectionRecord, outcome: HandshakeOutcome) {
        self.log_all(Event::Handshake(connection, outcome));
    }

    /// Writes the lines of a malformed request, or counts it for later lines if there are too many.
    pub fn log_malformed(&self, request: &MalformedRecord<'_>) {
        let Some(suppressed) = self.malformed.pass() else { return };
        let excerpt = &request.excerpt[..request.excerpt.len().min(EXCERPT)];
        self.log_all(Event::Malformed(&MalformedRecord { excerpt, ..*request }, suppressed));
    }

    /// Exports the spans of a connection that has ended, if an output takes spans.
    pub fn log_connection(&self, connection: &ConnectionRecord, end: ConnectionEnd) {
        for output in &self.outputs {
            if let Envelope::Spans(spans) = &output.envelope {
                output.writer.append(|buffer| spans.connection(buffer, connection, end));
            }
        }
    }

    /// Whether a trace that begins here is to be recorded. Without an output for spans, the upstream may decide.
    pub fn samples_trace(&self, trace: u128) -> bool {
        self.outputs.iter().all(|output| match &output.envelope {
            Envelope::Spans(spans) => spans.samples(trace),
            _ => true,
        })
    }

    fn log_all(&self, event: Event<'_>) {
        self.outputs.iter().for_each(|output| output.log(event));
    }

    /// Opens files again before the next line, for log rotation after the old file was renamed, and tries receivers that are
    /// down at once. If a file cannot be opened, the old file stays in use and the reason is logged.
    pub fn reopen(&self) {
        self.outputs.iter().for_each(|output| output.writer.reopen());
    }

    /// Ends the threads after the remaining lines, and waits for them for at most two seconds.
    pub fn close(&self) {
        self.outputs.iter().for_each(|output| output.writer.stop());
        let limit = Instant::now() + LAST_LINES;
        for output in &self.outputs {
            output.writer.wait(limit);
        }
    }

    /// Lines lost so far because a target did not keep up.
    pub fn dropped(&self) -> u64 {
        self.outputs.iter().map(|output| output.writer.dropped().load(Ordering::Relaxed)).sum()
    }

    /// The name of each output and its count of lost lines, to be shown in metrics.
    pub(crate) fn dropped_counters(&self) -> impl Iterator<Item = (&str, Arc<AtomicU64>)> {
        self.outputs.iter().map(|output| (&*output.name, Arc::clone(output.writer.dropped())))
    }
}

impl Output {
    /// Adds the request headers that the lines need to `headers`.
    fn open(
        settings: &AccessLogSettings,
        connect: Connect,
        headers: &mut Vec<Box<str>>,
    ) -> Result<Self, AccessLogError> {
        let name = settings.target.to_string();
        let format = match &settings.format {
            AccessLogFormat::Template(template) => {
                AccessLogFormat::Template(Arc::new(template.sharing(headers)))
            }
            format => format.clone(),
        };
        Ok(Self {
            writer: Writer::start(&settings.target, &name, connect)?,
            name: name.into(),
            format,
            envelope: Envelope::of(&settings.target),
            has_milestones: settings.has_milestones,
            sample: settings.sample,
        })
    }

    fn log(&self, event: Event<'_>) {
        let has_milestones = self.has_milestones && event.begins_connection();
        self.writer.append(|buffer| {
            self.envelope.enclose(buffer, event, has_milestones, |line| match &self.format {
                AccessLogFormat::Text => text::line(line, event, has_milestones),
                AccessLogFormat::Json => json::line(line, event, has_milestones),
                AccessLogFormat::Template(template) => template.line(line, event),
            });
        });
    }
}

#[cfg(test)]
mod tests;
