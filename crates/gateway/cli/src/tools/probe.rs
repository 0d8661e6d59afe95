//! `brisk probe`: examines an HTTPS connection, and runs audits, timings and comparisons.

mod args;
mod audit;
mod audit_args;
mod inside;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use brisk_probe::terminal::{self, Paint};
use brisk_probe::{
    Browser, Http3Report, PageLoad, ProbeError, Report, browse, browser, compare, har, http3, page,
    page_load, timing,
};
use brisk_report::json;
use brisk_report::terminal::StatusLine;
use serde::Serialize;

use audit_args::AuditArgs;

use super::PROGRAM;
use super::result_file::ResultFile;

pub(super) use args::Probe;

/// Exit code if the first byte of the response came later than `--max-ttfb`.
const TOO_LATE: u8 = 8;

/// Exit code after a complete measurement of a server whose certificate is not trusted.
const NOT_TRUSTED: u8 = 9;

/// Runs the probe. Exit code: 0 if a response came, otherwise [`ProbeError::exit_code`], [`TOO_LATE`] or [`NOT_TRUSTED`].
pub(crate) fn run(arguments: &Probe) -> ExitCode {
    let done = match arguments {
        Probe { audit: AuditArgs { config: Some(file), .. }, .. } => inside::run(file, arguments.json),
        Probe { audit: AuditArgs { audit: true, .. }, .. } => audit::run(arguments),
        Probe { timing: true, .. } => measure(arguments),
        Probe { compare: Some(_), .. } => beside(arguments),
        _ => probe(arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        error
            .downcast_ref::<ProbeError>()
            .map_or(ExitCode::FAILURE, |error| ExitCode::from(error.exit_code()))
    })
}

/// JSON document of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    browser: Option<Browser>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http3: Option<Http3Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<&'a PageLoad>,
}

fn probe(arguments: &Probe) -> anyhow::Result<ExitCode> {
    let settings = arguments.settings()?;
    let (key_log, archive, page) = (
        arguments.keylog.as_deref().map(ResultFile::open_key_log).transpose()?,
        arguments.har.as_deref().map(ResultFile::open).transpose()?,
        page_file(arguments)?,
    );
    let mut status = StatusLine::on_stderr();
    status.show(&format!("probing {}", settings.url));
    let report = settings.run(arguments.mode());
    status.clear();
    let report = report?;
    let browser =
        // Not after a failure: further connections would fail for the same reason, after another timeout.
        if arguments.browser && report.failure.is_none() { Some(browser(&settings, &report)?) } else { None };
    let http3 =
        if arguments.http3 && report.failure.is_none() { Some(http3(&settings, &report)?) } else { None };
    // Also after a failure, which the packets with the secrets may explain.
    let logged = key_log.map(|file| file.write_text(report.key_log()));
    let load = if arguments.page && report.failure.is_none() {
        status.show("loading the page in Chromium");
        let load = browse(&settings, &report);
        status.clear();
        Some(load?)
    } else {
        None
    };
    let load = load.as_ref();
    let paint = Paint::of_stdout();
    let text = if arguments.json {
        json::document(&Document { report: &report, browser, http3, page: load })
    } else {
        let text = if arguments.frames { terminal::with_frames } else { terminal::text };
        let browser = browser.map(|browser| format!("\n{}", terminal::browser(&browser, &paint)));
        let http3 = http3.map(|http3| format!("\n{}", terminal::http3(&http3, &paint)));
        let load = load.map(|load| format!("\n{}", page_load(load, &paint)));
        let parts = [Some(text(&report, &paint)), browser, http3, load];
        parts.into_iter().flatten().collect::<String>()
    };
    let printed = print(&text);
    if let (Some(file), Some(load)) = (archive, load) {
        file.write_text(&json::document(&har(load)))?;
    }
    write_page(page, || page::report(&report, load, PROGRAM))?;
    logged.transpose()?;
    printed?;
    if let Some(failure) = &report.failure {
        eprintln!("{}", failure.message);
    }
    Ok(exit_code(&report, arguments))
}

fn exit_code(report: &Report, arguments: &Probe) -> ExitCode {
    if let Some(failure) = &report.failure {
        return ExitCode::from(failure.exit_code);
    }
    let first_byte = report.first_byte_ms();
    if is_late(first_byte, arguments) {
        return ExitCode::from(TOO_LATE);
    }
    by_trust(report.tls.as_ref().is_none_or(|tls| tls.is_trusted == Some(true)), arguments)
}

fn by_trust(is_trusted: bool, arguments: &Probe) -> ExitCode {
    if is_trusted || arguments.insecure { ExitCode::SUCCESS } else { ExitCode::from(NOT_TRUSTED) }
}

fn measure(arguments: &Probe) -> anyhow::Result<ExitCode> {
    let (settings, page) = (arguments.settings()?, page_file(arguments)?);
    let mut status = StatusLine::on_stderr();
    let found = timing(&settings, arguments.rounds.into(), &mut |text| status.show(text));
    status.clear();
    let found = found?;
    let text =
        if arguments.json { json::document(&found) } else { terminal::timing(&found, &Paint::of_stdout()) };
    let printed = print(&text);
    write_page(page, || page::timing(&found, PROGRAM))?;
    printed?;
    if is_late(found.first_byte_ms(), arguments) {
        return Ok(ExitCode::from(TOO_LATE));
    }
    Ok(by_trust(found.distrust.is_none(), arguments))
}

fn beside(arguments: &Probe) -> anyhow::Result<ExitCode> {
    let (sides, page) = (arguments.sides()?, page_file(arguments)?);
    let mut status = StatusLine::on_stderr();
    let found = compare(&sides, arguments.rounds.into(), &mut |text| status.show(text));
    status.clear();
    let found = found?;
    let text =
        if arguments.json { json::document(&found) } else { terminal::compared(&found, &Paint::of_stdout()) };
    let printed = print(&text);
    write_page(page, || page::compared(&found, PROGRAM))?;
    printed?;
    Ok(by_trust(found.distrust.iter().all(Option::is_none), arguments))
}

/// Whether the first byte came later than `--max-ttfb`, which is reported on standard error then.
fn is_late(first_byte: Option<f64>, arguments: &Probe) -> bool {
    let (Some(most), Some(time)) = (arguments.max_ttfb, first_byte) else { return false };
    if time > most {
        eprintln!("the first byte came after {time:.1} ms: more than {most} ms (--max-ttfb)");
    }
    time > most
}

fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

fn page_file(arguments: &Probe) -> anyhow::Result<Option<ResultFile>> {
    arguments.html.as_deref().map(ResultFile::open).transpose()
}

fn write_page(file: Option<ResultFile>, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    file.map_or(Ok(()), |file| file.write_text(&text()))
}
