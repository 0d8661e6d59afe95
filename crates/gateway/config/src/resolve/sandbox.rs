//! `server.user` and `server.sandbox`: rights that the process keeps, and the files and folders that the configuration needs.

use std::path::{Path, PathBuf};

use brisk_config_file::KeyPath;
use brisk_logs::AccessLogTarget;
use brisk_sandbox::{Folders, trouble_with_user};
use brisk_upstream_group::settings::GroupSettings;

use super::context::Context;
use super::server::Server;
use super::visit_store::VisitSettings;
use crate::key_settings::KeySettings;
use crate::process::Running;
use crate::raw;
use crate::values::KeyPlace;

/// Rights that a configuration needs.
#[derive(Clone, Debug)]
pub struct SandboxSettings {
    /// Whether `server.sandbox` is on.
    pub is_on: bool,
    /// `server.user`.
    pub user: Option<String>,
    /// Files and folders at run time, apart from those of the system.
    pub folders: Folders,
    /// Names of keys for which libraries drive hardware, with files and system calls that only they know.
    pub hardware: Vec<&'static str>,
    /// Whether the gateway runs programs of the operator (`acme.dns.hook`).
    pub runs_programs: bool,
}

/// Rights that the configuration in `raw` needs, whose relative paths begin at `base` and whose watched files are `files`.
pub(super) fn sandbox(
    raw: &raw::Config,
    (base, files): (&Path, &[PathBuf]),
    server: &Server,
    visits: Option<&VisitSettings>,
    upstreams: &[GroupSettings],
) -> SandboxSettings {
    let mut folders = folders(raw, (base, files), server);
    if let Some(visits) = visits {
        folders.write_folder(&visits.folder);
    }
    let has_applications = upstreams.iter().any(|group| group.cgi_protocol().is_some());
    // SQLite sorts in files there. Application servers get whole bodies only.
    if visits.is_some() || has_applications || buffers_requests(raw) {
        folders.write_temporary_files();
    }
    SandboxSettings {
        is_on: raw.server.sandbox != Some(raw::Sandbox::Off),
        user: raw.server.user.clone(),
        folders,
        hardware: hardware(has_tokens(raw), &server.keys),
        runs_programs: raw.acme.dns.as_ref().is_some_and(|dns| dns.hook.is_some()),
    }
}

/// Rights that a key server needs, whose relative paths begin at `base` and whose watched files are `files`.
pub(super) fn of_key_server(
    raw: &raw::ServerConfig,
    (base, files): (&Path, &[PathBuf]),
    keys: &KeySettings,
) -> SandboxSettings {
    let mut folders = Folders::default();
    for file in files {
        folders.read_file(file);
    }
    // Its files may be links to other folders.
    raw.server.key_folder.iter().for_each(|folder| folders.read_linked_files(&base.join(folder)));
    SandboxSettings {
        is_on: raw.server.sandbox != Some(raw::Sandbox::Off),
        user: None,
        folders,
        hardware: hardware(!raw.server.certificates.is_empty(), keys),
        runs_programs: false,
    }
}

/// Names of the keys whose libraries open devices and make system calls that no list knows.
fn hardware(has_tokens: bool, keys: &KeySettings) -> Vec<&'static str> {
    let tokens = has_tokens.then_some("keys in tokens (PKCS #11)");
    let gpu = keys.gpu.is_some().then_some("keys.cuda");
    tokens.into_iter().chain(gpu).collect()
}

/// The files and folders that are used after the start. All others than those below are among the watched files.
fn folders(raw: &raw::Config, (base, files): (&Path, &[PathBuf]), server: &Server) -> Folders {
    let mut folders = Folders::default();
    for file in files {
        folders.read_file(file);
    }
    let authorities = raw.otlp.iter().filter_map(|otlp| otlp.ca.as_ref());
    authorities.for_each(|file| folders.read_file(&base.join(file)));
    for host in &raw.host {
        // Its files may be links to other folders, as those of certbot.
        let collection = host.own.certificate_folder.iter();
        collection.for_each(|folder| folders.read_linked_files(&base.join(folder)));
        let served = host.routes().iter().filter_map(|route| route.action.directory.as_ref());
        served.for_each(|folder| folders.read_folder(&base.join(folder)));
    }
    server.state_dir.iter().for_each(|folder| folders.write_folder(folder));
    for output in &server.access_log {
        if let AccessLogTarget::File(file) = &output.target {
            folders.append_to(file);
        }
    }
    folders
}

/// Whether long bodies of requests are in temporary files.
fn buffers_requests(raw: &raw::Config) -> bool {
    // A route may buffer requests although its host does not.
    raw.features().any(|host| {
        let mut routes = host.site.route.iter();
        host.body.buffer_request == Some(true) || routes.any(|route| route.body.buffer_request == Some(true))
    })
}

fn has_tokens(raw: &raw::Config) -> bool {
    let of_hosts = raw.host.iter().flat_map(|host| &host.own.certificates);
    let mut all = of_hosts.chain(raw.tcp.iter().flat_map(|tcp| &tcp.certificates));
    all.any(|certificate| matches!(certificate.key, KeyPlace::Token(_)))
}

/// Reports an unknown user, and keys that the rights of the running process exclude: their own errors, if any, name no reason.
pub(super) fn review(raw: &raw::Config, context: &mut Context<'_>) {
    if let Some(trouble) = raw.server.user.as_deref().and_then(trouble_with_user) {
        context.shared.findings.wrong(&KeyPath::of("server").key("user"), trouble);
    }
    review_tokens(has_tokens(raw), context);
    // At the start the rights follow the configuration.
    if !context.running.rights.limit_files() {
        return;
    }
    let path = KeyPath::of("server").key("sandbox");
    if raw.acme.dns.as_ref().is_some_and(|dns| dns.hook.is_some()) {
        let message = "acme.dns.hook is a program, and the sandbox of this process starts none: restart brisk to use it";
        context.shared.findings.wrong(&path, message);
    }
}

/// Reports keys in tokens that the rights of the running process exclude.
pub(super) fn review_tokens(has_tokens: bool, context: &mut Context<'_>) {
    if has_tokens && context.running.rights.limit_files() {
        let path = KeyPath::of("server").key("sandbox");
        let message =
            "keys in tokens need files that the sandbox of this process excludes: restart brisk to use them";
        context.shared.findings.wrong(&path, message);
    }
}

/// Reasons for which `files` cannot be read, where the rights of this process are the reason.
pub(crate) fn refusals(files: &[PathBuf], running: &Running) -> Vec<String> {
    files.iter().filter_map(|file| running.rights.refusal(file)).collect()
}
