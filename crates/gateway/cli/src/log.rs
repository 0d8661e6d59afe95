//! The program's log: lines to standard error, written by a separate thread.
//!
//! Peers can cause any number of lines, and a worker must not wait for the reader of standard error. Lines therefore wait in
//! a bounded queue; lines for a full queue are dropped and counted.

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

/// Capacity of the queue, in lines: about a megabyte.
const WAITING_LINES: usize = 4096;

static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

static PROBLEMS: OnceLock<Arc<Problems>> = OnceLock::new();

/// Open log. Dropping a `Log` writes the queued lines, for about a second at most.
#[must_use = "the log ends when this is dropped"]
pub(crate) struct Log {
    _writer: WorkerGuard,
}

/// Opens the log with a level or a filter, parsed by [`effective`]. Panics are logged too.
pub(crate) fn start(filter: &str) -> anyhow::Result<Log> {
    let filter = EnvFilter::try_new(effective(filter)).map_err(|error| {
        anyhow!("--log {filter:?}: {error}: write a level (info) or a filter (info,brisk_tls=debug)")
    })?;
    let (lines, writer) = NonBlockingBuilder::default()
        // Drops lines instead of letting workers wait.
        .lossy(true)
        .buffered_lines_limit(WAITING_LINES)
        .thread_name("log")
        .finish(io::stderr());
    // Fails only on a second call; a process has one log.
    let _ = DROPPED.set(lines.error_counter());
    // A file or the journal would contain the escape sequences of the colors.
    let color = io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(lines).with_ansi(color);
    tracing_subscriber::registry().with(filter).with(lines).with(Notes).init();
    // The standard hook writes to standard error directly, and could block a worker indefinitely.
    panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    Ok(Log { _writer: writer })
}

/// Records warnings and errors from now on in `problems` too, for the dashboard.
pub(crate) fn note_in(problems: &Arc<Problems>) {
    // Fails only on a second call; a process has one gateway.
    let _ = PROBLEMS.set(Arc::clone(problems));
}

/// [`Layer`] that records warnings and errors in [`PROBLEMS`].
struct Notes;

impl<S: Subscriber> Layer<S> for Notes {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let source = match *event.metadata().level() {
            Level::ERROR => Source::Error,
            Level::WARN => Source::Warning,
            _ => return,
        };
        // Before the fields are formatted: other subcommands have no dashboard.
        let Some(problems) = PROBLEMS.get() else { return };
        let mut line = Line::default();
        event.record(&mut line);
        problems.note(source, &line.message, || line.fields);
    }
}

/// Message of an event, and its other fields as `name=value`.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a `String` does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, "{}{name}={value:?}", if self.fields.is_empty() { "" } else { " " }),
        };
    }
}

/// Number of lines dropped so far because the queue of [`WAITING_LINES`] was full.
pub(crate) fn dropped_lines() -> u64 {
    DROPPED.get().map_or(0, |counter| counter.dropped_lines() as u64)
}

/// Expands `written` to a filter of `tracing`. A level without a target applies to brisk's own modules: libraries log errors
/// only, because their warnings are about peers, which can cause any number of them. `debug` and `trace` apply to libraries
/// too. A target with its own level keeps it.
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
