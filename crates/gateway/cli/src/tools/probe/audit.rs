//! `brisk probe --audit`: grades the TLS of a server from outside.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use brisk_audit::{Audit, AuditError, AuditSettings, EarlierAudit, Limits, output};
use brisk_probe::Url;
use brisk_probe::terminal::Paint;
use brisk_report::terminal::StatusLine;
use brisk_wire::server_flight::FlightError;
use serde::Serialize;

use super::args::Probe;
use super::audit_args::Format;

/// Exit code if the grade is worse than `--fail-below`.
const BELOW: u8 = 10;

/// Exit code if a file of the arguments cannot be used.
const WRONG_FILE: u8 = 2;

/// Default of `--timeout` for an audit, which opens many connections.
const USUAL: Duration = Duration::from_mins(2);

/// A host of a list in JSON.
#[derive(Serialize)]
struct Listed<'a> {
    host: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<&'a Audit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Most hosts of a list.
const MOST_HOSTS: usize = 1000;

/// Runs the audit, or those of a list of hosts. Exit code: 0, [`BELOW`], or that of the error.
pub(super) fn run(arguments: &Probe) -> anyhow::Result<ExitCode> {
    if let Some(file) = &arguments.audit.hosts {
        return list(arguments, file);
    }
    // Before the audit, which takes minutes: a wrong file must not cost its result.
    let earlier = arguments.audit.baseline.as_deref().map(EarlierAudit::read).transpose();
    let earlier = match earlier {
        Ok(earlier) => earlier,
        Err(error) => {
            eprintln!("{error}");
            return Ok(ExitCode::from(WRONG_FILE));
        }
    };
    let page = super::page_file(arguments)?;
    let settings = settings(arguments, arguments.url.as_ref().context("name a URL")?);
    let mut audit = match audited(&settings) {
        Ok(audit) => audit,
        Err(error) => {
            eprintln!("{error}");
            return Ok(ExitCode::from(code(&error)));
        }
    };
    audit.differences = earlier.map(|earlier| earlier.differences(&audit));
    let text = text(&audit, if arguments.json { Some(Format::Json) } else { arguments.audit.format });
    let printed = super::print(&text);
    super::write_page(page, || output::html(&audit))?;
    printed?;
    let below = arguments.audit.fail_below.is_some_and(|least| brisk_audit::is_below(&audit, least));
    Ok(if below { ExitCode::from(BELOW) } else { ExitCode::SUCCESS })
}

fn audited(settings: &AuditSettings) -> Result<Audit, AuditError> {
    let mut status = StatusLine::on_stderr();
    let audited = brisk_audit::run(settings, &mut |step| status.show(&format!("{}: {step}", settings.host)));
    status.clear();
    audited
}

/// Audits the hosts of `file` one after the other. Exit code: [`BELOW`] if a grade is worse than `--fail-below`, otherwise
/// that of the last error.
fn list(arguments: &Probe, file: &Path) -> anyhow::Result<ExitCode> {
    let urls = match hosts(file) {
        Ok(urls) => urls,
        Err(message) => {
            eprintln!("{message}");
            return Ok(ExitCode::from(WRONG_FILE));
        }
    };
    let (mut audits, mut exit) = (Vec::new(), ExitCode::SUCCESS);
    let mut is_below = false;
    for url in &urls {
        let audited = audited(&settings(arguments, url));
        match &audited {
            // A host that cannot be audited has its line in the result and does not end the list.
            Err(error) => exit = ExitCode::from(code(error)),
            Ok(audit) => {
                is_below |=
                    arguments.audit.fail_below.is_some_and(|least| brisk_audit::is_below(audit, least));
            }
        }
        audits.push((url.authority(), audited.map_err(|error| error.to_string())));
    }
    let text = if arguments.json {
        let listed = audits.iter().map(|(host, audited)| Listed {
            host,
            audit: audited.as_ref().ok(),
            error: audited.as_ref().err().map(String::as_str),
        });
        brisk_report::json::document(&listed.collect::<Vec<_>>())
    } else {
        let paint = Paint::of_stdout();
        paint.titled(&output::summary(&audits, paint.width()))
    };
    super::print(&text)?;
    Ok(if is_below { ExitCode::from(BELOW) } else { exit })
}

/// The URLs of a list: one in each line; empty lines and those that begin with `#` are skipped.
fn hosts(file: &Path) -> Result<Vec<Url>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let named = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let urls: Vec<Url> = named
        .map(|(number, line)| {
            line.parse().map_err(|reason| format!("{}:{number}: wrong URL {reason}", file.display()))
        })
        .collect::<Result<_, String>>()?;
    match urls.len() {
        0 => Err(format!("{} names no host: write one in each line", file.display())),
        1..=MOST_HOSTS => Ok(urls),
        many => Err(format!("{} names {many} hosts: at most {MOST_HOSTS} are audited", file.display())),
    }
}

fn settings(arguments: &Probe, url: &Url) -> AuditSettings {
    let audit = &arguments.audit;
    AuditSettings {
        host: url.host.clone(),
        port: url.port,
        path: url.path.clone(),
        address: arguments.connect.map(|ip| (ip, url.port).into()),
        authorities: arguments.ca.clone(),
        // An empty list selects the servers of the system, `None` would skip the check of CAA records.
        dns: Some(arguments.name_server.into_iter().collect()),
        plain_port: Some(audit.http_port).filter(|port| *port != 0),
        watch: audit.watch,
        limits: Limits { whole: arguments.timeout.unwrap_or(USUAL), ..Limits::default() },
    }
}

fn text(audit: &Audit, format: Option<Format>) -> String {
    match format.unwrap_or(Format::Text) {
        Format::Text => {
            let paint = Paint::of_stdout();
            paint.titled(&output::text(audit, paint.width()))
        }
        Format::Json => output::json(audit),
        Format::Sarif => output::sarif(audit, env!("CARGO_PKG_VERSION")),
        Format::Junit => output::junit(audit),
    }
}

/// Exit code of an error, the same as `brisk probe` without `--audit` has for the same failure.
fn code(error: &AuditError) -> u8 {
    match error {
        AuditError::Authorities(_) => 2,
        AuditError::Resolve { .. } => 3,
        AuditError::Connect { .. } => 4,
        AuditError::NoTls { .. } | AuditError::Flight { error: FlightError::NotTls, .. } => 5,
        AuditError::Flight { .. } => 6,
        AuditError::Time { .. } | AuditError::Connections { .. } => 7,
        _ => 1,
    }
}
