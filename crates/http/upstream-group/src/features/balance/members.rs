//! The servers of a group as used by one worker, and the choice among them.

use std::net::IpAddr;
use std::sync::Arc;

use brisk_http::message::RequestParts;

use super::Balance;
use super::choice::{Balancer, Member};
use crate::group::SharedMembers;

/// The servers at present. DNS replaces them as a whole.
#[derive(Debug)]
pub struct Members<M> {
    servers: Vec<M>,
    balancer: Balancer,
    /// The servers as shared by all workers.
    shared: SharedMembers,
}

impl<M: Member> Members<M> {
    /// The members of a worker. `servers` are those of `shared`, in the same order.
    pub fn new(shared: SharedMembers, servers: Vec<M>, balance: &Balance) -> Self {
        let balancer = Balancer::new(balance, &servers);
        Self { servers, balancer, shared }
    }

    /// Whether the members are `present`, those of the group at present.
    pub fn are(&self, present: &SharedMembers) -> bool {
        // Pointers suffice: the list is replaced as a whole, and a server that remains is the same `Arc` in
        // both lists. `unresolved` is compared too: a first outcome of DNS that is a failure changes
        // nothing but this number.
        Arc::ptr_eq(&present.servers, &self.shared.servers) && present.unresolved == self.shared.unresolved
    }

    /// The servers, in the order of the settings.
    pub fn servers(&self) -> &[M] {
        &self.servers
    }

    /// Whether DNS may soon name the first servers.
    pub fn is_awaited(&self) -> bool {
        self.servers.is_empty() && self.shared.unresolved > 0
    }

    /// Chooses a server for a request with [`Self::key`]: an available one, or any if none is available, because an attempt
    /// costs less than a refusal. Never returns the server at the index `avoid`; `None` if there is no other.
    pub fn choose(&self, key: u64, avoid: Option<usize>) -> Option<&M> {
        self.balancer.choose(&self.servers, key, avoid).map(|index| &self.servers[index])
    }

    /// The balancing key of a request: requests with equal keys should reach the same server.
    pub fn key(&self, head: &RequestParts, client: impl FnOnce() -> IpAddr) -> u64 {
        self.balancer.key(head, client)
    }

    /// The balancing key of a TCP connection: its client, also with a consistent hash of headers or paths.
    pub fn client_key(&self, client: IpAddr) -> u64 {
        self.balancer.client_key(client)
    }
}
