//! Subcommands that measure: `brisk bench`, `brisk capture`, `brisk probe`, `brisk speed` and the analysis of a recorded page.
//! `no_tools.rs` has the same items for a program built without the feature `tools`.

mod bench;
mod capture;
mod probe;
mod result_file;
mod speed;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;

/// The program and its version in results.
const PROGRAM: &str = concat!("brisk ", env!("CARGO_PKG_VERSION"));

/// Subcommands that measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    /// Generate load on a server and measure latency and throughput
    Bench(Box<bench::Bench>),
    /// Examine an HTTPS connection: duration of each step, and improvements
    Probe(Box<probe::Probe>),
    /// Analyse a packet capture: causes of the time of each connection
    Capture(Box<capture::Capture>),
    /// Measure TLS algorithms on one core and forecast handshakes per second
    Speed(speed::Speed),
}

/// Runs a tool. Its exit codes differ from those of the other subcommands.
pub(crate) fn run(tool: Tool) -> ExitCode {
    match tool {
        Tool::Bench(arguments) => bench::run(*arguments),
        Tool::Probe(arguments) => probe::run(&arguments),
        Tool::Capture(arguments) => capture::run(&arguments),
        Tool::Speed(arguments) => speed::run(arguments),
    }
}

/// Report about a recorded page (HAR): its origins, and the savings of `consolidate` for each. `rtt` replaces the round trip
/// time of the recording.
pub(crate) fn page_report(recording: &Path, rtt: Option<Duration>, as_json: bool) -> anyhow::Result<String> {
    let findings = brisk_har::analyse(recording, rtt)?;
    Ok(if as_json { brisk_report::json::document(&findings) } else { findings.text() })
}
