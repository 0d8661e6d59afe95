//! Operations in progress: assignment to servers, hedging and deadlines.

#[cfg(test)]
mod tests;
mod timers;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use brisk_keys::{Completion, KeyError, KeyId, KeyResult, PublicKey};
use brisk_tls::connector::Connector;
use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use self::timers::{TICK, Timer};
use super::engine::{InProgress, Job, PERFORMER};
use super::link::{Responsiveness, ServerLink};
use super::settings::RemoteSettings;
use super::statistics::Statistics;
use crate::code::ErrorCode;

/// Maximum number of operations taken from the queue at once.
const TURN: usize = 256;

/// Token bucket for hedged requests to servers that respond slowly: one per 20 operations, at most 20 at once. More
/// would double the load of servers that are overloaded already. Hedging for silent servers needs no token.
const HEDGE_SHARE: f32 = 0.05;
const HEDGE_BURST: f32 = 20.0;

/// Number of waiting operations that are tried when a connection has room, before the attempt is given up until the
/// next time. Bounds the cost for operations that only another server can take.
const LOOKS: usize = 16;

/// Runs the connections until all engines have been dropped and their operations have ended.
pub(super) async fn run(
    settings: Arc<RemoteSettings>,
    statistics: Arc<Statistics>,
    connector: Option<Connector>,
    mut jobs: UnboundedReceiver<Job>,
) {
    let (servers, each) = (settings.servers.len(), settings.connections.get());
    let links = (0..servers * each).map(|place| Rc::new(ServerLink::new(place / each))).collect();
    let pool = Rc::new(Pool::new(settings, statistics, links));
    let mut tasks = JoinSet::new();
    for link in &pool.links {
        tasks.spawn_local(Rc::clone(link).run(Rc::clone(&pool), connector.clone()));
    }
    tasks.spawn_local(timers::run(Rc::clone(&pool)));
    let mut turn = Vec::with_capacity(TURN);
    while jobs.recv_many(&mut turn, TURN).await > 0 {
        turn.drain(..).for_each(|job| pool.submit(job));
        // Yields once per batch, so that each connection writes its requests in one system call.
        tokio::task::yield_now().await;
    }
    // Handshakes may still wait for these operations. Each ends at its deadline at the latest.
    while !pool.operations.borrow().is_empty() {
        tokio::time::sleep(TICK).await;
    }
}

/// [`Operation`]s and connections of a set of key servers.
pub(super) struct Pool {
    pub(super) settings: Arc<RemoteSettings>,
    pub(super) statistics: Arc<Statistics>,
    links: Vec<Rc<ServerLink>>,
    operations: RefCell<HashMap<u32, Operation>>,
    /// Operations that no connection could take.
    unsent: RefCell<VecDeque<u32>>,
    first_unsent: Notify,
    timers: RefCell<BinaryHeap<Reverse<(Instant, u32, Timer)>>>,
    first_timer: Notify,
    number: Cell<u32>,
    /// Start of the search for a connection; rotates, so that idle servers take turns.
    first: Cell<usize>,
    /// Tokens for hedged requests.
    hedges: Cell<f32>,
}

/// Result of an attempt to send an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendOutcome {
    /// Sent to another server.
    Sent,
    /// No connection can take it now.
    Queued,
    /// The operation has ended.
    Ended,
}

/// An operation in progress.
pub(super) struct Operation {
    pub(super) key: KeyId,
    pub(super) scheme: SignatureScheme,
    pub(super) message: Bytes,
    pub(super) deadline: Instant,
    public_key: Option<PublicKey>,
    completion: Completion,
    /// Servers that have or had the operation or must not get it, as a bit set of indices.
    asked: u64,
    /// Number of servers without a response yet.
    waiting: u8,
    /// The last error response.
    refused: Option<ErrorCode>,
    _counted: InProgress,
}

impl Pool {
    fn new(settings: Arc<RemoteSettings>, statistics: Arc<Statistics>, links: Vec<Rc<ServerLink>>) -> Self {
        Self {
            settings,
            statistics,
            links,
            operations: RefCell::default(),
            unsent: RefCell::default(),
            first_unsent: Notify::new(),
            timers: RefCell::default(),
            first_timer: Notify::new(),
            number: Cell::new(0),
            first: Cell::new(0),
            hedges: Cell::new(HEDGE_BURST),
        }
    }

    fn submit(&self, job: Job) {
        let Job { key, scheme, message, deadline, public_key, completion, counted, excluded } = job;
        // Abandoned operations end here, before they cost a request.
        let Some(completion) = completion.begin() else { return };
        let number = self.free_number();
        let operation = Operation {
            key,
            scheme,
            message,
            deadline,
            public_key,
            completion,
            asked: excluded,
            waiting: 0,
            refused: None,
            _counted: counted,
        };
        self.operations.borrow_mut().insert(number, operation);
        self.hedges.set((self.hedges.get() + HEDGE_SHARE).min(HEDGE_BURST));
        self.set_timer(deadline, number, Timer::End);
        self.send(number);
    }

    /// Returns a number that no operation in progress has.
    fn free_number(&self) -> u32 {
        let operations = self.operations.borrow();
        loop {
            let number = self.number.get().wrapping_add(1);
            self.number.set(number);
            // 0 denotes the connection itself.
            if number != 0 && !operations.contains_key(&number) {
                return number;
            }
        }
    }

    /// Sends the operation to the best server that has not had it. Without one, the operation waits; if a server has
    /// refused it and no other is reachable, it ends with that error.
    fn send(&self, number: u32) -> SendOutcome {
        let mut operations = self.operations.borrow_mut();
        let Some(operation) = operations.get_mut(&number) else { return SendOutcome::Ended };
        if let Some(link) = self.choose(operation.asked) {
            link.send(number, operation);
            operation.asked |= 1 << link.server;
            operation.waiting += 1;
            drop(operations);
            self.set_timer(Instant::now() + self.settings.hedge, number, Timer::Hedge);
            return SendOutcome::Sent;
        }
        // Another server still has the operation, and its response decides.
        if operation.waiting > 0 {
            return SendOutcome::Queued;
        }
        if let Some(code) = operation.refused.filter(|_| !self.is_reachable(operation.asked)) {
            drop(operations);
            self.complete(number, Err(code.key_error()));
            return SendOutcome::Ended;
        }
        self.unsent.borrow_mut().push_back(number);
        self.first_unsent.notify_waiters();
        SendOutcome::Queued
    }

    /// Waits until an operation waits for a connection.
    pub(super) async fn wanted(&self) {
        while self.unsent.borrow().is_empty() {
            self.first_unsent.notified().await;
        }
    }

    /// Returns whether any server outside `asked` responds, even if it accepts no operation now.
    fn is_reachable(&self, asked: u64) -> bool {
        self.links.iter().any(|link| asked & (1 << link.server) == 0 && link.is_reachable())
    }

    /// The connection with the lowest load to a server outside `asked`.
    fn choose(&self, asked: u64) -> Option<&Rc<ServerLink>> {
        let first = self.first.get().wrapping_add(1);
        self.first.set(first);
        let count = self.links.len();
        let links = (0..count).map(|place| &self.links[(first.wrapping_add(place)) % count]);
        let free = links.filter(|link| asked & (1 << link.server) == 0);
        free.filter_map(|link| Some((link.load()?, link))).min_by_key(|(load, _)| *load).map(|(_, link)| link)
    }

    /// Sends an operation to a second server if the last one has not responded for [`RemoteSettings::hedge`].
    fn hedge(&self, number: u32, now: Instant) {
        let has_it = self.links.iter().filter_map(|link| Some((link.sent(number)?, link)));
        let Some((sent, last)) = has_it.max_by_key(|(sent, _)| *sent) else { return };
        // This timer belongs to an earlier request; the last one has its own.
        if now.duration_since(sent) < self.settings.hedge {
            return;
        }
        let responsiveness = last.check_responsiveness(sent, self, now);
        if responsiveness != Responsiveness::Silent && self.hedges.get() < 1.0 {
            // Decided again after the `PING`: a server that turns out to be silent needs no token.
            if responsiveness == Responsiveness::Pinged {
                self.set_timer(now + self.settings.probe(), number, Timer::Hedge);
            }
            return;
        }
        let waits = self.operations.borrow().get(&number).is_some_and(|operation| operation.waiting > 0);
        if waits && self.send(number) == SendOutcome::Sent {
            self.statistics.hedged.fetch_add(1, Ordering::Relaxed);
            if responsiveness != Responsiveness::Silent {
                self.hedges.set(self.hedges.get() - 1.0);
            }
        }
    }

    /// Ends an operation at its deadline.
    fn end(&self, number: u32) {
        if self.complete(number, Err(KeyError::DeadlinePassed)) {
            self.statistics.late.fetch_add(1, Ordering::Relaxed);
        }
        // Ended operations are removed from the front only: operations wait approximately in the order of their
        // deadlines.
        let operations = self.operations.borrow();
        let mut unsent = self.unsent.borrow_mut();
        while unsent.front().is_some_and(|number| !operations.contains_key(number)) {
            unsent.pop_front();
        }
    }

    /// Completes an operation if it is in progress, and cancels it at the servers that have it.
    fn complete(&self, number: u32, result: KeyResult) -> bool {
        // Removed first: the timer and late responses of other servers then find nothing.
        let Some(operation) = self.operations.borrow_mut().remove(&number) else { return false };
        if operation.waiting > 0 {
            self.cancel(number);
        }
        operation.completion.complete(result, PERFORMER);
        true
    }

    /// Asks servers with `CANCEL` not to begin an operation.
    fn cancel(&self, number: u32) {
        self.links.iter().filter(|link| link.has(number)).for_each(|link| link.cancel(number));
    }

    /// Returns whether `signature` is valid for an operation; true if the operation has ended, or was submitted without
    /// a public key.
    pub(super) fn verifies(&self, number: u32, signature: &[u8]) -> bool {
        let operations = self.operations.borrow();
        // The result of an operation that has ended is discarded, so its verification would be wasted.
        let Some(operation) = operations.get(&number) else { return true };
        let public_key = operation.public_key.as_ref();
        public_key.is_none_or(|key| key.verifies(operation.scheme, &operation.message, signature))
    }

    /// Processes a response.
    pub(super) fn answered(&self, number: u32, result: Result<Vec<u8>, ErrorCode>) {
        let mut operations = self.operations.borrow_mut();
        let Some(operation) = operations.get_mut(&number) else { return };
        operation.waiting = operation.waiting.saturating_sub(1);
        let code = match result {
            Ok(result) => {
                drop(operations);
                self.complete(number, Ok(result.into()));
                return;
            }
            Err(code) => code,
        };
        // Kept for the caller, for the case that no other server is reachable.
        operation.refused = Some(code);
        let is_waited_for = operation.waiting > 0;
        drop(operations);
        if code.is_worth_another_server() {
            self.send(number);
        } else if !is_waited_for {
            self.complete(number, Err(code.key_error()));
        }
    }

    /// Returns operations of a closed connection to the pool. Their server may get them again after a reconnect.
    pub(super) fn lost(&self, server: usize, numbers: impl Iterator<Item = u32>) {
        for number in numbers {
            let mut operations = self.operations.borrow_mut();
            let Some(operation) = operations.get_mut(&number) else { continue };
            operation.waiting = operation.waiting.saturating_sub(1);
            // The server did not refuse the operation, so it may get it again after a reconnect.
            operation.asked &= !(1 << server);
            let is_waited_for = operation.waiting > 0;
            drop(operations);
            self.statistics.servers[server].lost.fetch_add(1, Ordering::Relaxed);
            if !is_waited_for {
                self.send(number);
            }
        }
    }

    /// Sends waiting operations after a connection has become available or has room.
    pub(super) fn has_room(&self) {
        let (mut left, mut looks) = (self.unsent.borrow().len(), LOOKS);
        while left > 0 && looks > 0 && self.links.iter().any(|link| link.load().is_some()) {
            let Some(number) = self.unsent.borrow_mut().pop_front() else { return };
            left -= 1;
            if self.send(number) == SendOutcome::Queued {
                looks -= 1;
            }
        }
    }
}
