//! [`Source`], from which a gateway reads its configurations.

use std::collections::BTreeSet;
use std::path::PathBuf;

use brisk_server::{Refusal, ServerSettings};

use crate::certificates::HostCertificates;

/// The source of configurations.
pub trait Source {
    /// The settings of all parts of the process.
    type Configuration: AsRef<ServerSettings>;

    /// Reads the configuration as it is now.
    fn read(&mut self) -> Result<Self::Configuration, Refusal>;

    /// Loads the certificates of the current configuration whose files are in `changed`. Returns `None` if `changed`
    /// contains other files; then the whole configuration must be read. An `Err` is a message for the operator.
    fn renew(&mut self, changed: &BTreeSet<PathBuf>) -> Option<Result<Vec<HostCertificates>, String>>;
}
