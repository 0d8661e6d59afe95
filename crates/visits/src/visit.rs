//! One visit: what the page measured and what the gateway knows of its connection.

use std::sync::Arc;
use std::time::SystemTime;

use brisk_telemetry::EarlyData;
use brisk_wire::HttpVersion;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion};

use crate::agent::{Browser, Device};
use crate::experiment::Arms;
use crate::kinds::{CertificateType, Connection, Navigation, Session, Window};
use crate::metric::Measures;
use crate::network::Network;

/// One page view, without anything that says whose it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Visit {
    /// When its measurements arrived; kept to the minute.
    pub at: SystemTime,
    /// The name of the configured host. Never a text from a client.
    pub host: Arc<str>,
    /// The path of the configured route. Never the path of the request.
    pub route: Arc<str>,
    /// TLS version.
    pub version: Option<ProtocolVersion>,
    /// Cipher suite.
    pub suite: Option<CipherSuite>,
    /// Key exchange group.
    pub group: Option<NamedGroup>,
    /// Version of HTTP.
    pub http: Option<HttpVersion>,
    /// How the session came about.
    pub session: Session,
    /// Outcome of the client's early data; `None` if it announced none.
    pub early_data: Option<EarlyData>,
    /// Whether the navigation opened the connection.
    pub connection: Connection,
    /// Kind of the certificate that was shown.
    pub certificate: CertificateType,
    /// Initial congestion window.
    pub window: Window,
    /// The client's network.
    pub network: Network,
    /// Browser family.
    pub browser: Browser,
    /// Class of the device.
    pub device: Device,
    /// How the visitor reached the page.
    pub navigation: Navigation,
    /// What the connection got in experiments.
    pub arms: Arms,
    /// What was measured.
    pub measures: Measures,
}

impl Visit {
    /// A visit now, of which nothing is known but where it went.
    pub fn new(host: Arc<str>, route: Arc<str>) -> Self {
        Self {
            at: SystemTime::now(),
            host,
            route,
            version: None,
            suite: None,
            group: None,
            http: None,
            session: Session::Unknown,
            early_data: None,
            connection: Connection::Unknown,
            certificate: CertificateType::Unknown,
            window: Window::Unknown,
            network: Network::UNKNOWN,
            browser: Browser::Other,
            device: Device::Other,
            navigation: Navigation::Other,
            arms: Arms::default(),
            measures: Measures::default(),
        }
    }
}
