//! The addresses of all listeners: that there are any, and that no two share one.

use std::collections::HashMap;
use std::net::SocketAddr;

use brisk_config_file::KeyPath;

use super::context::Context;
use super::dashboard;
use crate::raw;
use crate::values::Address;

/// Checks that there is a listener and that no two share an address.
pub(super) fn check(raw: &raw::Config, context: &mut Context<'_>) {
    let server = KeyPath::of("server");
    let has_http = !raw.server.https.is_empty() || !raw.server.http.is_empty();
    if !has_http && raw.tcp.iter().all(|tcp| tcp.listen.is_empty()) {
        let message = "nothing listens: write https = [\"0.0.0.0:443\", \"[::]:443\"] in [server]";
        context.shared.findings.incomplete(&server, message);
    } else if has_http && raw.server.https.is_empty() {
        let host = raw.host.iter().find(|host| !host.serves_plain());
        if let Some(name) = host.and_then(|host| host.names().first()) {
            context.shared.findings.warn(format!(
                "{}: requests for \"{name}\" are redirected to HTTPS, and no address is in `https`: write one, or plain = \"serve\" \
                 in the host",
                server.key("http")
            ));
        }
    }
    let listed = |key: &str, addresses: &[Address]| -> Vec<_> {
        let path = server.key(key);
        addresses.iter().enumerate().map(|(index, address)| (address.0, path.index(index))).collect()
    };
    let admin = raw.admin.listen.map(|address| (address.0, KeyPath::of("admin").key("listen")));
    let dashboard = raw.dashboard.as_ref().filter(|dashboard| !dashboard.or_any_port).map(|dashboard| {
        let address = dashboard.listen.map_or(dashboard::LISTEN, |address| address.0);
        (address, KeyPath::of("dashboard").key("listen"))
    });
    let servers = listed("https", &raw.server.https).into_iter().chain(listed("http", &raw.server.http));
    let all = servers.chain(admin).chain(dashboard);
    let mut taken: HashMap<SocketAddr, KeyPath> = HashMap::new();
    // The system chooses a free port for port 0, so two such addresses are no conflict.
    for (address, path) in all.filter(|(address, _)| address.port() != 0) {
        match taken.get(&address) {
            Some(first) => {
                context.shared.findings.wrong(&path, format!("{address} is taken by {first} already"));
            }
            None => drop(taken.insert(address, path)),
        }
    }
    of_tcp(raw, taken, context);
}

/// Checks that no `[[tcp]]` shares an address with another listener, nor without TLS with another `[[tcp]]`.
fn of_tcp(raw: &raw::Config, mut taken: HashMap<SocketAddr, KeyPath>, context: &mut Context<'_>) {
    let mut without_tls: HashMap<SocketAddr, bool> = HashMap::new();
    for (index, tcp) in raw.tcp.iter().enumerate() {
        let path = KeyPath::of("tcp").index(index).key("listen");
        let is_plain = tcp.tls() == raw::TcpTls::None;
        for (place, Address(address)) in tcp.listen.iter().enumerate() {
            let path = path.index(place);
            let Some(first) = taken.get(address).filter(|_| address.port() != 0) else {
                taken.insert(*address, path);
                without_tls.insert(*address, is_plain);
                continue;
            };
            let message = match without_tls.get(address) {
                None if raw.server.https.iter().any(|https| https.0 == *address) => format!(
                    "{address} is taken by {first} already: leave out `listen`, and connections with these `names` belong here"
                ),
                None => format!("{address} is taken by {first} already"),
                Some(true) => format!("{address} is taken by {first} already, which takes all connections"),
                Some(false) if is_plain => format!(
                    "{address} is taken by {first} already: tls = \"none\" takes all connections of an address"
                ),
                // Both have TLS, so the server name decides. `check_names` refuses a name of both.
                Some(false) => continue,
            };
            context.shared.findings.wrong(&path, message);
        }
    }
}
