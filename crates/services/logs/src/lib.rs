//! Logs of the gateway: one line per request, per failed handshake and per malformed request, as text, JSON or a form of the
//! operator, described in `docs/access-log.md`; and log records and spans for OpenTelemetry.
//!
//! A log has several outputs, each with a format, a target and a thread of its own. Workers format lines into buffers of
//! their own; the thread writes them. An output that cannot keep up drops and counts lines; it never blocks a worker.
//!
//! The request path knows [`RequestLog`](brisk_telemetry::RequestLog) only, which [`AccessLog`] implements.

mod access_log;
mod clock;
mod envelope;
mod error;
mod event;
mod fields;
mod filter;
mod json;
mod lost_lines;
mod otlp;
mod pairs;
mod receiver;
mod settings;
mod template;
mod text;
mod writer;

pub use access_log::AccessLog;
pub use error::AccessLogError;
pub use filter::LogFilter;
pub use lost_lines::LostLines;
pub use otlp::{Connect, Exported, Exporter, connect_exporter};
pub use settings::{
    AccessLogFormat, AccessLogSettings, AccessLogTarget, AppName, ElementId, ExportHeaders, Facility,
    JournalSettings, OtlpSettings, OtlpSignal, Sample, Severity, SyslogServer, SyslogSettings,
};
pub use template::LogTemplate;
