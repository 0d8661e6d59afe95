//! Where a dashboard listens, and who may look.

use std::net::SocketAddr;

use brisk_tls::internal::InternalSettings;

use crate::token::Token;

/// The settings of a dashboard. A reload may change any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DashboardSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Whether it takes another port where that one is taken.
    pub or_any_port: bool,
    /// Names that it may be asked by, in lower case, beside IP addresses and `localhost`.
    pub names: Vec<String>,
    /// What a client has to know; `None` asks for nothing.
    pub token: Option<Token>,
    /// Its certificate, and the authorities of its clients; `None` is plain HTTP.
    pub tls: Option<InternalSettings>,
}

impl DashboardSettings {
    /// Settings for `listen`, without anything else.
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, or_any_port: false, names: Vec::new(), token: None, tls: None }
    }

    /// Whether this machine alone can reach it.
    pub fn is_local(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }
}
