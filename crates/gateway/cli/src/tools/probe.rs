//! `brisk probe`: examines an HTTPS connection, and runs audits, timings and comparisons.

mod args;
mod audit;
mod audit_args;
mod inside;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use brisk_probe::terminal::{self, Paint};
use brisk_probe::{
    Browser, Http3Report, PageLoad, ProbeError, Report, browse, browser, compare, har, http3, page,
    page_load, timing,
};
use brisk_report::json;
use brisk_report::terminal::StatusLine;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Serialize;

use audit_args::AuditArgs;

use super::PROGRAM;

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
    if let Some(file) = &arguments.keylog {
        // Also after a failure, which the packets with the secrets may explain.
        append(file, report.key_log()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let load = if arguments.page && report.failure.is_none() {
        status.show("loading the page in Chromium");
        let load = browse(&settings, &report);
        status.clear();
        Some(load?)
    } else {
        None
    };
    let load = load.as_ref();
    if let (Some(file), Some(load)) = (&arguments.har, load) {
        fs::write(file, json::document(&har(load)))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    write_page(arguments, || page::report(&report, load, PROGRAM))?;
    let paint = Paint::of_stdout();
    if arguments.json {
        print(&json::document(&Document { report: &report, browser, http3, page: load }))?;
    } else {
        let text = if arguments.frames { terminal::with_frames } else { terminal::text };
        let browser = browser.map(|browser| format!("\n{}", terminal::browser(&browser, &paint)));
        let http3 = http3.map(|http3| format!("\n{}", terminal::http3(&http3, &paint)));
        let load = load.map(|load| format!("\n{}", page_load(load, &paint)));
        let parts = [Some(text(&report, &paint)), browser, http3, load];
        print(&parts.into_iter().flatten().collect::<String>())?;
    }
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
    let settings = arguments.settings()?;
    let mut status = StatusLine::on_stderr();
    let found = timing(&settings, arguments.rounds.into(), &mut |text| status.show(text));
    status.clear();
    let found = found?;
    write_page(arguments, || page::timing(&found, PROGRAM))?;
    let text =
        if arguments.json { json::document(&found) } else { terminal::timing(&found, &Paint::of_stdout()) };
    print(&text)?;
    if is_late(found.first_byte_ms(), arguments) {
        return Ok(ExitCode::from(TOO_LATE));
    }
    Ok(by_trust(found.distrust.is_none(), arguments))
}

fn beside(arguments: &Probe) -> anyhow::Result<ExitCode> {
    let sides = arguments.sides()?;
    let mut status = StatusLine::on_stderr();
    let found = compare(&sides, arguments.rounds.into(), &mut |text| status.show(text));
    status.clear();
    let found = found?;
    write_page(arguments, || page::compared(&found, PROGRAM))?;
    let text =
        if arguments.json { json::document(&found) } else { terminal::compared(&found, &Paint::of_stdout()) };
    print(&text)?;
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

fn write_page(arguments: &Probe, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    let Some(file) = &arguments.html else { return Ok(()) };
    fs::write(file, text()).with_context(|| format!("cannot write {}", file.display()))
}

/// Appends to a key log, as browsers and curl do. A new file is readable by its owner only, since it decrypts traffic.
fn append(file: &Path, text: &str) -> io::Result<()> {
    let no_file = || io::Error::other("it is no regular file");
    // A link of another user of the folder could lead to any file, and a FIFO would wait for a reader. Checked by `open` and of
    // the opened file: a path may have another file after a check.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    let mut opened = options.open(file).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP | Errno::NXIO) => no_file(),
        _ => error,
    })?;
    if !opened.metadata()?.is_file() {
        return Err(no_file());
    }
    opened.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_key_log_is_a_regular_file_and_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for text in ["a\n", "b\n"] {
            append(&path("keys"), text).unwrap();
        }
        assert_eq!(fs::read_to_string(path("keys")).unwrap(), "a\nb\n");
        std::os::unix::fs::symlink(path("keys"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("missing"), path("dangling")).unwrap();
        mknodat(CWD, path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _reader = OpenOptions::new().read(true).write(true).open(path("fifo")).unwrap();
        for name in ["link", "dangling", "fifo"] {
            assert_eq!(append(&path(name), "c").unwrap_err().to_string(), "it is no regular file", "{name}");
        }
        assert!(append(folder.path(), "c").is_err() && !path("missing").exists());
        assert_eq!(fs::read_to_string(path("keys")).unwrap(), "a\nb\n");
    }
}
