//! Plain HTTP: a redirect to HTTPS, or the same responses as over HTTPS.

mod keys;

use brisk_config_file::KeyPath;
use serde::Deserialize;

use super::{Context, HostFeature, HostScope};
pub use keys::PlainKeys;

/// Responses of a host over plain HTTP.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Plain {
    /// A redirect to HTTPS.
    #[default]
    Redirect,
    /// Those of HTTPS.
    Serve,
}

/// `plain` of hosts.
#[derive(Debug)]
pub struct PlainFeature;

impl HostFeature for PlainFeature {
    type Keys = PlainKeys;
    type Settings = Plain;

    fn resolve(keys: &PlainKeys, host: &HostScope<'_>, context: &mut Context<'_>) -> Plain {
        let (plain, path) = (keys.plain.unwrap_or_default(), host.key("plain"));
        if keys.plain.is_some() && !context.findings.written(&KeyPath::of("server").key("http")) {
            context.findings.wrong(&path, "has no effect without `http` in [server]");
        }
        if plain == Plain::Serve && host.keys.client_certificates.client_certificates.is_some() {
            let message = "over plain HTTP no client has a certificate: keep \"redirect\", or remove `client_certificates`";
            context.findings.wrong(&path, message);
        }
        plain
    }
}
