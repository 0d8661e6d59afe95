//! Responses gathered while they are sent: future dictionaries and compressed copies of files.

use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};

use brisk_budget::Reservation;

/// Bytes of a response that are gathered while it is sent. Given up if the bytes exceed their limit, if no memory is
/// left for the client, and if the client stalls: a response that is not read needs no copy.
pub struct Gathering {
    shared: Rc<Shared>,
    limit: usize,
}

/// The gathered bytes of a [`Gathering`]; `None` once they are given up.
pub(crate) type Shared = RefCell<Option<Gathered>>;

/// Gathered bytes and the reservation of their capacity.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    bytes: Vec<u8>,
    /// `None` on a connection without budgets, as in tests.
    reservation: Option<Reservation>,
}

impl Gathering {
    /// Starts to gather a response of at most `limit` bytes; `reservation` grows with the gathered bytes.
    pub(crate) fn new(limit: usize, reservation: Option<Reservation>) -> Self {
        Self { shared: Rc::new(RefCell::new(Some(Gathered::new(reservation)))), limit }
    }

    /// The gathered bytes, for [`Connection::stop_gathering`](crate::Connection::stop_gathering).
    pub(crate) fn shared(&self) -> Weak<Shared> {
        Rc::downgrade(&self.shared)
    }

    /// Adds a piece. Without effect once the bytes are given up.
    pub fn add(&self, piece: &[u8]) {
        let mut shared = self.shared.borrow_mut();
        if shared.as_mut().is_some_and(|gathered| !gathered.add(piece, self.limit)) {
            // The memory is free at once, not at the end of the response, which may take hours for a slow
            // client.
            *shared = None;
        }
    }

    /// The whole response; `None` if it was given up.
    pub fn finish(self) -> Option<Vec<u8>> {
        self.shared.take().map(|gathered| gathered.bytes)
    }
}

impl Gathered {
    /// No bytes yet. `reservation` grows with them.
    pub(crate) fn new(reservation: Option<Reservation>) -> Self {
        Self { bytes: Vec::new(), reservation }
    }

    /// The bytes, and the reservation of their memory.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Option<Reservation>) {
        (self.bytes, self.reservation)
    }

    /// Adds a piece. `false` if the bytes then exceed `limit`, or no memory is left for the client.
    pub(crate) fn add(&mut self, piece: &[u8], limit: usize) -> bool {
        let length = self.bytes.len() + piece.len();
        let capacity = self.bytes.capacity();
        if length > limit {
            return false;
        }
        if length > capacity {
            // Doubling keeps the copies linear in the length. `limit` caps the last step, so that no more is
            // reserved than may be gathered.
            let larger = length.max(2 * capacity).min(limit);
            let reserve =
                |reservation: &mut Reservation| reservation.grow((larger - capacity) as u64).is_ok();
            if !self.reservation.as_mut().is_none_or(reserve) {
                return false;
            }
            // `reserve_exact`, because `reserve` may allocate more than the budget has reserved.
            self.bytes.reserve_exact(larger - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        true
    }
}

impl fmt::Debug for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathering").field("limit", &self.limit).finish_non_exhaustive()
    }
}
