//! `[[tcp]]`: TCP connections whose bytes are forwarded.

use brisk_config_file::{Network, Period};
use serde::Deserialize;

use super::certificate::Certificate;
use super::values::Address;

/// `[[tcp]]`: connections of some listeners or server names, and their upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TcpKeys {
    pub name: Option<String>,
    pub listen: Vec<Address>,
    pub names: Vec<String>,
    pub alpn: Vec<String>,
    pub tls: Option<TcpTls>,
    pub certificates: Vec<Certificate>,
    pub allow: Option<Vec<Network>>,
    pub deny: Option<Vec<Network>>,
    pub upstream: Option<String>,
    pub idle_timeout: Option<Period>,
}

/// Treatment of TLS.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TcpTls {
    None,
    Passthrough,
    Terminate,
}

impl TcpKeys {
    /// Treatment of TLS as it is written, or as the other keys imply it.
    pub(crate) fn tls(&self) -> TcpTls {
        let implied = if !self.certificates.is_empty() {
            TcpTls::Terminate
        } else if self.names.is_empty() && self.alpn.is_empty() {
            // Server names and protocols exist in a ClientHello only: without either, nothing shows that
            // there is TLS.
            TcpTls::None
        } else {
            TcpTls::Passthrough
        };
        self.tls.unwrap_or(implied)
    }
}
