//! One visit: measurements of the page and properties of its connection.

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

/// One page view, without data that identifies the visitor.
#[derive(Debug, Clone, PartialEq)]
pub struct Visit {
    /// Time at which the measurements arrived; stored with a precision of one minute.
    pub at: SystemTime,
    /// Name of the configured host; never text from a client.
    pub host: Arc<str>,
    /// Path of the configured route; never the path of the request.
    pub route: Arc<str>,
    /// Host and path of the page, from [`Visits::page`](crate::Visits::page), which limits their number; `None` is any
    /// other page.
    pub page: Option<Arc<str>>,
    /// TLS version.
    pub version: Option<ProtocolVersion>,
    /// Cipher suite.
    pub suite: Option<CipherSuite>,
    /// Key exchange group.
    pub group: Option<NamedGroup>,
    /// Version of HTTP.
    pub http: Option<HttpVersion>,
    /// Kind of the TLS session.
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
    /// Device class.
    pub device: Device,
    /// How the visitor reached the page.
    pub navigation: Navigation,
    /// [`Arms`] of experiments assigned to the connection.
    pub assigned: Arms,
    /// Measured values.
    pub measures: Measures,
}

impl Visit {
    /// Creates a visit at the current time with all other values `None` or `Unknown`.
    pub fn new(host: Arc<str>, route: Arc<str>) -> Self {
        Self {
            at: SystemTime::now(),
            host,
            route,
            page: None,
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
            assigned: Arms::default(),
            measures: Measures::default(),
        }
    }
}
