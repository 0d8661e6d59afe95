//! The source of configurations, as a gateway reads it.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::PathBuf;

use brisk_server::ServerSettings;

use crate::certificates::HostCertificates;

/// The source of configurations.
pub trait Source {
    /// The settings of all parts of the process.
    type Configuration: AsRef<ServerSettings>;

    /// Why there is no configuration, for the operator.
    type Error: Display;

    /// Reads the configuration as it is now.
    fn read(&mut self) -> Result<Self::Configuration, Self::Error>;

    /// Loads the certificates of the configuration in force that have files among `changed`. `None` if other files than those of
    /// certificates are among them: then the configuration has to be read.
    fn renew(&mut self, changed: &BTreeSet<PathBuf>) -> Option<Result<Vec<HostCertificates>, Self::Error>>;
}
