//! The claim of a request on its server.

use std::rc::Rc;
use std::time::Duration;

use super::Server;
use crate::http1::{Http1, Owner};
use crate::login::PrivateConnections;

/// The claim of a request on its server, from the choice to the end of the response. Counted by least-connections
/// balancing.
#[derive(Debug)]
pub(crate) struct Lease {
    server: Rc<Server>,
}

impl Lease {
    pub(crate) fn new(server: &Rc<Server>) -> Self {
        server.active.set(server.active.get() + 1);
        server.state().metrics.request();
        Self { server: Rc::clone(server) }
    }

    /// Maximum pause within a response body.
    pub(crate) fn body_limit(&self) -> Duration {
        self.server.group.settings.timeouts.body
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
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.server.active.set(self.server.active.get() - 1);
    }
}
