//! The configuration: parses a file or the command line, validates it and converts it to settings.

mod certificate_files;
mod early;
mod foreign;
mod key_settings;
mod process;
mod raw;
mod renewal;
mod resolve;

#[cfg(test)]
mod tests;

use std::env;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use brisk_answer::features::RouteKeys;
pub use brisk_config_file::Sources;
pub use brisk_config_file::{ConfigError, Period};
use brisk_config_file::{Document, Located, Syntax};
use brisk_sandbox::Rights;
use brisk_upstream_group::features::servers::UpstreamServer;
use brisk_upstream_group::settings::ServerUrl;
pub use certificate_files::CertificateFiles;
pub use early::{EarlyKeys, Isolation, early_keys};
pub use key_settings::{GpuSettings, IsolationSettings, KeySettings};
pub use process::Running;
pub use raw::AccessLogFormat;
use raw::values::{self, Address};
pub use renewal::Renewed;
pub use resolve::Resolved;
pub use resolve::acme::{CertificatePlace, ResolvedAcme};
use resolve::context::Development;
pub use resolve::keyserver::ResolvedKeyServer;
pub use resolve::sandbox::SandboxSettings;
pub use resolve::visit_store::VisitSettings;

/// The port of a first run: one that needs no rights.
const FIRST_PORT: u16 = 8443;

/// Options of the command line of `brisk serve`, which take precedence over those of the file.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// The file; without one, localhost is served with development certificates.
    pub file: Option<PathBuf>,
    /// The upstream of all requests, where there is no file.
    pub upstream: Option<ServerUrl>,
    /// Addresses for HTTPS; none leaves those of the file.
    pub listen: Vec<SocketAddr>,
    /// The folder for the development CA and for certificates.
    pub state_dir: Option<PathBuf>,
    /// URL of the directory of the certificate authority.
    pub acme_directory: Option<String>,
    /// File with the authorities that the server of the certificate authority is verified with.
    pub acme_ca: Option<PathBuf>,
    /// Number of worker threads, at least 1.
    pub workers: Option<u16>,
    /// Format of the access log.
    pub access_log: Option<AccessLogFormat>,
    /// Whether TLS secrets are written to the file in `SSLKEYLOGFILE`.
    pub key_log: bool,
}

impl CommandLine {
    /// The texts of the file and of those that it includes, if the line names one. It may be a pipe, which can be read once.
    pub fn sources(&self) -> Result<Option<Sources>, ConfigError> {
        self.file.as_deref().map(|file| sources(file, &Rights::default())).transpose()
    }

    /// Settings for `brisk serve`, as they are now.
    pub fn settings(&self, running: &Running) -> Result<Resolved, ConfigError> {
        let sources = self.file.as_deref().map(|file| sources(file, &running.rights)).transpose()?;
        self.settings_of(sources.as_ref(), running)
    }

    /// Settings for `brisk serve` with these [`sources`](Self::sources); without any, those of a first run.
    pub fn settings_of(&self, sources: Option<&Sources>, running: &Running) -> Result<Resolved, ConfigError> {
        // The list is that of the last attempt: a key that this configuration can load is no longer a reason
        // against readiness.
        running.refused_keys.clear();
        let resolved = if let (Some(file), Some(sources)) = (&self.file, sources) {
            read(file, sources, self, Development::Create, running)
        } else {
            let mut raw = first_run(self.upstream.clone());
            self.apply(&mut raw);
            // There is no file to name in an error: the command takes its place, and key paths are left out.
            let file = Path::new("brisk serve");
            finish(&raw, &Document::empty(), Vec::new(), file, Development::Create, running)
                .map_err(ConfigError::without_keys)
        };
        let mut resolved = resolved?;
        resolved.settings.tls.key_log = self.key_log;
        if let Some(file) = env::var_os("SSLKEYLOGFILE").filter(|_| self.key_log) {
            resolved.sandbox.folders.append_to(Path::new(&file));
        }
        Ok(resolved)
    }

    /// Replaces values of the file by those of the line.
    fn apply(&self, raw: &mut raw::Config) {
        if !self.listen.is_empty() {
            raw.server.https = self.listen.iter().copied().map(Address).collect();
        }
        if let Some(dir) = &self.state_dir {
            // Relative to the working directory, not to the folder of the file.
            raw.server.state_dir = Some(std::path::absolute(dir).unwrap_or_else(|_| dir.clone()));
        }
        if let Some(directory) = &self.acme_directory {
            raw.acme.directory = Some(directory.clone());
        }
        if let Some(ca) = &self.acme_ca {
            raw.acme.ca = Some(std::path::absolute(ca).unwrap_or_else(|_| ca.clone()));
        }
        raw.server.workers = self.workers.or(raw.server.workers);
        let format = self.access_log.map(raw::LogFormat::Named);
        raw.access_log.format = format.or(raw.access_log.format.take());
    }
}

/// Checks `file` and writes nothing.
pub fn check(file: &Path, running: &Running) -> Result<Resolved, ConfigError> {
    read(file, &sources(file, &running.rights)?, &CommandLine::default(), Development::Leave, running)
}

/// Settings of a key server, from its file. Writes nothing.
pub fn keyserver(file: &Path, running: &Running) -> Result<ResolvedKeyServer, ConfigError> {
    let sources = sources(file, &running.rights)?;
    keyserver_of(file, &sources, running)
        .map_err(|error| error.with_files(sources.watched().cloned().collect()))
}

fn keyserver_of(file: &Path, sources: &Sources, running: &Running) -> Result<ResolvedKeyServer, ConfigError> {
    let document = expanded(sources, |_| None)?;
    // No advice about other programs: their terms have counterparts in a gateway, not in a key server.
    let (raw, unread) = document.read::<raw::ServerConfig>();
    let base = file.parent().unwrap_or(Path::new(""));
    let mut resolved = resolve::keyserver::resolve(&raw, &document, unread, base, running)
        .map_err(|problems| ConfigError::new(file, problems))?;
    for file in files_of(&document, sources) {
        resolved.sandbox.folders.read_file(&file);
        resolved.settings.server.files.push(file);
    }
    Ok(resolved)
}

/// Keys whose texts have no variables of the environment, since `${` has another meaning in them: expressions, and content for
/// clients.
const VERBATIM: [&str; 4] = ["body", "path_regex", "pattern", "regex"];

/// Reason for which a folder of `include` cannot be read.
const OTHER_FOLDER: &str = "the sandbox permits the folders of the configuration at the start: restart brisk to include files of others";

/// The error of the system without a right.
const EACCES: i32 = 13;

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// `file` and the files that it includes, read by a process with these `rights`.
fn sources(file: &Path, rights: &Rights) -> Result<Sources, ConfigError> {
    let read = |file: &Path| match rights.refusal(file) {
        Some(reason) => Err(ConfigError::of_text(file, None, &reason)),
        None => read_text(file),
    };
    let denied = io::Error::from_raw_os_error(EACCES).to_string();
    Sources::read(file, &variable, &read).map_err(|error| {
        // A folder of a pattern; files are explained above.
        let is_denied = rights.limit_files() && error.to_string().contains(&denied);
        if is_denied { error.because(OTHER_FOLDER) } else { error }
    })
}

/// The document of `sources` with its variables of the environment.
fn expanded(sources: &Sources, syntax: Syntax) -> Result<Document<'_>, ConfigError> {
    let mut document = Document::of(sources, syntax)?;
    let file = sources.main();
    let expansion = document.expand(file.parent().unwrap_or(Path::new("")), &VERBATIM, &variable);
    expansion.map_err(|problems| ConfigError::new(file, problems))?;
    Ok(document)
}

/// The files that a configuration consists of, and patterns of `include`.
fn files_of(document: &Document<'_>, sources: &Sources) -> impl Iterator<Item = PathBuf> {
    document.inserted().iter().chain(sources.watched()).cloned().collect::<Vec<_>>().into_iter()
}

fn read_text(file: &Path) -> Result<String, ConfigError> {
    let bytes = fs::read(file).map_err(|error| ConfigError::unreadable(file, &error))?;
    // Before UTF-8 is checked: a file in UTF-16 then gets a message about its encoding instead of one about
    // an invalid byte.
    if let Some(fault) = brisk_keys::encoding_fault(&bytes) {
        return Err(ConfigError::of_text(file, None, fault));
    }
    String::from_utf8(bytes).map_err(|error| {
        let lines = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n');
        let column = lines.clone().next_back().map_or(0, <[u8]>::len) + 1;
        ConfigError::of_text(file, Some((lines.count(), column)), "not UTF-8: save the file as UTF-8")
    })
}

fn read(
    file: &Path,
    sources: &Sources,
    line: &CommandLine,
    development: Development,
    running: &Running,
) -> Result<Resolved, ConfigError> {
    // Also with a file that only this configuration includes: its correction is noticed.
    let with_files = |error: ConfigError| error.with_files(sources.watched().cloned().collect());
    // Names the program to which a file, or an unknown key in it, belongs.
    let document = expanded(sources, foreign::syntax).map_err(with_files)?.with_advice(foreign::advice);
    let (mut raw, unread) = document.read::<raw::Config>();
    // Before `shortcuts`, which adds the usual addresses only if neither the file nor the line has any.
    line.apply(&mut raw);
    shortcuts(&mut raw);
    let mut resolved = finish(&raw, &document, unread, file, development, running).map_err(with_files)?;
    resolved.certificate_files.sources = Some(sources.clone());
    let files: Vec<_> = files_of(&document, sources).collect();
    // The first text was read before the process gave up rights. A reload must be able to read it too.
    if let Some(refusal) = resolve::sandbox::refusals(&files, running).first() {
        return Err(ConfigError::of_text(file, None, refusal));
    }
    for file in &files {
        resolved.sandbox.folders.read_file(file);
    }
    resolved.settings.server.files.extend(files);
    Ok(resolved)
}

fn finish(
    raw: &raw::Config,
    document: &Document<'_>,
    unread: Vec<Located>,
    file: &Path,
    development: Development,
    running: &Running,
) -> Result<Resolved, ConfigError> {
    let base = file.parent().unwrap_or(Path::new(""));
    resolve::resolve(raw, document, unread, base, (development, running))
        .map_err(|problems| ConfigError::new(file, problems))
}

/// Localhost with the built-in page, or `upstream` behind it.
fn first_run(upstream: Option<ServerUrl>) -> raw::Config {
    let name = "upstream".to_owned();
    let mut host = raw::Host::default();
    // The development CA has certificates for these names alone.
    host.features.site.names = brisk_certs::DevelopmentCa::NAMES.map(str::to_owned).to_vec();
    host.features.site.route = upstream.iter().map(|_| whole_host(name.clone())).collect();
    let group = |url| raw::Upstream::of(UpstreamServer::new(url));
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

/// A route for all paths of a host to an upstream.
fn whole_host(upstream: String) -> RouteKeys {
    let mut route = RouteKeys::default();
    "/".clone_into(&mut route.paths.path);
    route.action.upstream = Some(upstream);
    route
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
    if raw.host.iter().any(|host| host.own.acme.is_on() || host.own.on_demand.is_some()) {
        let usual =
            |addresses: [&str; 2]| addresses.iter().filter_map(|address| address.parse().ok()).collect();
        if raw.server.https.is_empty() && raw.server.http.is_empty() {
            (raw.server.https, raw.server.http) = (usual(USUAL_HTTPS), usual(USUAL_HTTP));
        }
        raw.server.unknown_host.get_or_insert(raw::UnknownHost::Refuse);
    }
    if raw.host.is_empty() && !raw.tcp.is_empty() && raw.server.https.is_empty() && raw.server.http.is_empty()
    {
        // No listener serves it: the file forwards TCP connections only.
        let mut host = raw::Host::default();
        // A host is required otherwise. Any name will do, and without a listener the host needs no
        // certificate.
        host.features.site.names = vec!["localhost".to_owned()];
        raw.host.push(host);
    }
    for tcp in &raw.tcp {
        let Some(name) = tcp.upstream.as_ref().filter(|name| resolve::tcp::is_server(name)) else { continue };
        if let Ok(url) = name.parse() {
            // Named by its URL, so that several `[[tcp]]` with one server share its connections, health and
            // limits.
            raw.upstream.entry(name.clone()).or_insert_with(|| raw::Upstream::of(UpstreamServer::new(url)));
        }
    }
    for host in &mut raw.host {
        let Some(server) = host.own.upstream.take() else { continue };
        let name = server.url.to_string();
        host.features.site.route.push(whole_host(name.clone()));
        let group = raw::Upstream::of(server);
        // Two hosts with the same server share its group. The first one decides about the settings of the
        // server.
        raw.upstream.entry(name).or_insert(group);
    }
}
