//! The claim of a request on its server.

use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use brisk_upstream_group::settings::RequestTimeouts;

use super::Server;
use crate::http1::{Http1, Owner};
use crate::login::PrivateConnections;
use crate::proxied;

/// The claim of a request on its server, from the choice to the end of the response. Counted by least-connections
/// balancing.
#[derive(Debug)]
pub(crate) struct Lease {
    server: Rc<Server>,
    /// Maximum pause within the body in milliseconds, in place of `timeouts.body` of the group. A number, which is smaller than
    /// a [`Duration`], because every response contains a [`Lease`].
    pause: Option<NonZeroU32>,
    /// Whether the connection has switched protocols, so that `timeouts.upgraded` applies.
    is_upgraded: bool,
}

impl Lease {
    /// The claim of a request with `timeouts`.
    pub(crate) fn new(server: &Rc<Server>, timeouts: RequestTimeouts) -> Self {
        server.active.set(server.active.get() + 1);
        server.state().metrics().request();
        let milliseconds = |pause: Duration| u32::try_from(pause.as_millis()).unwrap_or(u32::MAX);
        let pause = timeouts.body.and_then(|pause| NonZeroU32::new(milliseconds(pause)));
        Self { server: Rc::clone(server), pause, is_upgraded: false }
    }

    /// The claim after a switch of protocols: [`Self::pause_limit`] is `timeouts.upgraded`.
    pub(crate) fn upgraded(mut self) -> Self {
        self.is_upgraded = true;
        self
    }

    pub(crate) fn server(&self) -> &Rc<Server> {
        &self.server
    }

    /// Maximum pause within a response body, or after a switch of protocols.
    pub(crate) fn pause_limit(&self) -> Duration {
        let timeouts = &self.server.group.settings().timeouts;
        match self.pause {
            _ if self.is_upgraded => timeouts.upgraded,
            Some(pause) => Duration::from_millis(pause.get().into()),
            None => timeouts.body,
        }
    }

    /// Ends the claim and keeps `http1` for another request of its [`Owner`].
    pub(crate) fn give_back(self, http1: Box<Http1>) {
        match http1.owner() {
            Owner::Any => self.server.keep(http1),
            Owner::None => {}
            Owner::Client(client) => {
                if let Some(client) = client.upgrade() {
                    PrivateConnections::with(&client).put(&self.server, http1);
                }
            }
            Owner::Proxied(client, address) => {
                if let Some(client) = client.upgrade() {
                    proxied::put(&client, *address, &self.server, http1);
                }
            }
        }
    }
}

impl Server {
    /// Timeout for the head of the response: that of `request`, or `timeouts.head` of the group.
    pub(crate) fn head_timeout(&self, request: RequestTimeouts) -> Duration {
        request.head.unwrap_or(self.group.settings().timeouts.head)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.server.active.set(self.server.active.get() - 1);
    }
}
