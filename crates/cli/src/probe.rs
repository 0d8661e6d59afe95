//! `brisk probe`: looks at one HTTPS connection.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use brisk_probe::terminal::{self, Paint};
use brisk_probe::{ProbeError, Report};
use brisk_report::json;
use brisk_report::terminal::StatusLine;

use crate::args::Probe;

/// Exit code where everything was measured, and clients would not trust the certificate.
const NOT_TRUSTED: u8 = 9;

/// Exit code: 0 if an answer came, otherwise that of [`ProbeError::exit_code`], or [`NOT_TRUSTED`].
pub(crate) fn run(arguments: &Probe) -> ExitCode {
    probe(arguments).unwrap_or_else(|error| {
        eprintln!("{error:#}");
        error
            .downcast_ref::<ProbeError>()
            .map_or(ExitCode::FAILURE, |error| ExitCode::from(error.exit_code()))
    })
}

fn probe(arguments: &Probe) -> anyhow::Result<ExitCode> {
    let settings = arguments.settings();
    let mut status = StatusLine::on_stderr();
    status.show(&format!("probing {}", settings.url));
    let report = settings.run();
    status.clear();
    let report = report?;
    if let Some(file) = &arguments.keylog {
        append(file, report.key_log()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let text =
        if arguments.json { json::document(&report) } else { terminal::text(&report, &Paint::of_stdout()) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    if let Some(failure) = &report.failure {
        eprintln!("{}", failure.message);
    }
    Ok(exit_code(&report, arguments.insecure))
}

fn exit_code(report: &Report, insecure: bool) -> ExitCode {
    if let Some(failure) = &report.failure {
        return ExitCode::from(failure.exit_code);
    }
    let distrust = report.tls.as_ref().is_some_and(|tls| tls.distrust.is_some());
    if distrust && !insecure { ExitCode::from(NOT_TRUSTED) } else { ExitCode::SUCCESS }
}

/// Key logs are appended to, as other programs do; only the owner may read a new one.
fn append(file: &Path, text: &str) -> io::Result<()> {
    if fs::symlink_metadata(file).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("it is no regular file"));
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(file)?.write_all(text.as_bytes())
}
