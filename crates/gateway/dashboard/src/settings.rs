//! Settings: address, names, token and TLS.

use std::net::SocketAddr;

use brisk_tls::internal::InternalSettings;

use crate::token::Token;

/// Settings of a dashboard. A reload may change all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DashboardSettings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Whether another port is used if the port of `listen` is in use.
    pub or_any_port: bool,
    /// Accepted host names in lower case, in addition to IP addresses and `localhost`.
    pub names: Vec<String>,
    /// Token that clients must present; `None` for no authentication.
    pub token: Option<Token>,
    /// Certificate and client authorities; `None` for plain HTTP.
    pub tls: Option<InternalSettings>,
}

impl DashboardSettings {
    /// Settings for `listen`, with defaults otherwise.
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, or_any_port: false, names: Vec::new(), token: None, tls: None }
    }

    /// Returns whether the address is reachable from this machine only.
    pub fn is_local(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }
}
