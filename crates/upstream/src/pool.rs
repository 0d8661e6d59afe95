//! The idle HTTP/1.1 connections of one worker to one server.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::http1::Http1;

/// Connections that wait for a request. The last one put in is the first one taken out: it is the least likely to be
/// closed by the server, and those that are not needed grow old.
///
/// A connection that the server has closed meanwhile is noticed when a request is handed to it: the same poll that would
/// send finds the end and gives the request back unsent.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: RefCell<VecDeque<Idle>>,
    limit: Cell<usize>,
    idle_ticks: u32,
    now: Cell<u32>,
}

#[derive(Debug)]
struct Idle {
    http1: Box<Http1>,
    since: u32,
}

impl Pool {
    /// At most `limit` connections, each kept for at most `idle_ticks` sweeps.
    pub(crate) fn new(limit: usize, idle_ticks: u32) -> Self {
        Self { idle: RefCell::default(), limit: Cell::new(limit), idle_ticks, now: Cell::new(0) }
    }

    /// The connection used last.
    pub(crate) fn take(&self) -> Option<Box<Http1>> {
        self.idle.borrow_mut().pop_back().map(|idle| idle.http1)
    }

    /// Keeps a connection that is reusable, or closes it if there are enough.
    pub(crate) fn put(&self, mut http1: Box<Http1>) {
        http1.rest();
        let mut idle = self.idle.borrow_mut();
        if idle.len() < self.limit.get() {
            idle.push_back(Idle { http1, since: self.now.get() });
        }
    }

    /// Closes what is too old or was closed by the server. Called once a second.
    pub(crate) fn sweep(&self) {
        let now = self.now.get().wrapping_add(1);
        self.now.set(now);
        let too_old = |idle: &Idle| now.wrapping_sub(idle.since) > self.idle_ticks;
        self.idle.borrow_mut().retain_mut(|idle| !too_old(idle) && !idle.http1.found_closed());
    }

    /// Closes the connection that was idle longest, if there is one.
    pub(crate) fn close_oldest(&self) -> bool {
        let oldest = self.idle.borrow_mut().pop_front();
        oldest.is_some()
    }

    /// Closes all, and keeps none from now on.
    pub(crate) fn retire(&self) {
        self.limit.set(0);
        self.idle.borrow_mut().clear();
    }

    /// Connections in the pool.
    pub(crate) fn len(&self) -> usize {
        self.idle.borrow().len()
    }
}
