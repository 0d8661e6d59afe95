//! The configuration: a file or the command line, read, checked and turned into settings.

mod document;
mod error;
mod findings;
pub(crate) mod raw;
mod reader;
mod resolve;
pub(crate) mod units;
mod values;

#[cfg(test)]
mod tests;

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;

use brisk_proxy::upstream_settings::ServerUrl;

use crate::args::{self, Serve};
use document::Document;
pub(crate) use error::ConfigError;
use error::Located;
pub(crate) use resolve::acme::{CertificatePlace, ResolvedAcme};
pub(crate) use resolve::consolidate::MOST_ORIGINS;
pub(crate) use resolve::keyserver::ResolvedKeyServer;
pub(crate) use resolve::visit_store::VisitSettings;
pub(crate) use resolve::{Development, Resolved};
use values::{Address, UpstreamServer};

/// The port of a first run: one that needs no rights.
const FIRST_PORT: u16 = 8443;

/// The text of the file that `serve` names. It may be a pipe, which is there once.
pub(crate) fn text(serve: &Serve) -> Result<Option<String>, ConfigError> {
    serve.config.as_deref().map(read_text).transpose()
}

/// Settings for `brisk serve`, as they are now.
pub(crate) fn settings(serve: &Serve) -> Result<Resolved, ConfigError> {
    settings_of(serve, text(serve)?.as_deref())
}

/// Settings for `brisk serve`: from the text of the file that `serve` names or for a first run, with what the line overrides.
pub(crate) fn settings_of(serve: &Serve, text: Option<&str>) -> Result<Resolved, ConfigError> {
    let resolved = if let (Some(file), Some(text)) = (&serve.config, text) {
        read(file, text, serve, Development::Create)
    } else {
        let mut raw = first_run(serve.upstream.clone());
        apply(serve, &mut raw);
        finish(&raw, &Document::empty(), Vec::new(), Path::new("brisk serve"), Development::Create)
            .map_err(ConfigError::without_keys)
    };
    let mut resolved = resolved?;
    resolved.settings.tls.key_log = serve.keylog;
    Ok(resolved)
}

/// What a file says of isolation, before anything else of it is read.
pub(crate) struct Isolation {
    /// The user that holds the keys.
    pub(crate) user: Option<String>,
}

/// Whether keys are to be in a process of their own. What is wrong with the text is said when all of it is read.
pub(crate) fn isolation(text: &str) -> Option<Isolation> {
    let keys = text.parse::<toml::Table>().ok()?.remove("keys")?;
    let user = keys.get("isolate_user").and_then(|user| user.as_str()).map(str::to_owned);
    keys.get("isolate")?.as_bool()?.then_some(Isolation { user })
}

/// Checks `file` and writes nothing.
pub(crate) fn check(file: &Path) -> Result<Resolved, ConfigError> {
    read(file, &read_text(file)?, &Serve::default(), Development::Leave)
}

/// Settings of a key server, from its file. Writes nothing.
pub(crate) fn keyserver(file: &Path) -> Result<ResolvedKeyServer, ConfigError> {
    let text = read_text(file)?;
    let document = Document::parse(&text).map_err(|problems| ConfigError::new(file, problems))?;
    let (raw, unread) = document.read::<raw::ServerConfig>();
    let base = file.parent().unwrap_or(Path::new(""));
    let mut resolved = resolve::keyserver::resolve(&raw, &document, unread, base)
        .map_err(|problems| ConfigError::new(file, problems))?;
    resolved.settings.server.files.push(file.to_owned());
    Ok(resolved)
}

fn read_text(file: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(file).map_err(|error| ConfigError::unreadable(file, &error))
}

fn read(file: &Path, text: &str, serve: &Serve, development: Development) -> Result<Resolved, ConfigError> {
    let document = Document::parse(text).map_err(|problems| ConfigError::new(file, problems))?;
    let (mut raw, unread) = document.read::<raw::Config>();
    apply(serve, &mut raw);
    shortcuts(&mut raw);
    let mut resolved = finish(&raw, &document, unread, file, development)?;
    resolved.settings.server.files.push(file.to_owned());
    Ok(resolved)
}

fn finish(
    raw: &raw::Config,
    document: &Document<'_>,
    unread: Vec<Located>,
    file: &Path,
    development: Development,
) -> Result<Resolved, ConfigError> {
    let base = file.parent().unwrap_or(Path::new(""));
    resolve::resolve(raw, document, unread, base, development)
        .map_err(|problems| ConfigError::new(file, problems))
}

/// Localhost with the built-in page, or `upstream` behind it.
fn first_run(upstream: Option<ServerUrl>) -> raw::Config {
    let name = "upstream".to_owned();
    let route = raw::Route { path: "/".to_owned(), upstream: Some(name.clone()), ..raw::Route::default() };
    let host = raw::Host {
        names: brisk_certs::DevelopmentCa::NAMES.map(str::to_owned).to_vec(),
        route: upstream.iter().map(|_| route.clone()).collect(),
        ..raw::Host::default()
    };
    let group = |url| raw::Upstream {
        servers: vec![UpstreamServer { url, weight: None }],
        ..raw::Upstream::default()
    };
    raw::Config {
        server: raw::Server {
            https: loopback(),
            // The clients are on this machine, and may use any name for it.
            unknown_host: Some(raw::UnknownHost::Default),
            ..raw::Server::default()
        },
        dashboard: Some(raw::Dashboard { or_any_port: true, ..raw::Dashboard::default() }),
        host: vec![host],
        upstream: upstream.map(|url| (name, group(url))).into_iter().collect(),
        ..raw::Config::default()
    }
}

/// `localhost` is both; where the machine has no IPv6, the other alone.
fn loopback() -> Vec<Address> {
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST_PORT));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, FIRST_PORT));
    let has_v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    [v4].into_iter().chain(has_v6.then_some(v6)).map(Address).collect()
}

/// The addresses of a file that names none, where certificates are obtained: browsers and authorities come to these ports.
const USUAL_HTTPS: [&str; 2] = ["0.0.0.0:443", "[::]:443"];
const USUAL_HTTP: [&str; 2] = ["0.0.0.0:80", "[::]:80"];

/// Writes out what a short file leaves unsaid: the usual ports and the refusal of unknown names where certificates are
/// obtained, and the route of a host that has only an upstream.
fn shortcuts(raw: &mut raw::Config) {
    if raw.host.iter().any(|host| host.acme.is_on() || host.on_demand.is_some()) {
        let usual =
            |addresses: [&str; 2]| addresses.iter().filter_map(|address| address.parse().ok()).collect();
        if raw.server.https.is_empty() && raw.server.http.is_empty() {
            (raw.server.https, raw.server.http) = (usual(USUAL_HTTPS), usual(USUAL_HTTP));
        }
        raw.server.unknown_host.get_or_insert(raw::UnknownHost::Refuse);
    }
    for host in &mut raw.host {
        let Some(server) = host.upstream.take() else { continue };
        let name = server.url.to_string();
        let route =
            raw::Route { path: "/".to_owned(), upstream: Some(name.clone()), ..raw::Route::default() };
        host.route.push(route);
        let group = raw::Upstream { servers: vec![server], ..raw::Upstream::default() };
        raw.upstream.entry(name).or_insert(group);
    }
}

/// Puts what the command line says in the place of what the file says.
fn apply(serve: &Serve, raw: &mut raw::Config) {
    if !serve.listen.is_empty() {
        raw.server.https = serve.listen.iter().copied().map(Address).collect();
    }
    if let Some(dir) = &serve.state_dir {
        // The folder of the file is no business of the command line.
        raw.server.state_dir = Some(std::path::absolute(dir).unwrap_or_else(|_| dir.clone()));
    }
    if let Some(directory) = &serve.acme_directory {
        raw.acme.directory = Some(directory.clone());
    }
    if let Some(ca) = &serve.acme_ca {
        raw.acme.ca = Some(std::path::absolute(ca).unwrap_or_else(|_| ca.clone()));
    }
    raw.server.workers = serve.workers.or(raw.server.workers);
    let format = serve.access_log.map(|format| match format {
        args::AccessLog::Text => raw::AccessLogFormat::Text,
        args::AccessLog::Json => raw::AccessLogFormat::Json,
        args::AccessLog::Off => raw::AccessLogFormat::Off,
    });
    raw.access_log.format = format.or(raw.access_log.format);
}
