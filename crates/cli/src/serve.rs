//! `brisk serve`: the gateway in the foreground.

use std::cell::Cell;
use std::io::{self, Write};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::anyhow;
use brisk_certs::DevelopmentCa;
use brisk_config::Resolved;
use brisk_gateway::{Addresses, Environment, Gateway};
use brisk_server::{Process, Program, ServerError, Sockets, WatchedFiles};
use brisk_telemetry::Metrics;

use crate::acme::Obtained;
use crate::args::Serve;
use crate::process::{self, ThisProcess};
use crate::visits::KeptVisits;
use crate::{engines, isolated, limits, log, memory, remote, summary};

/// The functions that the server calls.
pub(crate) const PROGRAM: Program =
    Program { give_back_memory: memory::give_back, dropped_log_lines: log::dropped_lines };

/// Serves until a signal to stop, and the end of the drain.
pub(crate) fn run(arguments: &Serve) -> anyhow::Result<()> {
    let line = arguments.command_line();
    let text = line.text()?;
    let isolation = text.as_deref().and_then(brisk_config::isolation);
    // Before a process is started, which would have them too.
    let early = isolation.as_ref().map(|_| Sockets::inherited());
    // From before there is a second thread: the gateway gives rights up.
    if let Some(isolation) = isolation {
        isolated::start(isolation.user, &arguments.log)?;
    }
    let _log = log::start(&arguments.log)?;
    isolated::log_rights();
    let sockets = early.unwrap_or_else(Sockets::inherited);
    let Resolved { settings, keys, warnings, remote, acme, visits, development } =
        line.settings_of(text.as_deref(), &ThisProcess)?;
    drop(text);
    // From before the engines start, which takes a while with a GPU.
    let files = WatchedFiles::start(&settings.server.files);
    log_warnings(&warnings);
    if let Err(error) = limits::raise_open_files() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let sessions = summary::sessions(&settings);
    let metrics = Metrics::new();
    let kept_visits = KeptVisits::start(visits.as_ref(), &metrics);
    log::note_in(metrics.problems());
    let engines = engines::start(&keys, &settings.keystore, &metrics).map_err(ServerError::Threads)?;
    if let Some(isolation) = keys.isolation.as_ref().map(process::isolation) {
        isolated::settle(true);
        isolated::report_changes(files.elsewhere());
        let engine = isolated::engine(isolation.connections(), isolation.operations());
        isolated::begin(isolation);
        remote::connect(&[engine]);
    }
    remote::connect(&remote);
    remote::keep(remote);
    let process = Process { program: PROGRAM, sockets, files };
    let obtained = Arc::new(Obtained::default());
    let environment = Environment {
        engines,
        gathers: keys.processor.simd,
        metrics,
        challenges: Arc::clone(obtained.challenges()),
        obtainer: Arc::clone(&obtained) as _,
        visits: kept_visits.visits(),
    };
    let gateway = Gateway::bind(settings, process, environment)?;
    print_start(gateway.addresses(), &sessions, development.as_ref())
        .map_err(|error| anyhow!("cannot write to standard output: {error}"))?;
    obtained.look_after(&acme).map_err(ServerError::Threads)?;
    let mut last_keys = keys.clone();
    let (next_remote, next_acme) = (Cell::new(Vec::new()), Cell::new(Some(acme)));
    let next_visits = Cell::new(visits);
    let read = || {
        // The keys of a configuration that is refused are given up.
        let resolved = line.settings(&ThisProcess).inspect_err(|_| isolated::settle(false))?;
        log_warnings(&resolved.warnings);
        remote::connect(&resolved.remote);
        next_remote.set(resolved.remote);
        next_acme.set(Some(resolved.acme));
        next_visits.set(resolved.visits);
        if mem::replace(&mut last_keys, resolved.keys.clone()) != resolved.keys && resolved.keys != keys {
            tracing::warn!(key = "keys", "changed, but takes full effect only after a restart");
        }
        Ok::<_, brisk_config::ConfigError>(resolved.settings)
    };
    // What is not in force is dropped, and its connections with it.
    let settled = |is_in_force| {
        let (remote, acme, visits) = (next_remote.take(), next_acme.take(), next_visits.take());
        isolated::settle(is_in_force);
        if is_in_force {
            remote::keep(remote);
            kept_visits.configure(visits.as_ref());
            if let Some(Err(error)) = acme.map(|acme| obtained.look_after(&acme)) {
                tracing::error!(%error, "certificates are not looked after");
            }
        }
    };
    let served = gateway.run(read, settled);
    kept_visits.end();
    isolated::end();
    Ok(served?)
}

pub(crate) fn log_warnings(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// Prints addresses and sessions in one write, so that a reader of a pipe gets all of it or nothing.
fn print_start(addresses: &Addresses, sessions: &str, development: Option<&DevelopmentCa>) -> io::Result<()> {
    let mut out = Vec::new();
    writeln!(out, "brisk {} serves", env!("CARGO_PKG_VERSION"))?;
    let mut https: Vec<_> =
        addresses.https.iter().map(|address| shown(*address, development.is_some())).collect();
    https.dedup();
    for address in https {
        writeln!(out, "  https  https://{address}")?;
    }
    for address in &addresses.http {
        writeln!(out, "  http   http://{address}")?;
    }
    if let Some(address) = addresses.admin {
        writeln!(out, "  admin  http://{address}")?;
    }
    if let Some(url) = &addresses.dashboard {
        writeln!(out, "  dashboard {url}")?;
    }
    writeln!(out, "  resume {sessions}")?;
    if let Some(ca) = development {
        let certificate = ca.certificate().display();
        writeln!(
            out,
            "  trust  {certificate} (import it in the browser, or: curl --cacert {certificate} ...)"
        )?;
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(&out)?;
    stdout.flush()
}

/// The development certificates are for localhost, so that is the name to open.
fn shown(address: SocketAddr, development: bool) -> String {
    if development && address.ip().is_loopback() {
        format!("localhost:{}", address.port())
    } else {
        address.to_string()
    }
}
