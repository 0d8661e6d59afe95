//! Connections with a PROXY header, which belong to one client.
//!
//! The header names the client of all requests on its connection. Such a connection therefore carries requests of one
//! client connection only, is kept with that connection and closes with it. If the number of connections to the server is
//! limited, a connection closes after its request instead, because kept ones would hold permits that others need.

use std::cell::RefCell;
use std::rc::Rc;

use brisk_http_connection::Connection;

use crate::group::Server;
use crate::http1::{Http1, Owner};
use crate::http2::Http2Pool;

/// Maximum number of idle HTTP/1.1 connections to one server for one client connection.
const IDLE: usize = 8;

/// Connections to servers whose PROXY header names one client connection.
#[derive(Debug, Default)]
pub(crate) struct ProxiedConnections {
    idle: RefCell<Vec<(Rc<Server>, Box<Http1>)>>,
    http2: RefCell<Vec<(Rc<Server>, Rc<Http2Pool>)>>,
}

impl ProxiedConnections {
    /// The connections of `client`, created if necessary.
    pub(crate) fn with(client: &Connection) -> &Self {
        let proxied = client.extras.proxied_or(|| Box::new(Self::default()));
        proxied.downcast_ref().expect("nothing else is kept here")
    }

    /// Keeps a reusable connection for further requests of the client, unless it has enough of them.
    pub(crate) fn put(&self, server: &Rc<Server>, mut http1: Box<Http1>) {
        http1.rest();
        let mut idle = self.idle.borrow_mut();
        if idle.iter().filter(|(own, _)| Rc::ptr_eq(own, server)).count() < IDLE {
            idle.push((Rc::clone(server), http1));
        }
    }
}

/// An idle HTTP/1.1 connection of `client` to `server`, if there is one.
pub(crate) fn take(client: &Connection, server: &Rc<Server>) -> Option<Box<Http1>> {
    let proxied: &ProxiedConnections = client.extras.proxied()?.downcast_ref()?;
    let mut idle = proxied.idle.borrow_mut();
    loop {
        let index = idle.iter().rposition(|(own, _)| Rc::ptr_eq(own, server))?;
        let (_, mut http1) = idle.remove(index);
        if !http1.found_closed() {
            return Some(http1);
        }
    }
}

/// The HTTP/2 connections of `client` to `server`; `None` if they are shared by all clients.
pub(crate) fn http2(client: &Connection, server: &Rc<Server>) -> Option<Rc<Http2Pool>> {
    server.state().proxy_protocol()?;
    let mut pools = ProxiedConnections::with(client).http2.borrow_mut();
    if let Some((_, pool)) = pools.iter().find(|(own, _)| Rc::ptr_eq(own, server)) {
        return Some(Rc::clone(pool));
    }
    let pool = Rc::new(server.new_http2_pool());
    pools.push((Rc::clone(server), Rc::clone(&pool)));
    Some(pool)
}

impl Server {
    /// The owner of a new connection whose PROXY header names `client`.
    pub(crate) fn owner_of_proxied(&self, client: &Rc<Connection>) -> Owner {
        if self.closes_proxied() { Owner::None } else { Owner::Proxied(Rc::downgrade(client)) }
    }

    /// Whether a connection with a PROXY header carries one request only.
    pub(crate) fn closes_proxied(&self) -> bool {
        self.state().places.is_some() && self.state().proxy_protocol().is_some()
    }
}
