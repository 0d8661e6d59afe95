//! Sending of operations on a connection, and its load for the choice among connections.

use std::time::{Duration, Instant};

use brisk_keys::KeyId;
use bytes::Bytes;

use super::{Connected, ServerLink};
use crate::client::pool::Operation;
use crate::frame::Request;

// The order of the fields matters: a poor connection is worse than any load.
/// Order of preference among connections: the lowest value is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::client) struct Load {
    is_poor: bool,
    under_way: usize,
}

impl ServerLink {
    /// The load, for comparison; `None` if the [`ServerLink`] accepts no operation now.
    pub(in crate::client) fn load(&self) -> Option<Load> {
        let connected = self.connected.borrow();
        let connected = connected.as_ref().filter(|own| !own.draining)?;
        let under_way = connected.under_way.len();
        let rests = self.rests_until.get().is_some_and(|until| Instant::now() < until);
        let is_poor = self.silent.get() || rests;
        (under_way < usize::from(connected.limits.operations)).then_some(Load { is_poor, under_way })
    }

    /// Returns whether the server has this operation and has not responded.
    pub(in crate::client) fn has(&self, number: u32) -> bool {
        self.connected.borrow().as_ref().is_some_and(|own| own.under_way.contains_key(&number))
    }

    /// Time at which this operation was sent, if it has no response yet.
    pub(in crate::client) fn sent(&self, number: u32) -> Option<Instant> {
        self.connected.borrow().as_ref()?.under_way.get(&number).copied()
    }

    /// Returns whether the server responds, even if it accepts no operation now.
    pub(in crate::client) fn is_reachable(&self) -> bool {
        !self.silent.get() && self.connected.borrow().as_ref().is_some_and(|own| !own.draining)
    }

    /// Sends the [`Operation`] with the next write.
    pub(in crate::client) fn send(&self, number: u32, operation: &Operation) {
        let mut connected = self.connected.borrow_mut();
        let Some(connected) = connected.as_mut() else { return };
        let now = Instant::now();
        let sign = Request::Sign {
            operation: number,
            key: connected.number_of(operation.key),
            scheme: operation.scheme,
            remaining: operation.deadline.saturating_duration_since(now),
            message: operation.message.clone(),
        };
        sign.write(&mut connected.outgoing);
        connected.under_way.insert(number, now);
        self.wake();
    }

    /// Asks the server with `CANCEL` not to begin the [`Operation`].
    pub(in crate::client) fn cancel(&self, number: u32) {
        if let Some(connected) = self.connected.borrow_mut().as_mut() {
            Request::Cancel { operation: number }.write(&mut connected.outgoing);
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

impl Connected {
    /// Sends a `PING`.
    pub(super) fn ping(&mut self, now: Instant) {
        self.pinged = Some(now);
        Request::Ping { number: 0, bytes: Bytes::new() }.write(&mut self.outgoing);
    }

    /// Returns whether the server is draining and no operation waits for it any more: `deadline` is the longest time of an
    /// operation. A server that never sends an owed response would otherwise keep its successor from being connected.
    pub(super) fn has_drained(&self, deadline: Duration, now: Instant) -> bool {
        let is_over = |sent: &Instant| now.saturating_duration_since(*sent) >= deadline;
        self.draining && self.under_way.values().all(is_over)
    }

    /// Number of the key on this connection. A new key is announced with a `KEY` frame. When all numbers are in use, they
    /// are assigned again from 0.
    fn number_of(&mut self, key: KeyId) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        if self.numbers.len() >= usize::from(self.limits.keys.max(1)) {
            // Operations in progress keep their keys: a number is bound to a key when the server reads the
            // frame.
            self.numbers.clear();
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(key, number);
        Request::Key { number, key }.write(&mut self.outgoing);
        number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bytes::BytesMut;

    use super::*;
    use crate::frame::{Hello, VERSION};

    #[test]
    fn a_draining_server_without_a_response_is_left_when_the_operation_has_ended() {
        let (now, deadline) = (Instant::now(), Duration::from_secs(1));
        let mut connected = Connected {
            outgoing: BytesMut::new(),
            under_way: HashMap::from([(1, now)]),
            numbers: HashMap::new(),
            limits: Hello { version: VERSION, operations: 2, keys: 1 },
            heard: now,
            pinged: None,
            draining: false,
        };
        assert!(!connected.has_drained(deadline, now + deadline));
        connected.draining = true;
        assert!(!connected.has_drained(deadline, now));
        assert!(connected.has_drained(deadline, now + deadline));
        connected.under_way.clear();
        assert!(connected.has_drained(deadline, now));
    }
}
