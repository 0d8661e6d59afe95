//! The program's own log: lines to standard error, written by a thread of their own.
//!
//! Peers can cause any number of lines, and no worker waits for the reader of standard error: lines wait in a bounded
//! queue, and when it is full they are dropped and counted.

use std::fmt::{self, Write};
use std::io::{self, IsTerminal};
use std::panic;
use std::sync::{Arc, OnceLock};

use anyhow::anyhow;
use brisk_telemetry::{Problems, Source};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Lines that may wait to be written. About a megabyte.
const WAITING_LINES: usize = 4096;

static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

static PROBLEMS: OnceLock<Arc<Problems>> = OnceLock::new();

/// The log while it is open. Dropping it writes what waits, for at most about a second.
#[must_use = "the log ends when this is dropped"]
pub(crate) struct Log {
    _writer: WorkerGuard,
}

/// Opens the log with a level or a filter, as [`effective`] reads it. Panics go there too.
pub(crate) fn start(filter: &str) -> anyhow::Result<Log> {
    let filter = EnvFilter::try_new(effective(filter)).map_err(|error| {
        anyhow!("--log {filter:?}: {error}: write a level (info) or a filter (info,brisk_tls=debug)")
    })?;
    let (lines, writer) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(WAITING_LINES)
        .thread_name("log")
        .finish(io::stderr());
    // Set once: there is one log in a process.
    let _ = DROPPED.set(lines.error_counter());
    let color = io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(lines).with_ansi(color);
    tracing_subscriber::registry().with(filter).with(lines).with(Notes).init();
    // The standard hook writes to standard error itself, which may block a worker for good.
    panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    Ok(Log { _writer: writer })
}

/// From here on warnings and errors are counted among these problems too.
pub(crate) fn note_in(problems: &Arc<Problems>) {
    // Set once: there is one gateway in a process.
    let _ = PROBLEMS.set(Arc::clone(problems));
}

/// Notes warnings and errors for the dashboard.
struct Notes;

impl<S: Subscriber> Layer<S> for Notes {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let source = match *event.metadata().level() {
            Level::ERROR => Source::Error,
            Level::WARN => Source::Warning,
            _ => return,
        };
        let Some(problems) = PROBLEMS.get() else { return };
        let mut line = Line::default();
        event.record(&mut line);
        problems.note(source, &line.message, || line.fields);
    }
}

/// What a line of the log says, and its other fields.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A string takes everything.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, "{}{name}={value:?}", if self.fields.is_empty() { "" } else { " " }),
        };
    }
}

/// The number of lines dropped so far because standard error was not read fast enough.
pub(crate) fn dropped_lines() -> u64 {
    DROPPED.get().map_or(0, |counter| counter.dropped_lines() as u64)
}

/// The filter that `written` stands for. A level without a target is that of brisk's own modules; libraries report
/// errors only, since their warnings are about what peers send, and peers can send a great deal of it. From `debug` on
/// they have the same level. A target with a level of its own keeps it.
fn effective(written: &str) -> String {
    let directive = |directive: &str| match directive.trim().to_ascii_lowercase().as_str() {
        level @ ("warn" | "info") => format!("error,brisk={level}"),
        _ => directive.to_owned(),
    };
    written.split(',').map(directive).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_report_errors_only_unless_debug_or_their_name_is_asked_for() {
        assert_eq!(effective("info"), "error,brisk=info");
        assert_eq!(effective("WARN"), "error,brisk=warn");
        assert_eq!(effective("debug"), "debug");
        assert_eq!(effective("error"), "error");
        assert_eq!(effective("info,brisk_tls=debug,h2=warn"), "error,brisk=info,brisk_tls=debug,h2=warn");
    }

    #[test]
    fn every_effective_filter_can_be_read() {
        for written in ["info", "warn", "off", "trace", "info,brisk_tls=debug", "brisk_net[accept]=trace"] {
            EnvFilter::try_new(effective(written)).expect(written);
        }
    }
}
