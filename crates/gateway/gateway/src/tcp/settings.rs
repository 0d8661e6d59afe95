//! Settings of one `[[tcp]]`.

use std::time::Duration;

use brisk_access::NetworkRules;
use brisk_net::ListenerSettings;
use brisk_tls::HostSettings;

/// TCP connections whose bytes go to an upstream.
#[derive(Clone, Debug)]
pub struct TcpSettings {
    /// Name for the access log and the metrics.
    pub name: String,
    /// Listeners of its own; none for those of HTTPS. Fixed at the start.
    pub listen: Vec<ListenerSettings>,
    /// Server names, exact or `*.` wildcards, in lower case.
    pub names: Vec<String>,
    /// Whether connections with other names, and those without a name, belong to it too.
    pub is_default: bool,
    /// Protocols of ALPN. With [`TcpTls::Passthrough`], a client must offer one of them, if there are any.
    pub alpn: Vec<Box<[u8]>>,
    /// Treatment of TLS.
    pub tls: TcpTls,
    /// Networks whose clients are permitted.
    pub networks: NetworkRules,
    /// Name of the upstream group.
    pub upstream: String,
    /// Maximum time without data in either direction.
    pub idle_timeout: Duration,
}

/// Treatment of TLS on the connections of clients.
#[derive(Clone, Debug)]
pub enum TcpTls {
    /// There is none, or it is none of brisk's concern: the bytes are forwarded from the first on.
    None,
    /// The `ClientHello` is read and forwarded with everything that follows.
    Passthrough,
    /// brisk terminates TLS with the certificates of these settings.
    Terminate(Box<HostSettings>),
}

impl TcpSettings {
    /// The host that terminates TLS.
    pub fn terminated(&self) -> Option<&HostSettings> {
        match &self.tls {
            TcpTls::Terminate(host) => Some(host),
            TcpTls::None | TcpTls::Passthrough => None,
        }
    }
}
