//! Resolution of the operator's text into valid settings.

mod access_log;
pub(crate) mod acme;
mod addresses;
mod certificates;
mod clients;
pub(crate) mod context;
mod dangers;
mod dashboard;
mod dns;
mod drain;
mod early_data;
mod files;
mod foreign_variables;
mod hosts;
mod http3;
mod isolation;
mod keys;
pub(crate) mod keyserver;
mod memory_limits;
mod names;
mod on_demand;
mod otlp;
mod oversights;
mod redis;
mod remote;
pub(crate) mod sandbox;
mod server;
mod sessions;
pub(crate) mod tcp;
mod tokens;
mod upstreams;
mod variation;
pub(crate) mod visit_store;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brisk_answer::features::{self, consolidation, forward_auth, headers, limits};
use brisk_certs::{Certificate, DevelopmentCa};
use brisk_config_file::{Document, Findings, KeyPath, Located};
use brisk_gateway::HostCertificates;
use brisk_gateway::settings::GatewaySettings;
use brisk_isolation::LoadedKeys;
use brisk_keyless::RemoteEngine;
use brisk_server::ServerSettings;
use brisk_upstream_group::settings::GroupSettings;

use super::certificate_files::{CertificateFiles, TokenDefaults};
use super::key_settings::KeySettings;
use super::process::Running;
use super::raw::Config;
use super::renewal::Renewed;
use acme::{CertificatePlace, ResolvedAcme};
use context::{Context, Development, Isolated};
use sandbox::SandboxSettings;
use visit_store::VisitSettings;

/// Resolved settings, with their warnings.
#[derive(Debug)]
pub struct Resolved {
    /// Settings of the gateway.
    pub settings: GatewaySettings,
    /// Settings of key operations.
    pub keys: KeySettings,
    /// The keys in the key process, which gives them up when this is dropped before it is in force.
    pub isolated: Option<LoadedKeys>,
    /// The files of the certificates.
    pub certificate_files: CertificateFiles,
    /// Warnings: the configuration is served as written all the same.
    pub warnings: Vec<String>,
    /// The key servers that hosts have keys on; they are not connected yet.
    pub remote: Vec<Arc<RemoteEngine>>,
    /// The certificates that are obtained.
    pub acme: ResolvedAcme,
    /// Settings of the store of visits, if enabled.
    pub visits: Option<VisitSettings>,
    /// The rights that the process needs.
    pub sandbox: SandboxSettings,
    /// The development CA, where a host uses its certificates.
    pub development: Option<DevelopmentCa>,
}

impl Resolved {
    /// Line of a route, with its file if that is an included one, by the indexes of host and route; `None` for routes that are
    /// not written as such.
    pub fn line_of_route(&self, host: usize, route: usize) -> Option<(usize, Option<PathBuf>)> {
        let document = Document::of(self.certificate_files.sources.as_ref()?, |_| None).ok()?;
        document.line(&KeyPath::of("host").index(host).key("route").index(route))
    }
}

impl AsRef<ServerSettings> for Resolved {
    fn as_ref(&self) -> &ServerSettings {
        &self.settings.server
    }
}

/// Resolves `raw`, which was deserialized from `document` without the values in `unread`.
pub(super) fn resolve(
    raw: &Config,
    document: &Document<'_>,
    unread: Vec<Located>,
    base: &Path,
    (development, running): (Development, &Running),
) -> Result<Resolved, Vec<Located>> {
    let findings = Findings::new(document, unread);
    let mut context =
        Context { isolated: Isolated::new(development, running), ..Context::new(findings, base, running) };
    // Contents of files may be secrets, which no route may serve.
    context.shared.secrets.extend(document.inserted().iter().cloned());
    let server = server::server(raw, &mut context);
    // Before the hosts, whose certificates may be in tokens.
    context.files.tokens = keys::tokens(&raw.keys, server.keys.tokens, base);
    let upstreams = groups(raw, &mut context);
    context.shared.body_size = raw.server.limits.body_size;
    let remote = remote::engines(raw, &mut context);
    // Tables, then header rules, then limits: rules name tables, and hosts name all three.
    context.shared.maps = headers::maps(&raw.map, &mut context.shared);
    let rules = [&raw.server.request_headers, &raw.server.response_headers];
    context.shared.headers = headers::of_server(rules, &mut context.shared);
    context.shared.limits = limits::limits(&raw.limit, raw.features(), &running.limits, &mut context.shared);
    let hosts = hosts::hosts(raw, server.state_dir.as_deref(), development, &remote, &mut context);
    let tcp = tcp::all(raw, hosts.of_tcp, &mut context);
    let acme = acme::acme(raw, &hosts.all, server.state_dir.as_deref(), &server.sessions, &mut context);
    let visits = visit_store::visits(&raw.visits, server.state_dir.as_deref(), &hosts.all, &mut context);
    let variation = variation::variation(raw, &hosts.all, &server.tls, visits.is_some(), &mut context);
    let remote = remote::used(raw, remote, &mut context);
    // After all certificates: the key process gets all keys at once.
    let isolated = isolation::read(raw, development, &mut context);
    isolation::warn_of_exceptions(raw, &mut context);
    early_data::size(raw, &mut context);
    dangers::review(raw, server.state_dir.as_deref(), &mut context);
    foreign_variables::review(&mut context);
    oversights::review(raw, &mut context);
    sandbox::review(raw, &mut context);
    let Context { shared, keystore, files: mut certificate_files, .. } = context;
    let features::Context { mut findings, files, fingerprints, .. } = shared;
    certificate_files.others.extend(files);
    let files = certificate_files.all();
    findings.explain(|| sandbox::refusals(&files, running));
    // Values that could not be resolved have placeholders until here. With an error, no settings are formed
    // from them.
    let warnings = findings.conclude()?;
    let keys = server.keys.clone();
    let sandbox = sandbox::sandbox(raw, (base, &files), &server, visits.as_ref(), &upstreams);
    let mut settings = server.complete(hosts.all, (upstreams, tcp), Arc::new(keystore), files);
    variation::vary(&mut settings, variation);
    (settings.tls.ja4, settings.tls.client_fingerprints) = fingerprints;
    settings.certificates.fleet = acme.place.as_ref().and_then(CertificatePlace::shared);
    let development = hosts.development;
    Ok(Resolved {
        settings,
        keys,
        isolated,
        certificate_files,
        warnings,
        remote,
        acme,
        visits,
        sandbox,
        development,
    })
}

/// The written upstream groups, and those of servers that features name.
fn groups(raw: &Config, context: &mut Context<'_>) -> Vec<GroupSettings> {
    let mut upstreams = upstreams::groups(&raw.upstream, context);
    // Before the routes, which refuse a group for streams and check the keys of application servers.
    let streams = upstreams.iter().filter(|group| group.is_stream());
    context.shared.streams = streams.map(|group| group.name.clone()).collect();
    let applications = upstreams.iter().filter(|group| group.cgi_protocol().is_some());
    context.shared.applications = applications.map(|group| group.name.clone()).collect();
    context.shared.upstreams = raw.upstream.keys().cloned().collect();
    // Behind the written groups, whose names they must not take.
    upstreams.extend(consolidation::groups(raw.features(), &context.shared.upstreams));
    for group in forward_auth::groups(raw.features(), &context.shared.upstreams) {
        // Several routes may use one server for `forward_auth`. They share its group.
        if upstreams.iter().all(|other| other.name != group.name) {
            upstreams.push(group);
        }
    }
    upstreams
}

/// Loads the certificates of `hosts`, by index, of a file that was resolved before.
pub(super) fn certificates(
    raw: &Config,
    document: &Document<'_>,
    base: &Path,
    (hosts, tokens): (&[usize], TokenDefaults),
    running: &Running,
) -> Result<Renewed, Vec<Located>> {
    let mut context = Context::new(Findings::new(document, Vec::new()), base, running);
    context.files.tokens = tokens;
    let hosts = hosts::certificates_of(raw, hosts, &mut context);
    let Context { mut shared, keystore, files, .. } = context;
    shared.findings.explain(|| sandbox::refusals(&files.all(), running));
    let warnings = shared.findings.conclude()?;
    let of_host = |(names, certificates): (_, Vec<Arc<Certificate>>)| {
        // Only the keys of this host: the gateway replaces single hosts, and the keys of the others stay as
        // they are.
        let keys = keystore.subset(certificates.iter().map(|certificate| certificate.key));
        HostCertificates { names, certificates, keys }
    };
    Ok(Renewed { hosts: hosts.into_iter().map(of_host).collect(), warnings })
}
