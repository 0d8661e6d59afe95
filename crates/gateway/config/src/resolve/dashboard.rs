//! `[dashboard]`: its address, and authentication of clients from other machines.

use std::net::{Ipv4Addr, SocketAddr};

use brisk_config_file::KeyPath;
use brisk_dashboard::{DashboardSettings, Token};
use brisk_tls::internal::InternalSettings;
use http::uri::Authority;

use super::clients::authorities;
use super::context::Context;
use super::upstreams::identity;
use crate::raw;

/// Default address.
pub(super) const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8440);

/// The settings of the dashboard, if there is to be one.
pub(super) fn dashboard(
    raw: Option<&raw::Dashboard>,
    context: &mut Context<'_>,
) -> Option<DashboardSettings> {
    let raw = raw?;
    let path = KeyPath::of("dashboard");
    let listen = raw.listen.map_or(LISTEN, |address| address.0);
    let settings = DashboardSettings {
        or_any_port: raw.or_any_port,
        names: names(raw, &path, context),
        token: token(raw, &path, context),
        tls: tls(raw, &path, context),
        ..DashboardSettings::new(listen)
    };
    // By the written keys and not by the settings: a token that cannot be read has its own error, and is no
    // missing one.
    let is_guarded = raw.token.is_some() || raw.client_ca.is_some();
    if !settings.is_local() && !is_guarded && !context.shared.findings.written(&path.key("token")) {
        let message = format!(
            "{listen} can be reached from elsewhere, and anyone could look: write token = \"dashboard.token\", a file made \
             with `(umask 077; openssl rand -hex 32 > dashboard.token)`, or certificate and client_ca, so that browsers \
             show a certificate"
        );
        context.shared.findings.wrong(&path.key("listen"), message);
    } else if !settings.is_local() && raw.certificate.is_none() {
        context.shared.findings.warn(format!(
            "[dashboard]: {listen} can be reached from elsewhere, and the token crosses the network in the clear: write \
             certificate = {{ chain = \"dashboard.pem\", key = \"dashboard.key\" }}"
        ));
    }
    Some(settings)
}

/// Names in lower case, each a host without a port.
fn names(raw: &raw::Dashboard, path: &KeyPath, context: &mut Context<'_>) -> Vec<String> {
    for (index, name) in raw.names.iter().enumerate() {
        // `Host` has a port in most requests, but `names` are compared with the host alone, so a port here
        // would match nothing.
        let is_host = name.parse::<Authority>().is_ok_and(|authority| authority.host() == name);
        if !is_host {
            let message = format!(
                "{name:?} is no name of a host: write it without scheme and port, as \"dash.example.com\""
            );
            context.shared.findings.wrong(&path.key("names").index(index), message);
        }
    }
    raw.names.iter().map(|name| name.to_lowercase()).collect()
}

fn token(raw: &raw::Dashboard, path: &KeyPath, context: &mut Context<'_>) -> Option<Token> {
    let file = context.file(raw.token.as_ref()?);
    let token = Token::read(&file)
        .map_err(|error| context.shared.findings.wrong(&path.key("token"), error.to_string()))
        .ok()?;
    // The mode of the file was checked by `Token::read`. This notes the file as a secret that no route may
    // serve.
    context.shared.warn_of_access(&file);
    Some(token)
}

fn tls(raw: &raw::Dashboard, path: &KeyPath, context: &mut Context<'_>) -> Option<InternalSettings> {
    let client_ca = path.key("client_ca");
    let clients = raw.client_ca.as_ref().map(|ca| context.file(ca));
    if let Some(Err(error)) = clients.as_deref().map(authorities) {
        context.shared.findings.wrong(&client_ca, error);
    }
    let Some(files) = &raw.certificate else {
        if clients.is_some() && !context.shared.findings.written(&path.key("certificate")) {
            let message = "needs the dashboard's own certificate: write certificate = { chain = \"dashboard.pem\", key = \
                           \"dashboard.key\" }";
            context.shared.findings.wrong(&client_ca, message);
        }
        return None;
    };
    let identity = identity(files, &path.key("certificate"), context)?;
    Some(InternalSettings { identity, clients })
}
