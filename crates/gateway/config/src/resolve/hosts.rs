//! `[[host]]`: names, certificates, HSTS and client authentication.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use brisk_answer::features;
use brisk_answer::settings::{AltSvc, HostSettings};
use brisk_certs::{Certificate, DevelopmentCa, Loaded, Slot, load};
use brisk_config_file::KeyPath;
use brisk_tls::Demands;

use super::clients::authenticated;
use super::context::{Context, Development};
use super::names::host_name;
use super::{certificates, early_data, files, http3, isolation, on_demand, remote, tokens};
use crate::raw;
use crate::raw::values::KeyPlace;

/// All hosts, resolved.
pub(super) struct Hosts {
    pub(super) all: Vec<HostSettings>,
    /// The certificates of each `[[tcp]]`.
    pub(super) of_tcp: Vec<Vec<Arc<Certificate>>>,
    /// The development CA, once a host needed it.
    pub(super) development: Option<DevelopmentCa>,
}

/// Resolves every host of the file.
pub(super) fn hosts(
    raw: &raw::Config,
    state_dir: Option<&Path>,
    development: Development,
    remote: &remote::Engines,
    context: &mut Context<'_>,
) -> Hosts {
    let all = KeyPath::of("host");
    if raw.host.is_empty() && !context.shared.findings.written(&all) {
        context.shared.findings.wrong(&all, "no host: write at least one [[host]] with its `names`");
    }
    defaults(&raw.host, &all, context);
    let mut builder = Builder::new(raw, state_dir, development, remote);
    unknown(raw, context);
    let hosts = raw.host.iter().enumerate();
    let all = hosts.map(|(index, host)| builder.host(index, host, &all.index(index), context)).collect();
    let tcp = raw.tcp.iter().enumerate();
    let of_tcp = tcp.map(|(index, tcp)| builder.of_tcp(tcp, &KeyPath::of("tcp").index(index), context));
    let of_tcp = of_tcp.collect();
    Hosts { all, of_tcp, development: builder.ca }
}

/// The names and certificates of the hosts with these numbers, which [renew](renews).
pub(super) fn certificates_of(
    raw: &raw::Config,
    hosts: &[usize],
    context: &mut Context<'_>,
) -> Vec<(Vec<String>, Vec<Arc<Certificate>>)> {
    let all = KeyPath::of("host");
    // Empty: `renews` excludes hosts with keys on key servers.
    let no_engines = remote::Engines::new();
    let mut builder = Builder::new(raw, None, Development::Leave, &no_engines);
    let of_host = |index: &usize| {
        let (host, path) = (&raw.host[*index], all.index(*index));
        let names = builder.names(host, &path, context);
        let certificates = builder.covering(host, &names, &path, context);
        (names, certificates)
    };
    hosts.iter().map(of_host).collect()
}

/// Whether certificates of the host can be loaded without the rest of the configuration. A key process loads all keys of a
/// configuration at once, and the connections to key servers are part of the configuration.
fn renews(host: &raw::Host, context: &Context<'_>) -> bool {
    let is_on_server = |files: &raw::Certificate| matches!(files.key, KeyPlace::KeyServer(_));
    context.isolated.process().is_none() && !host.own.certificates.iter().any(is_on_server)
}

/// Checks that at most one host is the default.
fn defaults(hosts: &[raw::Host], path: &KeyPath, context: &mut Context<'_>) {
    let mut defaults =
        hosts.iter().enumerate().filter(|(_, host)| host.own.default).map(|(index, _)| path.index(index));
    let Some(first) = defaults.next() else { return };
    for other in defaults {
        context
            .shared
            .findings
            .wrong(&other.key("default"), format!("{first} is the default already; there can be one"));
    }
}

/// Warns if `unknown_host` is not written and unknown names reach an upstream, which may take them for its own.
fn unknown(raw: &raw::Config, context: &mut Context<'_>) {
    let default = raw.host.iter().find(|host| host.own.default).or_else(|| raw.host.first());
    let Some(default) = default.filter(|_| raw.server.unknown_host.is_none()) else { return };
    if default.routes().iter().any(|route| route.action.any_upstream().is_some()) {
        let name = default.names().first().map_or("", String::as_str);
        context.shared.findings.warn(format!(
            "server.unknown_host is not written: requests for names that no host has go to the upstreams of \"{name}\", with \
             the client's name as Host; write unknown_host = \"refuse\", or \"default\" if that is meant"
        ));
    }
}

struct Builder<'c> {
    raw: &'c raw::Config,
    state_dir: Option<&'c Path>,
    mode: Development,
    remote: &'c remote::Engines,
    ca: Option<DevelopmentCa>,
    /// The host that has a name, by its path.
    named: HashMap<String, KeyPath>,
    /// Certificates by their chains and keys: a pair that several hosts show is one.
    loaded: HashMap<(PathBuf, KeyPlace), Arc<Certificate>>,
}

impl<'c> Builder<'c> {
    fn new(
        raw: &'c raw::Config,
        state_dir: Option<&'c Path>,
        mode: Development,
        remote: &'c remote::Engines,
    ) -> Self {
        Self { raw, state_dir, mode, remote, ca: None, named: HashMap::new(), loaded: HashMap::new() }
    }

    fn host(
        &mut self,
        index: usize,
        host: &raw::Host,
        path: &KeyPath,
        context: &mut Context<'_>,
    ) -> HostSettings {
        let names = self.names(host, path, context);
        context.files.hosts.push(HashSet::new());
        context.loads_certificates = renews(host, context);
        let certificates = self.covering(host, &names, path, context);
        context.loads_certificates = false;
        let marked = self.raw.host.iter().any(|host| host.own.default);
        let clients = host.features.client_certificates.client_certificates.as_ref();
        let clients_path = path.key("client_certificates");
        let alt_svc = http3::of_host(host, &self.raw.server, path, context);
        let tls = brisk_tls::HostSettings {
            names,
            default: host.own.default || (!marked && index == 0),
            certificates,
            obtained: host.own.acme.is_on(),
            without_tls: self.is_without_tls(host),
            slot: Slot::new(),
            catalogue: certificates::catalogue(host, self.raw, path, context),
            on_demand: on_demand::names(host, path, context),
            demands: clients.map_or_else(Demands::default, |clients| {
                Demands::new(authenticated(clients, host, self.raw, &clients_path, context))
            }),
            early_data: early_data::limit(self.raw, host, path, context),
            other_tickets: Vec::new(),
            quic: alt_svc != Some(AltSvc::Clear),
            protocols: None,
        };
        HostSettings { alt_svc, ..features::host(&host.features, tls, path, &mut context.shared) }
    }

    /// Whether the host has no listener with TLS, and serves plain HTTP or has no listener at all, so that it needs no certificate.
    fn is_without_tls(&self, host: &raw::Host) -> bool {
        let server = &self.raw.server;
        server.https.is_empty() && (host.serves_plain() || server.http.is_empty())
    }

    /// The certificates of the host, after a warning for each name that a certificate does not cover.
    fn covering(
        &mut self,
        host: &raw::Host,
        names: &[String],
        path: &KeyPath,
        context: &mut Context<'_>,
    ) -> Vec<Arc<Certificate>> {
        let certificates = self.certificates(host, names, path, context);
        uncovered(names, &certificates, context);
        certificates
    }

    fn names(&mut self, host: &raw::Host, path: &KeyPath, context: &mut Context<'_>) -> Vec<String> {
        let path = path.key("names");
        if host.names().is_empty() && !context.shared.findings.written(&path.index(0)) {
            context.shared.findings.wrong(&path, "no name: write at least one, as \"example.com\"");
        }
        let mut names = Vec::new();
        for (index, text) in host.names().iter().enumerate() {
            let path = path.index(index);
            match host_name(text) {
                Err(message) => context.shared.findings.wrong(&path, message),
                Ok(name) if self.named.contains_key(&name) => {
                    let message = format!("{} is \"{name}\" already", self.named[&name]);
                    context.shared.findings.wrong(&path, message);
                }
                Ok(name) => {
                    self.named.insert(name.clone(), path);
                    names.push(name);
                }
            }
        }
        names
    }

    fn certificates(
        &mut self,
        host: &raw::Host,
        names: &[String],
        path: &KeyPath,
        context: &mut Context<'_>,
    ) -> Vec<Arc<Certificate>> {
        let path = path.key("certificates");
        if host.own.acme.is_on() {
            if !host.own.certificates.is_empty() {
                context.shared.findings.wrong(&path, "has no effect beside `acme`: keep one of the two");
            }
            return Vec::new();
        }
        let has_more = host.own.certificate_folder.is_some() || host.own.on_demand.is_some();
        if host.own.certificates.is_empty() && has_more {
            if host.own.certificate_folder.is_none() {
                context.shared.findings.warn(format!(
                    "{}: there is no certificate for {}: names of the host are never obtained on demand; write `acme = true`, or \
                     `certificates`",
                    path,
                    names.join(", ")
                ));
            }
            return Vec::new();
        }
        if host.own.certificates.is_empty() && self.is_without_tls(host) {
            return Vec::new();
        }
        if host.own.certificates.is_empty() {
            return self.development_certificates(names, &path, context);
        }
        let written = host.own.certificates.iter().enumerate();
        written.filter_map(|(index, files)| self.certificate(files, &path.index(index), context)).collect()
    }

    /// The certificates of a `[[tcp]]`. A change of their files is a reload of the whole configuration.
    fn of_tcp(
        &mut self,
        tcp: &raw::TcpKeys,
        path: &KeyPath,
        context: &mut Context<'_>,
    ) -> Vec<Arc<Certificate>> {
        let path = path.key("certificates");
        let written = tcp.certificates.iter().enumerate();
        let certificates: Vec<_> = written
            .filter_map(|(index, files)| self.certificate(files, &path.index(index), context))
            .collect();
        let names: Vec<_> = tcp.names.iter().filter_map(|name| host_name(name).ok()).collect();
        uncovered(&names, &certificates, context);
        certificates
    }

    fn certificate(
        &mut self,
        files: &raw::Certificate,
        path: &KeyPath,
        context: &mut Context<'_>,
    ) -> Option<Arc<Certificate>> {
        if files.fallback_key.is_some() && !matches!(files.key, KeyPlace::KeyServer(_)) {
            let message = "has no effect: it is for key = \"keyserver:NAME\"";
            context.shared.findings.wrong(&path.key("fallback_key"), message);
        }
        let certificate = self.with_key(files, path, context)?;
        certificates::stapled(certificate, files, self.raw, path, context)
    }

    fn with_key(
        &mut self,
        files: &raw::Certificate,
        path: &KeyPath,
        context: &mut Context<'_>,
    ) -> Option<Arc<Certificate>> {
        let chain = context.file(&files.chain);
        let key = match &files.key {
            // The process that reads it watches it too.
            KeyPlace::File(key) if context.isolated.process().is_some() => {
                KeyPlace::File(context.shared.base.join(key))
            }
            KeyPlace::File(key) => KeyPlace::File(context.file(key)),
            KeyPlace::KeyServer(name) => {
                return remote::certificate(files, name, self.remote, path, context);
            }
            token @ KeyPlace::Token(_) => token.clone(),
        };
        let holder = key.to_string();
        self.load((chain, key), path, context)
            .map_err(|(blamed, message)| {
                let path = path.key(blamed);
                if blamed == "key" {
                    context.refuse_key(&path, self.raw, holder, &message);
                }
                context.shared.findings.wrong(&path, message);
            })
            .ok()
    }

    /// Loads a certificate with its key. The error names the file at fault.
    fn load(
        &mut self,
        files: (PathBuf, KeyPlace),
        path: &KeyPath,
        context: &mut Context<'_>,
    ) -> Result<Arc<Certificate>, (&'static str, String)> {
        if let Some(known) = self.loaded.get(&files) {
            return Ok(Arc::clone(known));
        }
        let loaded = match &files.1 {
            KeyPlace::File(key) => match context.isolated.process() {
                Some(process) => isolation::load(process, (&files.0, key), path, context),
                None => from_files(&files.0, key, context),
            },
            KeyPlace::Token(uri) => tokens::load(&files.0, uri, context),
            KeyPlace::KeyServer(_) => unreachable!("these are not loaded"),
        }?;
        let is_isolated = self.raw.keys.isolate == Some(true) && matches!(files.1, KeyPlace::File(_));
        if is_isolated && !loaded.certificate.algorithm.signs_tls12() {
            return Err(("key", remote::ML_DSA.to_owned()));
        }
        for warning in loaded.warnings {
            context.shared.findings.warn(warning.to_string());
        }
        let certificate = Arc::new(loaded.certificate);
        self.loaded.insert(files, Arc::clone(&certificate));
        Ok(certificate)
    }

    /// Certificates of the development CA for a host without any; only names of this machine get one.
    fn development_certificates(
        &mut self,
        names: &[String],
        path: &KeyPath,
        context: &mut Context<'_>,
    ) -> Vec<Arc<Certificate>> {
        let foreign = names.iter().find(|name| !DevelopmentCa::NAMES.contains(&name.as_str()));
        if let Some(name) = foreign.filter(|_| !context.shared.findings.written(&path.index(0))) {
            let message = format!(
                "no certificate for \"{name}\": write certificates = [{{ chain = \"FILE\", key = \"FILE\" }}]; only \
                 localhost has a development certificate"
            );
            context.shared.findings.wrong(path, message);
        }
        if self.mode == Development::Leave || foreign.is_some() || names.is_empty() {
            return Vec::new();
        }
        self.development(path, context).unwrap_or_else(|message| {
            context.shared.findings.wrong(path, message);
            Vec::new()
        })
    }

    fn development(
        &mut self,
        path: &KeyPath,
        context: &mut Context<'_>,
    ) -> Result<Vec<Arc<Certificate>>, String> {
        if self.ca.is_none() {
            let dir = self
                .state_dir
                .ok_or("no home folder for development certificates: name one with `server.state_dir` or --state-dir")?;
            let ca = DevelopmentCa::open_or_create(dir, SystemTime::now()).map_err(|error| {
                format!("development certificates: {error}; `server.state_dir` or --state-dir names another folder")
            })?;
            self.ca = Some(ca);
        }
        let servers = self.ca.iter().flat_map(DevelopmentCa::servers).cloned().collect::<Vec<_>>();
        let load = |files: brisk_certs::development::ServerFiles| {
            self.load((files.chain, KeyPlace::File(files.key)), path, context).map_err(|(_, message)| message)
        };
        servers.into_iter().map(load).collect()
    }
}

/// A certificate whose key is in a file.
fn from_files(chain: &Path, key: &Path, context: &mut Context<'_>) -> Result<Loaded, (&'static str, String)> {
    let loaded = load(chain, key, &mut context.keystore, SystemTime::now())
        .map_err(|error| (files::blamed(&error, key), error.to_string()))?;
    context.shared.warn_of_access(key);
    Ok(loaded)
}

/// Warns of names that no certificate is for: browsers will refuse them.
fn uncovered(names: &[String], certificates: &[Arc<Certificate>], context: &mut Context<'_>) {
    let covers = |name: &String, certificate: &Arc<Certificate>| {
        certificate.names.contains(name) || certificate.covers(name)
    };
    for certificate in certificates {
        for name in names.iter().filter(|name| !covers(name, certificate)) {
            let file = certificate.source.display();
            context
                .shared
                .findings
                .warn(format!("{file}: the certificate is not for \"{name}\"; clients will refuse it there"));
        }
    }
}
