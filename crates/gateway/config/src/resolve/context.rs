//! State shared by the sections of a file during resolution: findings, keys, and the process being configured.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brisk_answer::features;
use brisk_certs::RefusedKey;
use brisk_config_file::{Findings, KeyPath, Segment};
use brisk_isolation::Isolation;
use brisk_keys::Keystore;

use crate::certificate_files::CertificateFiles;
use crate::process::Running;
use crate::raw;

/// State that the parts of a file have in common while they are resolved.
pub(super) struct Context<'d> {
    /// The part of the state that features of hosts and routes use.
    pub(super) shared: features::Context<'d>,
    pub(super) running: &'d Running,
    pub(super) keystore: Keystore,
    pub(super) isolated: Isolated<'d>,
    /// Threads of the key process, and operations that it has at a time, where there is one.
    pub(super) key_process: (NonZeroUsize, NonZeroUsize),
    /// Files of certificates.
    pub(super) files: CertificateFiles,
    /// Whether files belong to the certificates of the last host.
    pub(super) loads_certificates: bool,
}

impl<'d> Context<'d> {
    pub(super) fn new(findings: Findings<'d>, base: &'d Path, running: &'d Running) -> Self {
        Self {
            shared: features::Context::new(
                findings,
                base,
                (&running.password_files, &running.password_threads),
                &running.token_keys,
            ),
            running,
            keystore: Keystore::default(),
            isolated: Isolated::default(),
            key_process: (NonZeroUsize::MIN, NonZeroUsize::MIN),
            files: CertificateFiles::default(),
            loads_certificates: false,
        }
    }
}

impl Context<'_> {
    /// A path of the file as it is opened, noted as one to watch.
    pub(super) fn file(&mut self, path: &Path) -> PathBuf {
        match self.files.hosts.last_mut() {
            // Files of certificates are noted apart: after a change, only the certificate is loaded again.
            Some(own) if self.loads_certificates => {
                let path = self.shared.base.join(path);
                own.insert(path.clone());
                path
            }
            _ => self.shared.file(path),
        }
    }

    /// Notes that `holder` lacks the key of a certificate, which the configuration names at `path`. The configuration is
    /// refused, and `/readyz` and metrics of a running gateway have the reason.
    pub(super) fn refuse_key(&self, path: &KeyPath, raw: &raw::Config, holder: String, reason: &str) {
        let host = match path.segments() {
            [Segment::Key(section), Segment::Index(index), ..] if section == "host" => {
                raw.host.get(*index).and_then(|host| host.names().first())
            }
            _ => None,
        };
        self.running.refused_keys.add(RefusedKey {
            path: path.to_string(),
            host: host.cloned().unwrap_or_default(),
            holder,
            reason: reason.to_owned(),
        });
    }
}

/// Whether hosts without certificates get certificates of the development CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Development {
    /// Create missing files in the state folder.
    Create,
    /// Only check, without writing files.
    Leave,
}

/// The key process, with the keys that are to be in it; `None` where they are in this one.
#[derive(Default)]
pub(super) struct Isolated<'p>(pub(super) Option<(&'p Arc<Isolation>, Vec<Wanted>)>);

/// A key that a certificate has.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
    pub(super) subject: String,
    pub(super) id: String,
    /// Key path at which the configuration names the file.
    pub(super) path: KeyPath,
}

impl<'p> Isolated<'p> {
    /// Keys are in the key process if one was started. `brisk check` reads them itself.
    pub(super) fn new(development: Development, running: &'p Running) -> Self {
        let process = running.isolation.as_ref().filter(|_| development == Development::Create);
        Self(process.map(|process| (process, Vec::new())))
    }

    /// The process with the keys, if it is another one.
    pub(super) fn process(&self) -> Option<&'p Arc<Isolation>> {
        self.0.as_ref().map(|(process, _)| *process)
    }
}
