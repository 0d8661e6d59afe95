//! Idle HTTP/1.1 connections of one worker to one server.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::http1::Http1;

/// A stack of idle [`Http1`] connections. The connection used last is taken first: the server is least likely to have closed
/// it, and surplus connections age.
///
/// A connection that the server has closed meanwhile is detected when a request uses it: the poll that would send the
/// request finds the end and returns the request unsent.
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
    /// A pool of at most `limit` connections, each kept for at most `idle_ticks` calls of [`Self::sweep`].
    pub(crate) fn new(limit: usize, idle_ticks: u32) -> Self {
        Self { idle: RefCell::default(), limit: Cell::new(limit), idle_ticks, now: Cell::new(0) }
    }

    /// Takes the connection that was used last; `None` if there is none.
    pub(crate) fn take(&self) -> Option<Box<Http1>> {
        self.idle.borrow_mut().pop_back().map(|idle| idle.http1)
    }

    /// Keeps a reusable connection, or closes it if the pool is full.
    pub(crate) fn put(&self, mut http1: Box<Http1>) {
        http1.rest();
        let mut idle = self.idle.borrow_mut();
        if idle.len() < self.limit.get() {
            idle.push_back(Idle { http1, since: self.now.get() });
        }
    }

    /// Closes connections that are too old or were closed by the server. Called once a second.
    pub(crate) fn sweep(&self) {
        let now = self.now.get().wrapping_add(1);
        self.now.set(now);
        let too_old = |idle: &Idle| now.wrapping_sub(idle.since) > self.idle_ticks;
        // One `read` for each connection and second: one that the server has closed would otherwise hold its
        // permit.
        self.idle.borrow_mut().retain_mut(|idle| !too_old(idle) && !idle.http1.found_closed());
    }

    /// Closes the connection that was idle longest. Returns whether there was one.
    pub(crate) fn close_oldest(&self) -> bool {
        let oldest = self.idle.borrow_mut().pop_front();
        oldest.is_some()
    }

    /// Closes all connections and keeps none from now on.
    pub(crate) fn retire(&self) {
        self.limit.set(0);
        self.idle.borrow_mut().clear();
    }

    /// Number of idle connections.
    pub(crate) fn len(&self) -> usize {
        self.idle.borrow().len()
    }
}
