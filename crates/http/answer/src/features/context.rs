//! State that features share during the resolution of a configuration: findings, files, and names of other sections.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};

use brisk_access::{PasswordFiles, PasswordThreads};
use brisk_config_file::{Findings, KeyPath, SizeLimit};
use brisk_jwt::KeySources;
use brisk_rules::{Maps, RouteHeaders, Variable};

pub use brisk_upstream_group::features::TIMEOUTS;

use crate::features::RouteSettings;
use crate::features::limits::RequestLimit;

/// State that the features of a configuration share while they are resolved.
pub struct Context<'d> {
    /// Mistakes and warnings.
    pub findings: Findings<'d>,
    /// Base of relative paths.
    pub base: &'d Path,
    /// Files that the settings were made from.
    pub files: HashSet<PathBuf>,
    /// Files with secrets, which no route may serve.
    pub secrets: Vec<PathBuf>,
    /// Names of `[upstream.NAME]`.
    pub upstreams: BTreeSet<String>,
    /// Those of them whose servers get bytes of `[[tcp]]` instead of requests.
    pub streams: HashSet<String>,
    /// Those of them whose servers are application servers, which get variables instead of HTTP.
    pub applications: HashSet<String>,
    /// Names of the outputs of the access log, in their order.
    pub log_outputs: Vec<Option<Box<str>>>,
    /// Tables that header rules refer to.
    pub maps: Maps,
    /// Limits that hosts and routes refer to.
    pub limits: BTreeMap<String, RequestLimit>,
    /// `server.limits.body_size`.
    pub body_size: Option<SizeLimit>,
    /// Header rules of `[server]`.
    pub headers: RouteHeaders,
    /// Files with users that were read before.
    pub password_files: &'d PasswordFiles,
    /// The threads that verify passwords.
    pub password_threads: &'d PasswordThreads,
    /// Keys of tokens by URL.
    pub token_keys: &'d KeySources,
    /// Routes that features of the present host add.
    pub(crate) added_routes: Vec<RouteSettings>,
    /// Whether a template has JA4 of clients, and the fingerprints of their certificates.
    pub fingerprints: (bool, bool),
}

impl<'d> Context<'d> {
    /// A context without names of other sections.
    pub fn new(
        findings: Findings<'d>,
        base: &'d Path,
        passwords: (&'d PasswordFiles, &'d PasswordThreads),
        token_keys: &'d KeySources,
    ) -> Self {
        Self {
            findings,
            base,
            files: HashSet::new(),
            secrets: Vec::new(),
            upstreams: BTreeSet::new(),
            streams: HashSet::new(),
            applications: HashSet::new(),
            log_outputs: Vec::new(),
            maps: Maps::default(),
            limits: BTreeMap::new(),
            body_size: None,
            headers: RouteHeaders::default(),
            password_files: passwords.0,
            password_threads: passwords.1,
            token_keys,
            added_routes: Vec::new(),
            fingerprints: (false, false),
        }
    }

    /// Notes the fingerprints of clients that a template has. `has` returns whether it has a variable.
    pub fn note_fingerprints(&mut self, has: impl Fn(&Variable) -> bool) {
        let (ja4, certificates) = &mut self.fingerprints;
        *ja4 |= has(&Variable::Ja4);
        *certificates |= has(&Variable::ClientFingerprint);
    }

    /// The part of the state that features of upstream groups use.
    pub fn of_groups(&mut self) -> brisk_upstream_group::features::Context<'_, 'd> {
        brisk_upstream_group::features::Context {
            findings: &mut self.findings,
            base: self.base,
            files: &mut self.files,
            secrets: &mut self.secrets,
        }
    }

    /// A path of the file as it is opened, noted as one to watch.
    pub fn file(&mut self, path: &Path) -> PathBuf {
        self.of_groups().file(path)
    }

    /// Whether there is an upstream with this name for requests of the gateway itself, which application servers do not get;
    /// otherwise reports the mistake at `path`.
    pub(crate) fn has_http_upstream(&mut self, name: &str, path: &KeyPath) -> bool {
        if self.applications.contains(name) {
            let message = format!(
                "the servers of {name:?} are application servers, which get only the requests of routes: write an upstream with \
                 HTTP, as \"http://127.0.0.1:8080\""
            );
            self.findings.wrong(path, message);
            return false;
        }
        self.has_upstream(name, path)
    }

    /// Whether there is an upstream with this name; otherwise reports the mistake at `path`.
    pub fn has_upstream(&mut self, name: &str, path: &KeyPath) -> bool {
        // First, because these names are among `upstreams` too.
        if self.streams.contains(name) {
            let message = format!(
                "the servers of {name:?} get bytes of [[tcp]] instead of requests: write those of a route as \
                 \"http://127.0.0.1:8080\""
            );
            self.findings.wrong(path, message);
            return false;
        }
        if self.upstreams.contains(name) {
            return true;
        }
        // An upstream that exists but is invalid has been reported already.
        if self.findings.written(&KeyPath::of("upstream").key(name)) {
            return false;
        }
        if name.contains("://") {
            let message = format!(
                "{name:?} is a URL and here stands a name: write [upstream.app] with servers = [{name:?}], and \"app\" here"
            );
            self.findings.wrong(path, message);
        } else if self.upstreams.is_empty() {
            let message = format!("there is no upstream: write [upstream.{name}] with its `servers`");
            self.findings.wrong(path, message);
        } else {
            self.findings.unknown(path, name, self.upstreams.iter().cloned().collect());
        }
        false
    }

    /// Reads a file with a secret in it; a warning if other users of this machine can read or change the file.
    pub fn read_privately<T, E: Display>(
        &mut self,
        file: &Path,
        path: &KeyPath,
        read: impl FnOnce(&Path) -> Result<T, E>,
    ) -> Option<T> {
        self.of_groups().read_privately(file, path, read)
    }

    /// Notes a file with a secret, and warns where others than the owner and the group may read a secret, or others than the owner
    /// may change it.
    pub fn warn_of_access(&mut self, file: &Path) {
        self.of_groups().warn_of_access(file);
    }
}
