//! `brisk probe --audit`: grades the TLS of a server from outside.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use brisk_audit::{Audit, AuditError, AuditSettings, Limits, output};
use brisk_probe::terminal::Paint;
use brisk_report::terminal::StatusLine;
use brisk_wire::server_flight::FlightError;

use crate::args::{Format, Probe};

/// Exit code if the grade is worse than `--fail-below`.
const BELOW: u8 = 10;

/// Default of `--timeout` for an audit, which opens many connections.
const USUAL: Duration = Duration::from_mins(2);

/// Runs the audit. Exit code: 0, [`BELOW`], or that of the error.
pub(super) fn run(arguments: &Probe) -> anyhow::Result<ExitCode> {
    let settings = settings(arguments)?;
    let mut status = StatusLine::on_stderr();
    let audited = brisk_audit::run(&settings, &mut |step| status.show(&format!("{}: {step}", settings.host)));
    status.clear();
    let audit = match audited {
        Ok(audit) => audit,
        Err(error) => {
            eprintln!("{error}");
            return Ok(ExitCode::from(code(&error)));
        }
    };
    let text = text(&audit, if arguments.json { Some(Format::Json) } else { arguments.audit.format });
    super::write_page(arguments, || output::html(&audit))?;
    super::print(&text)?;
    let below = arguments.audit.fail_below.is_some_and(|least| brisk_audit::is_below(&audit, least));
    Ok(if below { ExitCode::from(BELOW) } else { ExitCode::SUCCESS })
}

fn settings(arguments: &Probe) -> anyhow::Result<AuditSettings> {
    let url = arguments.url.as_ref().context("name a URL")?;
    let audit = &arguments.audit;
    Ok(AuditSettings {
        host: url.host.clone(),
        port: url.port,
        path: url.path.clone(),
        address: arguments.connect.map(|ip| (ip, url.port).into()),
        authorities: arguments.ca.clone(),
        plain_port: Some(audit.http_port).filter(|port| *port != 0),
        watch: audit.watch,
        limits: Limits { whole: arguments.timeout.unwrap_or(USUAL), ..Limits::default() },
    })
}

fn text(audit: &Audit, format: Option<Format>) -> String {
    match format.unwrap_or(Format::Text) {
        Format::Text => output::text(audit, Paint::of_stdout().width()),
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
