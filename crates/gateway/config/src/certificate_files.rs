//! The files of a configuration, by the way in which a change of them comes into force.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use brisk_config_file::Sources;
use brisk_keys_pkcs11::TokenSettings;

/// The files of a configuration, and the settings with which its certificates are loaded: a certificate is loaded by the
/// configuration in force, not by the present contents of the configuration's file.
#[derive(Clone, Debug, Default)]
pub struct CertificateFiles {
    /// `None` where there is no file.
    pub(super) sources: Option<Sources>,
    pub(super) tokens: TokenDefaults,
    /// Certificate files of each host that can be loaded without the rest of the configuration.
    pub(super) hosts: Vec<HashSet<PathBuf>>,
    /// All other files.
    pub(super) others: HashSet<PathBuf>,
}

/// Keys of `[keys]` about tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenDefaults {
    pub(crate) settings: TokenSettings,
    /// The module of URIs that name none.
    pub(crate) module: Option<PathBuf>,
}

impl CertificateFiles {
    /// Each file once, in no particular order.
    pub(super) fn all(&self) -> Vec<PathBuf> {
        let files: HashSet<_> = self.hosts.iter().flatten().chain(&self.others).collect();
        files.into_iter().cloned().collect()
    }

    /// The numbers of the hosts whose certificates have files among `changed`; `None` if anything else has.
    pub(super) fn hosts_of(&self, changed: &BTreeSet<PathBuf>) -> Option<Vec<usize>> {
        let of_certificates: HashSet<_> = self.hosts.iter().flatten().collect();
        // A file that also has another use, such as `client_ca`, needs a whole reload: only then is the other
        // use read again.
        let is_certificate = |file| of_certificates.contains(file) && !self.others.contains(file);
        let has_changed = |files: &HashSet<PathBuf>| files.iter().any(|file| changed.contains(file));
        let hosts = self.hosts.iter().enumerate().filter(|(_, files)| has_changed(files));
        changed.iter().all(is_certificate).then(|| hosts.map(|(index, _)| index).collect())
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
        let others = files(&["ca.pem", "a.key"]);
        let all = CertificateFiles { hosts, others, ..CertificateFiles::default() };
        let hosts_of = |changed: &[&str]| all.hosts_of(&changed.iter().map(PathBuf::from).collect());
        assert_eq!(hosts_of(&["a.pem"]), Some(vec![0]));
        assert_eq!(hosts_of(&["both.key", "a.pem"]), Some(vec![0, 1, 2]));
        for other in ["ca.pem", "a.key", "brisk.toml"] {
            assert_eq!(hosts_of(&["b.pem", other]), None, "{other}");
        }
        let mut names = all.all();
        names.sort();
        assert_eq!(names, ["a.key", "a.pem", "b.pem", "both.key", "ca.pem"].map(PathBuf::from));
    }
}
