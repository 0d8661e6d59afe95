//! Changed certificate files, loaded without the rest of the configuration.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use brisk_gateway::HostCertificates;

use super::document::Document;
use super::error::ConfigError;
use super::process::Running;
use super::{CommandLine, raw, resolve, shortcuts};

/// The files of the certificates of a configuration, and its text: a certificate is loaded by the configuration in force,
/// not by the present contents of the configuration's file.
#[derive(Clone, Debug, Default)]
pub struct CertificateFiles {
    /// `None` where there is no file.
    pub(super) text: Option<String>,
    /// Files by index of the host.
    pub(super) hosts: Vec<HashSet<PathBuf>>,
    /// The files of everything else.
    pub(super) others: HashSet<PathBuf>,
}

/// Certificates that were loaded again.
#[derive(Debug)]
pub struct Renewed {
    /// Hosts with changed files.
    pub hosts: Vec<HostCertificates>,
    /// Warnings about the certificates.
    pub warnings: Vec<String>,
}

impl CertificateFiles {
    /// The numbers of the hosts whose certificates have files among `changed`; `None` if anything else has.
    fn hosts_of(&self, changed: &BTreeSet<PathBuf>) -> Option<Vec<usize>> {
        let is_certificate =
            |file| !self.others.contains(file) && self.hosts.iter().any(|files| files.contains(file));
        let has_changed = |files: &HashSet<PathBuf>| changed.iter().any(|file| files.contains(file));
        let hosts = self.hosts.iter().enumerate().filter(|(_, files)| has_changed(files));
        changed.iter().all(is_certificate).then(|| hosts.map(|(index, _)| index).collect())
    }
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
        let (file, text) = (self.file.as_deref()?, in_force.text.as_deref()?);
        let hosts = in_force.hosts_of(changed)?;
        let document = match Document::parse(text) {
            Ok(document) => document,
            Err(problems) => return Some(Err(ConfigError::new(file, problems))),
        };
        let (mut raw, _) = document.read::<raw::Config>();
        self.apply(&mut raw);
        shortcuts(&mut raw);
        let base = file.parent()?;
        let renewed = resolve::certificates(&raw, &document, base, &hosts, running);
        Some(renewed.map_err(|problems| ConfigError::new(file, problems)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> HashSet<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn only_files_of_certificates_alone_are_loaded_without_a_reload() {
        let hosts = vec![files(&["a.pem", "a.key"]), files(&["b.pem", "both.key"]), files(&["both.key"])];
        let all = CertificateFiles { text: None, hosts, others: files(&["ca.pem", "a.key"]) };
        let hosts_of = |changed: &[&str]| all.hosts_of(&changed.iter().map(PathBuf::from).collect());
        assert_eq!(hosts_of(&["a.pem"]), Some(vec![0]));
        assert_eq!(hosts_of(&["both.key", "a.pem"]), Some(vec![0, 1, 2]));
        for other in ["ca.pem", "a.key", "brisk.toml"] {
            assert_eq!(hosts_of(&["b.pem", other]), None, "{other}");
        }
    }
}
