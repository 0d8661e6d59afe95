//! Connections with a PROXY header, which belong to one client.
//!
//! The header names the client of all requests on its connection. Such a connection therefore carries requests of one
//! client connection, and of one address that a trusted proxy states there, only. It is kept with that connection and closes with it, after the idle timeout, or with the removal of its
//! server. The kept connections of all clients of a worker share the limit of the pool. If the number of connections to the
//! server is limited, a connection closes after its request instead, because kept ones would hold permits that others need.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::rc::{Rc, Weak};

use brisk_http_connection::Connection;
use brisk_net::{FairShare, SharePermit};

use crate::group::Server;
use crate::http1::{Http1, Owner};
use crate::http2::Http2Pool;

/// Maximum number of idle HTTP/1.1 connections to one [`Server`] for one client connection.
const IDLE: usize = 8;

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester<'a> {
    pub(crate) connection: &'a Rc<Connection>,
    /// The address of the connection, or one that a trusted proxy states.
    pub(crate) address: SocketAddr,
}

impl Requester<'_> {
    /// The address to which shares apply: that of the connection, or the stated one behind a trusted proxy, whose
    /// connection has many clients. `None` without a stated one.
    pub(crate) fn share(&self) -> Option<IpAddr> {
        let client = &self.connection.client;
        let stated = || {
            let ip = self.address.ip();
            (ip != client.record.borrow().client.ip().to_canonical()).then_some(ip)
        };
        client.address().or_else(stated)
    }
}

/// Connections to servers whose PROXY header names one client connection.
#[derive(Debug, Default)]
pub(crate) struct ProxiedConnections {
    http1: RefCell<Vec<Kept<Box<Http1>>>>,
    http2: RefCell<Vec<Kept<Rc<Http2Pool>>>>,
    /// Servers whose list of clients has this one, once each.
    listed: RefCell<Vec<Rc<Server>>>,
}

/// An idle HTTP/1.1 connection, or the HTTP/2 connections to a server.
#[derive(Debug)]
struct Kept<T> {
    server: Rc<Server>,
    /// The address that the PROXY header names.
    address: SocketAddr,
    connection: T,
    idle_ticks: u32,
    _slot: SharePermit,
}

/// The clients of one worker that keep such connections to one server.
#[derive(Debug)]
pub(crate) struct ProxiedClients {
    clients: RefCell<Vec<Weak<ProxiedConnections>>>,
    slots: FairShare,
    is_retired: Cell<bool>,
}

impl ProxiedConnections {
    /// The [`ProxiedConnections`] of `client`, created if necessary.
    fn with(client: &Connection) -> &Rc<Self> {
        let proxied = client.extras.proxied_or(|| Box::new(Rc::<Self>::default()));
        proxied.downcast_ref().expect("nothing else is kept here")
    }

    fn has(&self, server: &Server) -> bool {
        self.http1.borrow().iter().any(|kept| kept.is_of(server))
            || self.http2.borrow().iter().any(|kept| kept.is_of(server))
    }

    fn is_listed(&self, server: &Server) -> bool {
        self.listed.borrow().iter().any(|own| is_same(own, server))
    }

    fn unlist(&self, server: &Server) {
        self.listed.borrow_mut().retain(|own| !is_same(own, server));
    }

    /// Closes connections to `server` that ended or were idle for `idle_ticks` sweeps. Returns whether others remain; otherwise
    /// the client leaves the list of the server.
    fn sweep(&self, server: &Server, idle_ticks: u32) -> bool {
        self.http1.borrow_mut().retain_mut(|kept| {
            if !kept.is_of(server) {
                return true;
            }
            kept.idle_ticks += 1;
            kept.idle_ticks <= idle_ticks && !kept.connection.found_closed()
        });
        self.http2.borrow_mut().retain(|kept| {
            if !kept.is_of(server) {
                return true;
            }
            // The slots limit the pools of clients, so no connection here is surplus.
            kept.connection.sweep(usize::MAX, idle_ticks);
            // A request that has the pool may be opening a connection.
            !kept.connection.is_empty() || Rc::strong_count(&kept.connection) > 1
        });
        let remains = self.has(server);
        if !remains {
            self.unlist(server);
        }
        remains
    }

    /// Closes the idle connections to `server`, and those with requests when these end.
    fn forget(&self, server: &Server) {
        self.http1.borrow_mut().retain(|kept| !kept.is_of(server));
        self.http2.borrow_mut().retain(|kept| {
            let is_own = kept.is_of(server);
            if is_own {
                kept.connection.retire();
            }
            !is_own
        });
        self.unlist(server);
    }
}

impl<T> Kept<T> {
    fn is_of(&self, server: &Server) -> bool {
        is_same(&self.server, server)
    }

    fn is_for(&self, address: SocketAddr, server: &Server) -> bool {
        self.address == address && self.is_of(server)
    }
}

fn is_same(own: &Rc<Server>, server: &Server) -> bool {
    ptr::eq(&raw const **own, server)
}

impl ProxiedClients {
    /// No connections; all clients together may keep `limit`, of which one client has half of the free ones at most.
    pub(crate) fn new(limit: usize) -> Self {
        Self { clients: RefCell::default(), slots: FairShare::new(limit), is_retired: Cell::new(false) }
    }

    /// A slot for a connection of `client` to `server`, whose clients these are; `None` after [`Server::retire_proxied`], and
    /// if no slot is free.
    fn admit(&self, client: &Connection, server: &Rc<Server>) -> Option<SharePermit> {
        if self.is_retired.get() {
            return None;
        }
        let slot = self.slots.try_acquire_any(client.client.address())?;
        let own = ProxiedConnections::with(client);
        if !own.is_listed(server) {
            own.listed.borrow_mut().push(Rc::clone(server));
            self.clients.borrow_mut().push(Rc::downgrade(own));
        }
        Some(slot)
    }
}

/// Keeps a reusable connection for further requests of `client`, unless it has [`IDLE`] of them.
pub(crate) fn put(client: &Connection, address: SocketAddr, server: &Rc<Server>, mut http1: Box<Http1>) {
    let own = ProxiedConnections::with(client);
    if own.http1.borrow().iter().filter(|kept| kept.is_of(server)).count() >= IDLE {
        return;
    }
    if let Some(slot) = server.proxied().admit(client, server) {
        http1.rest();
        let server = Rc::clone(server);
        own.http1.borrow_mut().push(Kept { server, address, connection: http1, idle_ticks: 0, _slot: slot });
    }
}

/// An idle HTTP/1.1 connection of `client` to `server`, if there is one.
pub(crate) fn take(client: Requester<'_>, server: &Rc<Server>) -> Option<Box<Http1>> {
    let proxied: &Rc<ProxiedConnections> = client.connection.extras.proxied()?.downcast_ref()?;
    let mut idle = proxied.http1.borrow_mut();
    loop {
        // The connection used last: the server is least likely to have closed it.
        let index = idle.iter().rposition(|kept| kept.is_for(client.address, server))?;
        let mut http1 = idle.remove(index).connection;
        if !http1.found_closed() {
            return Some(http1);
        }
    }
}

/// The HTTP/2 connections of `client` to `server`; `None` if all clients share them, without `proxy_protocol`. Without a free
/// slot, they close after their request.
pub(crate) fn http2(client: Requester<'_>, server: &Rc<Server>) -> Option<Rc<Http2Pool>> {
    server.state().proxy_protocol()?;
    let Requester { connection: client, address } = client;
    let own = ProxiedConnections::with(client);
    if let Some(kept) = own.http2.borrow().iter().find(|kept| kept.is_for(address, server)) {
        return Some(Rc::clone(&kept.connection));
    }
    let pool = Rc::new(server.new_http2_pool());
    if let Some(slot) = server.proxied().admit(client, server) {
        let (server, connection) = (Rc::clone(server), Rc::clone(&pool));
        own.http2.borrow_mut().push(Kept { server, address, connection, idle_ticks: 0, _slot: slot });
    }
    Some(pool)
}

impl Server {
    /// The [`Owner`] of a new connection whose PROXY header names `client`.
    pub(crate) fn owner_of_proxied(&self, client: Requester<'_>) -> Owner {
        if self.closes_proxied() {
            return Owner::None;
        }
        Owner::Proxied(Rc::downgrade(client.connection), client.address)
    }

    /// Whether a connection with a PROXY header carries one request only.
    pub(crate) fn closes_proxied(&self) -> bool {
        self.state().places().is_some() && self.state().proxy_protocol().is_some()
    }

    /// Closes connections of clients that ended or were idle for `idle_ticks` sweeps. Called once a second.
    pub(crate) fn sweep_proxied(&self, idle_ticks: u32) {
        let remains = |client: &Weak<ProxiedConnections>| {
            client.upgrade().is_some_and(|client| client.sweep(self, idle_ticks))
        };
        self.proxied().clients.borrow_mut().retain(remains);
    }

    /// Closes idle connections of clients and keeps none from now on.
    pub(crate) fn retire_proxied(&self) {
        self.proxied().is_retired.set(true);
        let clients = self.proxied().clients.take();
        clients.iter().filter_map(Weak::upgrade).for_each(|client| client.forget(self));
    }
}
