//! `brisk serve`: runs the gateway in the foreground.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use brisk_config::{Resolved, Running, Sources, early_keys};
use brisk_gateway::{Addresses, Environment, Gateway, GatewaySockets};
use brisk_isolation::{Isolation, KeyProcess};
use brisk_keys::prepare_randomness;
use brisk_logs::{AccessLogFormat, AccessLogSettings, AccessLogTarget};
use brisk_sandbox::Privileges;
use brisk_server::{Parts, Process, Program, ServerError, Sockets, WatchedFiles};
use brisk_telemetry::Metrics;

use crate::acme::Obtained;
use crate::args::Serve;
use crate::fixed_keys::FixedKeys;
use crate::isolated::IsolatedKeys;
use crate::key_servers::KeyServers;
use crate::sandbox::{self, Sandbox};
use crate::source::Configuration;
use crate::visits::KeptVisits;
use crate::{engines, limits, log, memory, summary};

/// Functions of this program that the server calls.
pub(crate) const PROGRAM: Program =
    Program { give_back_memory: memory::give_back, dropped_log_lines: log::dropped_lines };

/// Timeout for the parts to stop, after the gateway has drained.
const STOPPING: Duration = Duration::from_secs(8);

/// Runs the gateway until a stop signal, and then until it has drained.
pub(crate) fn run(arguments: &Serve) -> anyhow::Result<()> {
    let line = arguments.command_line();
    let sources = line.sources()?;
    let (isolation, privileges, sockets) = give_up_rights(sources.as_ref(), &arguments.log)?;
    // After the change of the user, for which the kernel forgets the signal.
    brisk_supervisor::end_with_supervisor()
        .map_err(|error| anyhow!("cannot follow the supervisor: {error}"))?;
    // After `give_up_rights`, because both start a thread.
    prepare_randomness();
    let _log = log::start(&arguments.log)?;
    if let Some(isolation) = &isolation {
        isolation.log_rights();
    }
    // Only if `give_up_rights` has not taken the sockets: a second call finds none.
    let sockets = sockets.unwrap_or_else(Sockets::inherited);
    let running = Rc::new(Running::new(isolation, privileges));
    let configuration = Configuration::new(line, &running);
    let first = configuration.first(sources.as_ref())?;
    drop(sources);
    // Watching begins before the engines start, which takes seconds with a GPU: changes in that time are noticed too.
    let files = WatchedFiles::start(&first.settings.server.files);
    log_warnings(&first.warnings);
    limits::raise_open_files();
    let changes_elsewhere = files.elsewhere();
    // Before engines, key servers and the rest of the gateway, which take longer: connections wait in the queues of the sockets.
    let sockets = GatewaySockets::bind(&first.settings, Process { program: PROGRAM, sockets, files })?;
    let metrics = Metrics::new();
    log::note_in(metrics.problems());
    metrics.register(running.limits.clone());

    let visits = KeptVisits::start(first.visits.as_ref(), &metrics);
    let engines = engines::start(&first.keys, &first.settings.keystore, &running, &metrics);
    // After the engines, since the driver of a GPU may start a program first, and before everything that reads data of peers.
    let sandbox = Sandbox::start(&first.sandbox, &running);
    metrics.register(sandbox.limits());
    let isolated = IsolatedKeys::start(&running, &first, changes_elsewhere).map_err(anyhow::Error::msg)?;
    let key_servers = KeyServers::start(&running.key_servers, &first.remote).map_err(anyhow::Error::msg)?;
    let obtained = Arc::new(Obtained::default());
    let environment = Environment {
        engines: engines.map_err(ServerError::Threads)?,
        gathers: first.keys.processor.simd.then_some(first.keys.simd_wait),
        metrics,
        challenges: Arc::clone(obtained.challenges()),
        obtainer: Arc::clone(&obtained) as _,
        visits: visits.visits(),
        catalogues: running.catalogues.clone(),
        on_demand: running.on_demand.clone(),
        limits: running.limits.clone(),
        refused_keys: running.refused_keys.clone(),
    };
    let gateway = Gateway::new(&first.settings, sockets, &environment)?;
    let start = start_text(gateway.addresses(), &first);
    let to_stderr = has_records_on_stdout(&first.settings.access_log);
    // Last: the publication of stored certificates may take seconds, and needs the hosts of the gateway.
    obtained.start(&first.acme).map_err(ServerError::Threads)?;

    let mut parts = Parts::new();
    // First: another part would report a missing right as its own error.
    parts.add(sandbox, |new: &Resolved| &new.sandbox);
    parts.add(configuration.clone(), |new: &Resolved| &new.certificate_files);
    parts.add(FixedKeys::new(&first.keys), |new| &new.keys);
    // Before the keys: the old ones are given up only after the certificates that need them are replaced.
    parts.add(gateway.part(), |new| &new.settings);
    parts.add(isolated, |new| &new.isolated);
    parts.add(key_servers, |new| &new.remote);
    parts.add(visits, |new| &new.visits);
    // After the gateway, whose commit names the hosts that it serves.
    parts.add(obtained, |new| &new.acme);
    // The keys of the start would otherwise stay in memory after a reload has removed them.
    drop(first);
    let served = gateway.run(&parts, configuration, move || print_start(start.as_bytes(), to_stderr));
    parts.stop(Instant::now() + STOPPING);
    Ok(served?)
}

/// Starts the key process if the configuration in `sources` requires one, changes the user and gives up capabilities.
///
/// To be called while the process has one thread, because privileges apply to a single thread. Inherited sockets are taken if there
/// is a key process, which would inherit them too.
fn give_up_rights(
    sources: Option<&Sources>,
    log: &str,
) -> anyhow::Result<(Option<Arc<Isolation>>, Privileges, Option<Sockets>)> {
    let early = sources.map(early_keys).unwrap_or_default();
    let sockets = early.isolation.as_ref().map(|_| Sockets::inherited());
    let process =
        early.isolation.as_ref().map(|keys| KeyProcess::start(keys.user.clone(), log)).transpose()?;
    // After the key process, which keeps the rights of the start.
    let privileges = sandbox::drop_privileges(&early)?;
    Ok((process.map(Isolation::start).transpose()?, privileges, sockets))
}

pub(crate) fn log_warnings(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// Lines with the addresses.
fn start_text(addresses: &Addresses, first: &Resolved) -> String {
    let development = first.development.as_ref();
    let mut out = format!("brisk {} serves\n", env!("CARGO_PKG_VERSION"));
    let mut line = |kind: &str, value: &dyn fmt::Display| {
        // Writing to a `String` does not fail.
        let _ = writeln!(out, "  {kind:<6} {value}");
    };
    let mut https: Vec<_> =
        addresses.https.iter().map(|address| shown(*address, development.is_some())).collect();
    // 127.0.0.1 and [::1] have one text, also where another address is between them.
    let mut seen = HashSet::new();
    https.retain(|address| seen.insert(address.clone()));
    for address in &https {
        line("https", &format_args!("https://{address}"));
    }
    for address in https.iter().filter(|_| first.settings.http3) {
        line("http3", &format_args!("https://{address}"));
    }
    for address in &addresses.http {
        line("http", &format_args!("http://{address}"));
    }
    for address in &addresses.tcp {
        line("tcp", &format_args!("tcp://{address}"));
    }
    if let Some(address) = addresses.admin {
        line("admin", &format_args!("http://{address}"));
    }
    if let Some(url) = &addresses.dashboard {
        line("dashboard", url);
    }
    line("resume", &summary::sessions(&first.settings));
    if let Some(ca) = development {
        let certificate = ca.certificate().display();
        let import = "import it in the browser, or: curl --cacert";
        line("trust", &format_args!("{certificate} ({import} {certificate} ...)"));
    }
    out
}

/// Prints the addresses in a single write, so that a reader of a pipe gets either all lines or none: to standard output, or to
/// standard error if standard output contains an access log for programs.
fn print_start(text: &[u8], to_stderr: bool) -> io::Result<()> {
    if to_stderr {
        return io::stderr().write_all(text);
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(text)?;
    stdout.flush()
}

/// Whether programs read standard output: JSON, or a form of the operator. Each line is then one of the access log.
fn has_records_on_stdout(outputs: &[AccessLogSettings]) -> bool {
    let is_text = |output: &AccessLogSettings| output.format == AccessLogFormat::Text;
    outputs.iter().any(|output| output.target == AccessLogTarget::Stdout && !is_text(output))
}

/// Address in the form for a URL: `localhost` for a loopback address with development certificates, which are valid for that
/// name.
fn shown(address: SocketAddr, development: bool) -> String {
    if development && address.ip().is_loopback() {
        format!("localhost:{}", address.port())
    } else {
        address.to_string()
    }
}
