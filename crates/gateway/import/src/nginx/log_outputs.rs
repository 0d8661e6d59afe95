//! Outputs of the access log that a translation has so far.

use std::path::Path;

use crate::toml;

/// The outputs of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    pub(crate) outputs: Vec<Output>,
    /// Identities of those that get the requests of hosts without a list.
    pub(crate) usual: Vec<String>,
    /// Whether the whole log is off.
    pub(crate) is_off: bool,
}

/// An output, which several `access_log` may share.
#[derive(Debug)]
pub(crate) struct Output {
    /// Target and format.
    pub(crate) identity: String,
    pub(crate) name: String,
}

impl Logs {
    /// The name for an output, from that of its file.
    pub(crate) fn name_for(&self, target: &str) -> String {
        let file = if target.starts_with("syslog:") { "syslog" } else { target };
        let stem = toml::name(&Path::new(file).file_stem().unwrap_or_default().to_string_lossy());
        let is_free = |name: &String| !self.outputs.iter().any(|output| output.name == *name);
        let numbered = (2..).map(|number| format!("{stem}-{number}"));
        std::iter::once(stem.clone()).chain(numbered).find(is_free).unwrap_or(stem)
    }
}
