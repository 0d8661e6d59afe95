//! Settings that give strangers more than their operator may expect: warnings, and an error for a served folder that
//! contains a secret or lies beside secrets.

mod scripts;

use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use brisk_config_file::KeyPath;
use http::Uri;

use super::context::Context;
use crate::raw;
use crate::values::{Network, ProxyProtocol};

/// Folders that contain far more than a site.
const SYSTEM: [&str; 10] = ["/", "/boot", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/var"];

/// Reviews `raw` after all files were read, so that the secrets in `context` are known.
pub(super) fn review(raw: &raw::Config, state_dir: Option<&Path>, context: &mut Context<'_>) {
    proxies(&raw.server, context);
    admin(raw, context);
    for (index, host) in raw.host.iter().enumerate() {
        let path = KeyPath::of("host").index(index);
        if let Some(ask) = host.own.on_demand.as_ref().and_then(|on_demand| on_demand.ask.as_ref()) {
            decisions(ask, &path.key("on_demand").key("ask"), context);
        }
        forwarded(raw, host, &path, context);
    }
    served_folders(raw, state_dir, context);
    scripts::review(raw, context);
}

fn proxies(server: &raw::Server, context: &mut Context<'_>) {
    let path = KeyPath::of("server");
    let is_everyone = |network: &&Network| network.0.prefix_len() == 0;
    if let Some(everyone) = server.trusted_proxies.iter().find(is_everyone) {
        let (path, everyone) = (path.key("trusted_proxies"), everyone.0);
        let warning = format!(
            "{path}: {everyone} contains every address, so each client can claim the address of another by a header: list \
             your proxies alone"
        );
        context.shared.findings.warn(warning);
    }
    let everyone = match &server.proxy_protocol {
        Some(ProxyProtocol::Everyone) => true,
        Some(ProxyProtocol::Trusted(networks)) => networks.iter().any(|network| is_everyone(&network)),
        Some(ProxyProtocol::Off) | None => false,
    };
    let listeners = server.https.iter().chain(&server.http);
    // Only an address in reach of others makes the claim possible: on loopback, the peers are programs of
    // this machine.
    let open = listeners.map(|address| address.0).find(|address| !address.ip().to_canonical().is_loopback());
    if let Some(open) = open.filter(|_| everyone) {
        let path = path.key("proxy_protocol");
        let warning = format!(
            "{path}: each peer that connects to {open} can claim the address of another client: write the networks of your \
             balancers, as [\"10.0.0.0/8\"]"
        );
        context.shared.findings.warn(warning);
    }
}

fn admin(raw: &raw::Config, context: &mut Context<'_>) {
    let Some(address) = raw.admin.listen.map(|address| address.0) else { return };
    if address.ip().is_unspecified() || brisk_fetch::is_public(address.ip()) {
        let port = address.port();
        let warning = format!(
            "admin.listen: {address} accepts connections from other networks, and the admin listener has no authentication: \
             write \"127.0.0.1:{port}\" or a private address"
        );
        context.shared.findings.warn(warning);
    }
}

/// Warns of decisions that cross a network in plain text. The message omits the URL, which may contain secrets.
fn decisions(ask: &str, path: &KeyPath, context: &mut Context<'_>) {
    let Some(host) = plain_host(ask) else { return };
    let warning = format!(
        "{path}: {host} decides over plain HTTP, so an attacker in the network in between can approve names: write an https:// \
         URL"
    );
    context.shared.findings.warn(warning);
}

/// Warns of servers of `forward_auth` that are asked in plain text, with the cookies of clients.
fn forwarded(raw: &raw::Config, host: &raw::Host, path: &KeyPath, context: &mut Context<'_>) {
    for (number, route) in host.routes().iter().enumerate() {
        let Some(auth) = &route.forward_auth.forward_auth else { continue };
        let group = auth.upstream.as_ref().and_then(|name| raw.upstream.get(name));
        let servers = group.into_iter().flat_map(|group| &group.features.servers.servers);
        let servers = servers.map(|server| ("upstream", server.url.to_string()));
        let mut asked = auth.url.iter().map(|url| ("url", url.clone())).chain(servers);
        if let Some((key, host)) = asked.find_map(|(key, url)| Some((key, plain_host(&url)?))) {
            let path = path.key("route").index(number).key("forward_auth").key(key);
            let warning = format!(
                "{path}: {host} decides over plain HTTP, so an attacker in the network in between can read cookies and permit \
                 requests: write an https:// URL"
            );
            context.shared.findings.warn(warning);
        }
    }
}

/// The host of a URL without TLS, unless it is this machine.
fn plain_host(url: &str) -> Option<String> {
    let url = url.parse::<Uri>().ok()?;
    // `Uri::host` keeps the brackets of IPv6, which `IpAddr` does not parse.
    let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
    let is_local = host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    let scheme = url.scheme_str()?.to_ascii_lowercase();
    let is_plain = matches!(scheme.trim_start_matches("srv+"), "http" | "h2c");
    (is_plain && !is_local).then(|| host.to_owned())
}

fn served_folders(raw: &raw::Config, state_dir: Option<&Path>, context: &mut Context<'_>) {
    let folders = raw.host.iter().filter_map(|host| host.own.certificate_folder.as_ref());
    let folders = folders.map(|folder| context.shared.base.join(folder)).chain(state_dir.map(Path::to_owned));
    // Canonical paths on both sides: a link in the served folder may lead to a secret, and a folder may have
    // two names.
    let folders: Vec<PathBuf> = folders.map(|folder| canonical(&folder)).collect();
    let secrets = context.shared.secrets.iter().map(|secret| canonical(secret));
    let secrets: Vec<PathBuf> = secrets.chain(folders.iter().cloned()).collect();
    for (index, host) in raw.host.iter().enumerate() {
        for (number, route) in host.routes().iter().enumerate() {
            let Some(folder) = &route.action.directory else { continue };
            let path = KeyPath::of("host").index(index).key("route").index(number).key("static");
            // A folder that does not exist is reported where the route is resolved.
            let Ok(root) = context.shared.base.join(folder).canonicalize() else { continue };
            let shown = root.display();
            if let Some(secret) = secrets.iter().find(|secret| is_served(&root, secret)) {
                let message = format!(
                    "clients could request {}, which is in {shown}: serve another folder, or move the secret out of it",
                    secret.display()
                );
                context.shared.findings.wrong(&path, message);
            } else if let Some(outer) = folders.iter().find(|outer| root.starts_with(outer)) {
                let message = format!(
                    "clients could request files of {}, where brisk keeps or reads private keys: serve a folder outside of it",
                    outer.display()
                );
                context.shared.findings.wrong(&path, message);
            } else if SYSTEM.iter().any(|system| root == Path::new(system)) {
                let warning = format!(
                    "{path}: every client can read {shown} as a whole: name a folder that contains public files alone"
                );
                context.shared.findings.warn(warning);
            }
        }
    }
}

/// The path without links, also of a folder that brisk is yet to create.
fn canonical(path: &Path) -> PathBuf {
    // `canonicalize` fails for a missing folder, so links are followed as far as the path exists.
    path.canonicalize().unwrap_or_else(|_| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => canonical(parent).join(name),
        _ => path.to_owned(),
    })
}

/// Whether `secret` is in the served folder `root`, and no part of its path is hidden and therefore not served.
fn is_served(root: &Path, secret: &Path) -> bool {
    let is_hidden = |part: Component<'_>| brisk_answer::is_hidden_name(part.as_os_str().as_encoded_bytes());
    secret.strip_prefix(root).is_ok_and(|rest| !rest.components().any(is_hidden))
}
