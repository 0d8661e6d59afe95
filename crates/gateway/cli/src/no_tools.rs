//! Substitute for `tools.rs` in a program built without the feature `tools`: the same items, which say how to get them.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};

const MISSING: &str = "this brisk was built without its measuring tools: build it with `make build`, or with \
                       `cargo build --release -p brisk-cli --features tools`";

/// Names of the subcommands that measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    /// Generate load (not in this build)
    Bench(Ignored),
    /// Examine an HTTPS connection (not in this build)
    Probe(Ignored),
    /// Analyse a packet capture (not in this build)
    Capture(Ignored),
    /// Measure TLS algorithms (not in this build)
    Speed(Ignored),
}

/// Arguments of a subcommand that is not in this build.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Ignored {
    #[arg(allow_hyphen_values = true, trailing_var_arg = true, hide = true)]
    _arguments: Vec<OsString>,
}

/// Prints an error with the command that builds brisk with its tools. Exit code: 2.
pub(crate) fn run(_: Tool) -> ExitCode {
    eprintln!("{MISSING}");
    ExitCode::from(2)
}

/// Returns an error with the command that builds brisk with its tools.
pub(crate) fn page_report(_: &Path, _: Option<Duration>, _: bool) -> anyhow::Result<String> {
    bail!("{MISSING}")
}
