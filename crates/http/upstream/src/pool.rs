//! Idle HTTP/1.1 connections of one worker to one server.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use crate::http1::Http1;

/// A stack of idle [`Http1`] connections. The connection used last is taken first: the server is least likely to have closed
/// it, and surplus connections age.
///
/// A connection that the server has closed meanwhile is detected when a request uses it: the poll that would send the
/// request finds the end and returns the request unsent.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: RefCell<VecDeque<Idle>>,
    /// From [`Self::put_private`], in the order of the calls. Some slots have been dropped or are `None`.
    private: RefCell<VecDeque<Private>>,
    limit: Cell<usize>,
    idle_ticks: u32,
    now: Cell<u32>,
}

/// An idle connection for one client only; `None` after the [`Pool`] has closed the connection.
pub(crate) type PrivateSlot = RefCell<Option<Box<Http1>>>;

#[derive(Debug)]
struct Idle {
    http1: Box<Http1>,
    since: u32,
}

#[derive(Debug)]
struct Private {
    slot: Weak<PrivateSlot>,
    since: u32,
}

/// Minimum number of calls of [`Pool::sweep`] for which a [`Private`] is kept, 1 to 2 seconds: several steps of a login need the
/// same connection.
const PRIVATE_TICKS: u32 = 2;

impl Pool {
    /// A pool of at most `limit` connections, each kept for at most `idle_ticks` calls of [`Self::sweep`].
    pub(crate) fn new(limit: usize, idle_ticks: u32) -> Self {
        let (idle, private) = (RefCell::default(), RefCell::default());
        Self { idle, private, limit: Cell::new(limit), idle_ticks, now: Cell::new(0) }
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

    /// Keeps a reusable connection for one client, which owns the slot. [`Self::sweep`] and [`Self::close_oldest_private`] may
    /// close the connection.
    pub(crate) fn put_private(&self, mut http1: Box<Http1>) -> Rc<PrivateSlot> {
        http1.rest();
        let slot = Rc::new(RefCell::new(Some(http1)));
        let mut private = self.private.borrow_mut();
        if private.len() == private.capacity() {
            private.retain(|private| private.slot.strong_count() > 0);
            // At least half of the list is free after a search, so that a call takes constant time on average.
            let len = private.len();
            private.reserve(len + 1);
        }
        private.push_back(Private { slot: Rc::downgrade(&slot), since: self.now.get() });
        slot
    }

    /// Closes connections that are too old or were closed by the server. Called once a second.
    pub(crate) fn sweep(&self) {
        let now = self.now.get().wrapping_add(1);
        self.now.set(now);
        let too_old = |idle: &Idle| now.wrapping_sub(idle.since) > self.idle_ticks;
        // One `read` for each connection and second: one that the server has closed would otherwise hold its
        // permit.
        self.idle.borrow_mut().retain_mut(|idle| !too_old(idle) && !idle.http1.found_closed());
        self.private.borrow_mut().retain(|private| private.slot.upgrade().is_some_and(|slot| is_open(&slot)));
    }

    /// Closes the connection that was idle longest. Returns whether there was one.
    pub(crate) fn close_oldest(&self) -> bool {
        let oldest = self.idle.borrow_mut().pop_front();
        oldest.is_some()
    }

    /// Closes the [`Private`] that was idle longest, at least for [`PRIVATE_TICKS`]. Returns whether there was one.
    pub(crate) fn close_oldest_private(&self) -> bool {
        let now = self.now.get();
        let may_close = |private: &mut Private| now.wrapping_sub(private.since) >= PRIVATE_TICKS;
        let mut private = self.private.borrow_mut();
        while let Some(oldest) = private.pop_front_if(may_close) {
            if oldest.slot.upgrade().and_then(|slot| slot.take()).is_some() {
                return true;
            }
        }
        false
    }

    /// Closes all connections of [`Self::put`] and keeps none from now on.
    pub(crate) fn retire(&self) {
        self.limit.set(0);
        self.idle.borrow_mut().clear();
    }

    /// Number of idle connections of [`Self::put`].
    pub(crate) fn len(&self) -> usize {
        self.idle.borrow().len()
    }
}

/// Whether `slot` has a connection. Closes one that the server has closed.
fn is_open(slot: &PrivateSlot) -> bool {
    let mut kept = slot.borrow_mut();
    let is_open = kept.as_mut().is_some_and(|http1| !http1.found_closed());
    if !is_open {
        *kept = None;
    }
    is_open
}
