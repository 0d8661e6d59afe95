//! [`AccessLog`], an open access log with its outputs.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use brisk_telemetry::{
    ConnectionEnd, ConnectionRecord, HandshakeOutcome, LogOutputs, MalformedRecord, RequestLog,
    RequestRecord, StreamRecord, Throttle,
};

use crate::envelope::Envelope;
use crate::error::AccessLogError;
use crate::event::Event;
use crate::filter::LogFilter;
use crate::otlp::Connect;
use crate::settings::{AccessLogFormat, AccessLogSettings, Sample};
use crate::writer::Writer;
use crate::{json, text};

/// Interval between lines of malformed requests after [`MALFORMED_BURST`] lines, so that clients cannot displace the lines of
/// requests.
const MALFORMED_INTERVAL: Duration = Duration::from_millis(100);
const MALFORMED_BURST: u32 = 100;

/// Maximum length of the excerpt of a malformed request, in bytes.
const EXCERPT: usize = 200;

/// Timeout for writing the remaining lines when the log is closed.
const LAST_LINES: Duration = Duration::from_secs(2);

/// An open access log, shared by all workers. Its outputs write the remaining lines after it was dropped; only
/// [`close`](RequestLog::close) waits for them.
#[derive(Debug)]
pub struct AccessLog {
    outputs: Box<[Output]>,
    headers: Box<[Box<str>]>,
    malformed: Throttle,
}

/// One output: format, target and [`Writer`].
#[derive(Debug)]
struct Output {
    name: Box<str>,
    format: AccessLogFormat,
    envelope: Envelope,
    has_milestones: bool,
    only_listed: bool,
    sample: Option<Sample>,
    filter: Option<LogFilter>,
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

    fn log_all(&self, event: Event<'_>) {
        self.outputs.iter().filter(|output| !output.only_listed).for_each(|output| output.log(event));
    }

    /// The name of each output and its count of lost lines, for [`LostLines`](crate::LostLines).
    pub(crate) fn dropped_counters(&self) -> impl Iterator<Item = (&str, Arc<AtomicU64>)> {
        self.outputs.iter().map(|output| (&*output.name, Arc::clone(output.writer.dropped())))
    }
}

impl RequestLog for AccessLog {
    fn log(&self, request: &RequestRecord<'_>) {
        for (index, output) in self.outputs.iter().enumerate() {
            if output.is_for(index, request.outputs)
                && output.sample.is_none_or(|sample| sample.includes(request))
                && output.filter.as_ref().is_none_or(|filter| filter.includes(request))
            {
                output.log(Event::Request(request));
            }
        }
    }

    fn headers(&self) -> &[Box<str>] {
        &self.headers
    }

    fn log_handshake(&self, connection: &ConnectionRecord, outcome: HandshakeOutcome) {
        self.log_all(Event::Handshake(connection, outcome));
    }

    fn log_stream(&self, stream: &StreamRecord<'_>) {
        // Without a share: a connection is no request, and may have lasted for days.
        self.log_all(Event::Stream(stream));
    }

    fn log_malformed(&self, request: &MalformedRecord<'_>) {
        let Some(suppressed) = self.malformed.pass() else { return };
        let excerpt = &request.excerpt[..request.excerpt.len().min(EXCERPT)];
        self.log_all(Event::Malformed(&MalformedRecord { excerpt, ..*request }, suppressed));
    }

    fn log_connection(&self, connection: &ConnectionRecord, end: ConnectionEnd) {
        for output in &self.outputs {
            if let Envelope::Spans(spans) = &output.envelope {
                output.writer.append(|buffer| spans.connection(buffer, connection, end));
            }
        }
    }

    fn samples_trace(&self, trace: u128) -> bool {
        // A trace has one flag for all exporters. They compare the same random number, so the smallest
        // share decides.
        self.outputs.iter().all(|output| match &output.envelope {
            Envelope::Spans(spans) => spans.samples(trace),
            _ => true,
        })
    }

    fn reopen(&self) {
        self.outputs.iter().for_each(|output| output.writer.reopen());
    }

    fn close(&self) {
        // All are stopped before the first wait, so that their last writes overlap within one limit.
        self.outputs.iter().for_each(|output| output.writer.stop());
        let limit = Instant::now() + LAST_LINES;
        for output in &self.outputs {
            output.writer.wait(limit);
        }
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
            only_listed: settings.only_listed,
            sample: settings.sample,
            filter: settings.filter.as_ref().map(|filter| filter.sharing(headers)),
        })
    }

    /// Whether the output with this index gets the line of a request for `outputs`. Exporters, which no list names, get every
    /// request that has a line.
    fn is_for(&self, index: usize, outputs: LogOutputs) -> bool {
        match outputs {
            LogOutputs::All => !self.only_listed,
            LogOutputs::NONE => false,
            // `AccessLogSettings::MOST` keeps the index below the number of bits.
            LogOutputs::Listed(bits) => bits >> index & 1 == 1 || self.envelope.is_export(),
        }
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
pub(crate) mod tests;
