//! Changed certificate files, loaded without the rest of the configuration.

use std::collections::BTreeSet;
use std::path::PathBuf;

use brisk_config_file::ConfigError;
use brisk_gateway::HostCertificates;

use super::certificate_files::CertificateFiles;
use super::process::Running;
use super::{CommandLine, expanded, raw, resolve, shortcuts};

/// Certificates that were loaded again.
#[derive(Debug)]
pub struct Renewed {
    /// Hosts with changed files.
    pub hosts: Vec<HostCertificates>,
    /// Warnings about the certificates.
    pub warnings: Vec<String>,
}

impl CommandLine {
    /// Loads the certificates of the configuration in force, whose files are `in_force`, that have files among `changed`. `None`
    /// if other files are among them: then the configuration has to be read.
    pub fn renew(
        &self,
        in_force: &CertificateFiles,
        changed: &BTreeSet<PathBuf>,
        running: &Running,
    ) -> Option<Result<Renewed, ConfigError>> {
        let (file, sources) = (self.file.as_deref()?, in_force.sources.as_ref()?);
        let hosts = in_force.hosts_of(changed)?;
        // The text that is in force, not the present one: a file that is being edited must not decide which
        // certificate a host gets.
        let document = match expanded(sources, |_| None) {
            Ok(document) => document,
            Err(error) => return Some(Err(error)),
        };
        // The text in force had no unread values, so none are expected here.
        let (mut raw, _) = document.read::<raw::Config>();
        // As in `read`, in the same order: hosts are identified by their positions, which these steps may add
        // to.
        self.apply(&mut raw);
        shortcuts(&mut raw);
        let base = file.parent()?;
        running.refused_keys.clear();
        let renewed =
            resolve::certificates(&raw, &document, base, (&hosts, in_force.tokens.clone()), running);
        Some(renewed.map_err(|problems| ConfigError::new(file, problems)))
    }
}
