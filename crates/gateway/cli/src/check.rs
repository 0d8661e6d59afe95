//! `brisk check`: reads a configuration as `brisk serve` does, and serves nothing.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use brisk_answer::Explanation;
use brisk_answer::settings::RoutePath;
use brisk_certs::Certificate;
use brisk_config::{Resolved, Running};
use brisk_gateway::GatewaySettings;
use brisk_keys::{KeyAlgorithm, KeyElsewhere, ProbeAnswer};
use http::Request;
use http::uri::Scheme;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::args::Check;
use crate::http3;
use crate::key_servers::connect;
use crate::{summary, tools};

/// Timeout of one question to all holders of a key.
const DEADLINE: Duration = Duration::from_secs(5);

/// Keys that are asked at the same time.
const CONCURRENT: usize = 32;

/// Prints the warnings and the confirmation that the file is valid, or the report about a recording (HAR). Returns the
/// errors of the file.
pub(crate) fn run(arguments: &Check) -> anyhow::Result<()> {
    if let Some(recording) = &arguments.har {
        print!("{}", tools::page_report(recording, arguments.rtt, arguments.json)?);
        return Ok(());
    }
    let Some(file) = &arguments.file else { anyhow::bail!("name a configuration file") };
    // Dropped last, because it closes the tokens.
    let running = Running::default();
    let resolved = brisk_config::check(file, &running)?;
    for warning in &resolved.warnings {
        eprintln!("warning: {warning}");
    }
    if resolved.settings.http3 {
        for limit in brisk_net::datagram::low_limits() {
            eprintln!("warning: {limit}");
        }
    }
    if let Some(request) = &arguments.explain {
        return explain(&resolved, request, arguments);
    }
    let http3 = http3::summary(&resolved.settings);
    for line in summary::certificates(&resolved.settings).into_iter().chain(http3) {
        println!("{line}");
    }
    if arguments.online {
        let keys = ask_for_keys(&resolved);
        // Before the error of the keys is returned, so that one run shows both.
        check_folders(&resolved.settings)?;
        keys?;
    }
    println!("{}: ok", file.display());
    Ok(())
}

/// Prints the decision about a request.
fn explain(resolved: &Resolved, request: &Request<()>, arguments: &Check) -> anyhow::Result<()> {
    let GatewaySettings { service, upstreams, .. } = &resolved.settings;
    let name = request.uri().host().map(str::to_ascii_lowercase).unwrap_or_default();
    // Before the hosts, as on the listener: the server name decides before there is a request.
    let tcp = resolved.settings.tcp_of_name(&name).filter(|_| request.uri().scheme() != Some(&Scheme::HTTP));
    if let Some(index) = tcp {
        explain_tcp(resolved, index, &name);
        return Ok(());
    }
    let mut head = request.clone().into_parts().0;
    head.headers.extend(arguments.headers.iter().cloned());
    let head = head.into();
    let explanation = brisk_answer::explain(service, upstreams, &head, arguments.client)?;
    let Explanation { host: found, passed_over, route, stages, action } = explanation;
    println!("request: {} {} from {}", head.method, head.uri, arguments.client);
    if let Some(index) = found {
        let host = &service.hosts[index];
        println!("host: host[{index}], {}", host.tls.names.join(", "));
        let place = |route: usize| {
            let line = resolved.line_of_route(index, route).map(|(line, file)| {
                let file = file.map(|file| format!(" of {}", file.display())).unwrap_or_default();
                format!(", line {line}{file}")
            });
            let path = match &host.routes[route].path {
                RoutePath::Exact(path) => format!("{path:?}, exact"),
                RoutePath::Prefix(path) => format!("{path:?}"),
            };
            format!("host[{index}].route[{route}], path {path}{}", line.unwrap_or_default())
        };
        for (route, reason) in passed_over {
            println!("passed over: {}: {reason}", place(route));
        }
        println!("route: {}", route.map_or_else(|| "none".to_owned(), place));
    }
    if !stages.is_empty() {
        println!("stages: {}", stages.join(", "));
    }
    println!("action: {action}");
    Ok(())
}

/// Prints the decision about a connection that belongs to a `[[tcp]]`.
fn explain_tcp(resolved: &Resolved, index: usize, name: &str) {
    let tcp = &resolved.settings.tcp[index];
    let tls = if tcp.terminated().is_some() { "TLS is terminated" } else { "TLS is passed on" };
    println!("connection: server name {name:?}");
    println!("tcp: tcp[{index}], {}: {tls}", tcp.name);
    println!("action: bytes are forwarded to upstream {:?}", tcp.upstream);
}

/// Prints the names of certificate folders whose files cannot be loaded. Fails if there are any.
fn check_folders(settings: &GatewaySettings) -> anyhow::Result<()> {
    let folders = settings.service.hosts.iter().filter_map(|host| host.tls.catalogue.as_ref());
    let faulty: Vec<_> = folders.flat_map(|folder| folder.check()).collect();
    for (name, error) in &faulty {
        eprintln!("{name}: {error}");
    }
    match faulty.len() {
        0 => Ok(()),
        count => Err(anyhow!("{count} names of certificate folders cannot be loaded")),
    }
}

/// Has each holder of a key outside this process make a signature, and prints each [`ProbeAnswer`]. Fails if no holder of
/// a key does.
fn ask_for_keys(resolved: &Resolved) -> anyhow::Result<()> {
    // A configuration that is only checked has no connections yet: `serve` connects them
    // before it uses a certificate.
    for engine in &resolved.remote {
        connect(engine).map_err(|error| anyhow!("{error}"))?;
    }
    let keystore = &resolved.settings.keystore;
    let mut seen = HashSet::new();
    let certificates: Vec<_> = resolved
        .settings
        .file_certificates()
        // A certificate of several hosts is one question: each costs an operation at every holder.
        .filter(|certificate| seen.insert(certificate.fingerprint))
        .filter_map(|certificate| Some((&**certificate, keystore.elsewhere(certificate.key)?)))
        .collect();
    let keys = certificates.iter().map(|(certificate, key)| ((*key).clone(), certificate.algorithm));
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let answers = runtime.block_on(answers(keys.collect()));
    let mut silent = 0;
    for ((certificate, _), answers) in certificates.into_iter().zip(answers) {
        print_answers(certificate, &answers);
        silent += usize::from(answers.iter().all(|answer| answer.fault.is_some()));
    }
    match silent {
        0 => Ok(()),
        1 => Err(anyhow!("the key of a certificate does not answer: the certificate would not be used")),
        _ => Err(anyhow!(
            "the keys of {silent} certificates do not answer: the certificates would not be used"
        )),
    }
}

fn print_answers(certificate: &Certificate, answers: &[ProbeAnswer]) {
    let file: &Path = &certificate.source;
    for ProbeAnswer { holder, fault } in answers {
        match fault {
            None => println!("{}: {holder} has the key", file.display()),
            Some(fault) => {
                eprintln!("{}: {holder} does not perform operations with the key: {fault}", file.display());
            }
        }
    }
}

/// The [`ProbeAnswer`]s of `keys`, in their order, [`CONCURRENT`] at a time.
async fn answers(keys: Vec<(KeyElsewhere, KeyAlgorithm)>) -> Vec<Vec<ProbeAnswer>> {
    let mut all = vec![Vec::new(); keys.len()];
    let mut left = keys.into_iter().enumerate();
    let mut running = JoinSet::new();
    loop {
        while running.len() < CONCURRENT
            && let Some((place, (key, algorithm))) = left.next()
        {
            running.spawn(async move { (place, key.probe(algorithm, Instant::now() + DEADLINE).await) });
        }
        match running.join_next().await {
            Some(Ok((place, answers))) => all[place] = answers,
            // A question that panicked has no answers, which counts as a key that does not answer.
            Some(Err(_)) => {}
            None => return all,
        }
    }
}
