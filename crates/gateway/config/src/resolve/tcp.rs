//! `[[tcp]]`: TCP connections whose bytes are forwarded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brisk_access::NetworkRules;
use brisk_answer::features::TIMEOUTS;
use brisk_certs::Certificate;
use brisk_config_file::{KeyPath, Network, Period};
use brisk_gateway::settings::{TcpSettings, TcpTls};
use brisk_tls::HostSettings;
use brisk_upstream_group::settings::ServerUrl;

use super::context::Context;
use super::names::host_name;
use super::server::listeners;
use crate::raw;

/// Time without data in either direction after which a connection ends.
const IDLE: Period = Period(Duration::from_mins(10));

/// The name that stands for all other names, and for connections without one.
const ANY: &str = "*";

/// Resolves every `[[tcp]]` of the file. `certificates` has those of each.
pub(super) fn all(
    raw: &raw::Config,
    certificates: Vec<Vec<Arc<Certificate>>>,
    context: &mut Context<'_>,
) -> Vec<TcpSettings> {
    let path = KeyPath::of("tcp");
    check_names(raw, &path, context);
    let services = raw.tcp.iter().zip(certificates).enumerate();
    services.map(|(index, (tcp, own))| service(raw, tcp, own, &path.index(index), context)).collect()
}

fn service(
    raw: &raw::Config,
    tcp: &raw::TcpKeys,
    certificates: Vec<Arc<Certificate>>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> TcpSettings {
    check_tls(raw, tcp, path, context);
    let upstream = upstream(raw, tcp, path, context);
    let names = names(tcp);
    let networks = networks(tcp, path, context);
    let protocols = tcp.alpn.iter().map(|name| name.as_bytes().into()).collect::<Vec<Box<[u8]>>>();
    // A name is not required with `listen`: then all names belong here, also connections without one.
    let is_default = tcp.names.is_empty() || tcp.names.iter().any(|name| name == ANY);
    let tls = match tcp.tls() {
        raw::TcpTls::None => TcpTls::None,
        raw::TcpTls::Passthrough => TcpTls::Passthrough,
        raw::TcpTls::Terminate => TcpTls::Terminate(Box::new(HostSettings {
            default: is_default,
            certificates,
            quic: false,
            protocols: Some(protocols.clone()),
            ..HostSettings::new(&names)
        })),
    };
    for (index, name) in tcp.alpn.iter().enumerate() {
        // RFC 7301 section 3.1: a protocol name has 1 to 255 bytes.
        if !(1..=255).contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!("{name:?} is no protocol of ALPN: write one as \"h2\" or \"postgresql\"");
            context.shared.findings.wrong(&path.key("alpn").index(index), message);
        }
    }
    TcpSettings {
        name: tcp.name.clone().unwrap_or_else(|| upstream.clone()),
        listen: listeners(&tcp.listen, &raw.server),
        names,
        is_default,
        alpn: protocols,
        tls,
        networks,
        upstream,
        idle_timeout: context
            .shared
            .findings
            .within(&path.key("idle_timeout"), tcp.idle_timeout, IDLE, &TIMEOUTS)
            .0,
    }
}

/// The networks whose clients are permitted.
fn networks(tcp: &raw::TcpKeys, path: &KeyPath, context: &mut Context<'_>) -> NetworkRules {
    let findings = &mut context.shared.findings;
    // A network that could not be read is missing in the list, and was reported already.
    if tcp.allow.as_ref().is_some_and(Vec::is_empty) && !findings.written(&path.key("allow").index(0)) {
        findings.wrong(&path.key("allow"), "no network: write at least one, as \"10.0.0.0/8\"");
    }
    let list = |networks: Option<&Vec<Network>>| -> Vec<_> {
        networks.into_iter().flatten().map(|network| network.0).collect()
    };
    NetworkRules::new(list(tcp.allow.as_ref()), list(tcp.deny.as_ref())).unwrap_or_else(|network| {
        let message = format!("{network} is in `allow` already: keep one of the two");
        findings.wrong(&path.key("deny"), message);
        NetworkRules::default()
    })
}

/// The names in one form, without [`ANY`]. Mistakes are reported by [`check_names`].
fn names(tcp: &raw::TcpKeys) -> Vec<String> {
    tcp.names.iter().filter_map(|name| host_name(name).ok()).collect()
}

/// Checks the keys about TLS against each other.
fn check_tls(raw: &raw::Config, tcp: &raw::TcpKeys, path: &KeyPath, context: &mut Context<'_>) {
    let findings = &mut context.shared.findings;
    let tls = tcp.tls();
    match tls {
        raw::TcpTls::Terminate
            if tcp.certificates.is_empty() && !findings.written(&path.key("certificates")) =>
        {
            let message = "no certificate: write certificates = [{ chain = \"FILE\", key = \"FILE\" }]";
            findings.wrong(&path.key("tls"), message);
        }
        raw::TcpTls::None | raw::TcpTls::Passthrough if !tcp.certificates.is_empty() => {
            let message = "has no effect: certificates are for tls = \"terminate\"";
            findings.wrong(&path.key("certificates"), message);
        }
        _ => {}
    }
    if tls == raw::TcpTls::None {
        for key in ["names", "alpn"] {
            if findings.written(&path.key(key)) {
                let message =
                    "has no effect with tls = \"none\": without TLS, a connection has no server name";
                findings.wrong(&path.key(key), message);
            }
        }
    }
    if !tcp.listen.is_empty() || findings.written(&path.key("listen").index(0)) {
        return;
    }
    if tls == raw::TcpTls::None || raw.server.https.is_empty() {
        findings.incomplete(path, "nothing listens: write listen = [\"0.0.0.0:5432\"]");
    } else if tcp.names.is_empty() {
        let message = "no name: without `listen`, connections of `server.https` with these `names` belong here; write \
                       names = [\"db.example.com\"], or `listen`";
        findings.incomplete(path, message);
    } else if tls == raw::TcpTls::Terminate && tcp.names.iter().any(|name| name == ANY) {
        let message = "\"*\" is for tls = \"passthrough\" or with `listen`: other names of `server.https` are for the default host";
        findings.wrong(&path.key("names"), message);
    }
}

/// The upstream of a service, which has a name or is written as one server.
fn upstream(raw: &raw::Config, tcp: &raw::TcpKeys, path: &KeyPath, context: &mut Context<'_>) -> String {
    let table = path;
    let path = path.key("upstream");
    let Some(name) = &tcp.upstream else {
        if !context.shared.findings.written(&path) {
            let message =
                "no upstream: write upstream = \"tcp://127.0.0.1:5432\", or the name of an [upstream.NAME]";
            context.shared.findings.incomplete(table, message);
        }
        return String::new();
    };
    if let Some(group) = raw.upstream.get(name) {
        let servers = &group.features.servers.servers;
        // A group of both kinds is a mistake of its own.
        if let Some(server) = servers.first().filter(|server| !server.url.scheme().is_stream()) {
            let message = format!(
                "{} is for requests: a server of [[tcp]] is written as \"tcp://127.0.0.1:5432\", or with tls:// or tcp+unix:",
                server.url
            );
            context.shared.findings.wrong(&path, message);
        }
    } else if is_server(name) {
        // Servers without a mistake have become groups.
        let error = name.parse::<ServerUrl>().err().map(|error| error.to_string());
        context.shared.findings.wrong(&path, error.unwrap_or_default());
    } else {
        context.shared.has_upstream(name, &path);
    }
    name.clone()
}

/// Whether the `upstream` of a `[[tcp]]` is a server instead of a name.
pub(crate) fn is_server(upstream: &str) -> bool {
    upstream.contains("://") || upstream.contains("unix:")
}

/// The place of a name, and the protocols of ALPN without which it does not apply.
type Claim<'a> = (KeyPath, &'a [String]);

/// Checks that no name has two meanings on one listener: those of `server.https` belong to hosts too.
fn check_names(raw: &raw::Config, path: &KeyPath, context: &mut Context<'_>) {
    // By listener, with an empty text for `server.https`: the names with the place and the protocols.
    let mut taken: BTreeMap<(String, String), Vec<Claim<'_>>> = BTreeMap::new();
    let hosts = KeyPath::of("host");
    for (index, host) in raw.host.iter().enumerate() {
        for (place, name) in host.names().iter().enumerate() {
            let Ok(name) = host_name(name) else { continue };
            let place = (hosts.index(index).key("names").index(place), &[][..]);
            taken.entry((String::new(), name)).or_default().push(place);
        }
    }
    for (index, tcp) in raw.tcp.iter().enumerate() {
        let path = path.index(index).key("names");
        let listeners = tcp.listen.iter().map(|address| address.0);
        let mut listeners: Vec<_> =
            listeners.filter(|address| address.port() != 0).map(|address| address.to_string()).collect();
        // An empty key is `server.https`, which hosts and `[[tcp]]` without `listen` share.
        if tcp.listen.is_empty() {
            listeners.push(String::new());
        }
        // Terminated TLS negotiates ALPN itself, so only forwarded connections are divided by it.
        let alpn = if tcp.tls() == raw::TcpTls::Passthrough { &tcp.alpn[..] } else { &[] };
        let any = [ANY.to_owned()];
        let is_all = tcp.names.is_empty() && !tcp.listen.is_empty() && tcp.tls() != raw::TcpTls::None;
        let names = if is_all { &any[..] } else { &tcp.names[..] };
        for (place, written) in names.iter().enumerate() {
            let path = if is_all { path.clone() } else { path.index(place) };
            let name = match host_name(written) {
                _ if written == ANY => ANY.to_owned(),
                Ok(name) => name,
                Err(message) => {
                    context.shared.findings.wrong(&path, message);
                    continue;
                }
            };
            for listener in &listeners {
                let known = taken.entry((listener.clone(), name.clone())).or_default();
                // Two entries differ if their protocols have none in common: then each ClientHello fits one
                // of them.
                let is_same = |(_, other): &&Claim<'_>| {
                    alpn.is_empty() && other.is_empty() || alpn.iter().any(|own| other.contains(own))
                };
                if let Some((first, _)) = known.iter().find(is_same) {
                    let message = format!("{first} is \"{name}\" already; a client gets one of the two");
                    context.shared.findings.wrong(&path, message);
                }
                known.push((path.clone(), alpn));
            }
        }
    }
}
