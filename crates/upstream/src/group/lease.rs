//! The claim of a request on its server.

use std::rc::Rc;
use std::time::Duration;

use super::Server;
use crate::http1::{Http1, Owner};
use crate::login::PrivateConnections;
use crate::proxied::ProxiedConnections;

/// The claim of a request on its server, from the choice to the end of the response. Counted by least-connections
/// balancing.
#[derive(Debug)]
pub(crate) struct Lease {
    server: Rc<Server>,
    /// Whether the connection has switched protocols.
    is_upgraded: bool,
}

impl Lease {
    pub(crate) fn new(server: &Rc<Server>) -> Self {
        server.active.set(server.active.get() + 1);
        server.state().metrics.request();
        Self { server: Rc::clone(server), is_upgraded: false }
    }

    /// The claim after a switch of protocols.
    pub(crate) fn upgraded(mut self) -> Self {
        self.is_upgraded = true;
        self
    }

    pub(crate) fn server(&self) -> &Rc<Server> {
        &self.server
    }

    /// Maximum pause within a response body, or after a switch of protocols.
    pub(crate) fn pause_limit(&self) -> Duration {
        let timeouts = &self.server.group.settings.timeouts;
        if self.is_upgraded { timeouts.upgraded } else { timeouts.body }
    }

    /// Ends the claim and keeps the connection for another request, if it is reusable.
    pub(crate) fn give_back(self, http1: Box<Http1>) {
        match http1.owner() {
            Owner::Any => self.server.keep(http1),
            Owner::None => {}
            Owner::Client(client) => {
                if let Some(client) = client.upgrade() {
                    PrivateConnections::with(&client).put(&self.server, http1);
                }
            }
            Owner::Proxied(client) => {
                if let Some(client) = client.upgrade() {
                    ProxiedConnections::with(&client).put(&self.server, http1);
                }
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.server.active.set(self.server.active.get() - 1);
    }
}
