//! Configuration of the gateway, read at the start and by reloads.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

use brisk_config::{CertificateFiles, CommandLine, ConfigError, Resolved, Running, Sources};
use brisk_gateway::{HostCertificates, Source};
use brisk_server::{Part, PartError, Refusal};

use crate::serve::log_warnings;

/// Reader of the configuration of `brisk serve`: the [`Source`] of reloads.
#[derive(Clone)]
pub(crate) struct Configuration {
    line: CommandLine,
    running: Rc<Running>,
    /// Files of the certificates in force, which distinguish the renewal of a certificate from other changes.
    files: Rc<RefCell<CertificateFiles>>,
}

impl Configuration {
    /// Creates a [`Source`]; reads nothing yet.
    pub(crate) fn new(line: CommandLine, running: &Rc<Running>) -> Self {
        Self { line, running: Rc::clone(running), files: Rc::default() }
    }

    /// Resolves the first configuration, from `sources`, the texts of its files. The caller reads them, because it starts the
    /// key process between reading and resolving.
    pub(crate) fn first(&self, sources: Option<&Sources>) -> Result<Resolved, ConfigError> {
        let first = self.line.settings_of(sources, &self.running)?;
        // Here, because a start commits no part; reloads replace the files in `commit`.
        self.files.replace(first.certificate_files.clone());
        Ok(first)
    }
}

impl Source for Configuration {
    type Configuration = Resolved;

    fn read(&mut self) -> Result<Resolved, Refusal> {
        let settings = self.line.settings(&self.running).inspect(|new| log_warnings(&new.warnings));
        settings.map_err(|error| refusal(&error))
    }

    fn renew(&mut self, changed: &BTreeSet<PathBuf>) -> Option<Result<Vec<HostCertificates>, String>> {
        let renewed = self.line.renew(&self.files.borrow(), changed, &self.running)?;
        let renewed = renewed.inspect(|renewed| log_warnings(&renewed.warnings));
        Some(renewed.map(|renewed| renewed.hosts).map_err(|error| error.to_string()))
    }
}

/// The refusal of a configuration by a reload.
pub(crate) fn refusal(error: &ConfigError) -> Refusal {
    Refusal { message: error.to_string(), files: error.files().to_vec() }
}

impl Part for Configuration {
    type Settings = CertificateFiles;
    type Prepared = CertificateFiles;

    fn prepare(&self, files: &CertificateFiles) -> Result<CertificateFiles, PartError> {
        Ok(files.clone())
    }

    fn commit(&self, files: CertificateFiles) {
        self.files.replace(files);
    }
}
