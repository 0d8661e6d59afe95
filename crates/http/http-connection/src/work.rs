//! Work of a worker for responses that are compressed or changed, divided among its clients.
//!
//! In a round of the event loop, the bodies of all connections process a limited number of bytes, so that other requests
//! wait at most for these. Further bodies wait in a queue of their client. A round takes from the clients in turn.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use brisk_net::limits::client_of;
use tokio::sync::Notify;
use tokio::task::yield_now;

/// Number of bytes per round: about 1 ms of work.
const ROUND: usize = 64 << 10;

/// As [`ROUND`], including short responses that are processed as a whole, which is cheaper.
const WITH_SHORT: usize = 4 * ROUND;

/// Owner of a queue of [`WorkerWork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// A client: an IPv4 address or an IPv6 /64.
    Client(IpAddr),
    /// A connection from an address that represents many clients.
    Connection(u64),
}

impl Owner {
    pub(crate) fn of(client: Option<IpAddr>, connection: u64) -> Self {
        client.map_or(Self::Connection(connection), |client| Self::Client(client_of(client)))
    }
}

/// Work of the bodies of one worker.
#[derive(Debug, Default)]
pub struct WorkerWork {
    /// Bytes of this round.
    used: Cell<usize>,
    queue: RefCell<Queue>,
    next_round: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: HashMap<Owner, VecDeque<Rc<Ticket>>>,
    /// The owners of waiting bodies, the next one first.
    order: VecDeque<Owner>,
}

#[derive(Debug)]
struct Ticket {
    bytes: usize,
    has_turn: Cell<bool>,
    waker: RefCell<Waker>,
}

/// The position of a body in the queue. The default is outside of the queue. Dropping a position leaves the queue.
#[derive(Debug, Default)]
pub struct WorkPlace(Option<Rc<Ticket>>);

impl WorkerWork {
    /// Begins a new round, after the sockets were polled, while there is work.
    pub(crate) async fn run(&self) {
        loop {
            self.next_round.notified().await;
            yield_now().await;
            self.begin_round();
        }
    }

    fn begin_round(&self) {
        let mut used = 0;
        // At least one body per round has its turn, since no ticket has more than `ROUND` bytes.
        while let Some(ticket) = self.queue.borrow_mut().next(ROUND - used) {
            used += ticket.bytes;
            ticket.has_turn.set(true);
            ticket.waker.borrow().wake_by_ref();
        }
        // The bodies with a turn use this round when they run, so new bodies get only the rest.
        self.used.set(used);
        if used > 0 {
            self.next_round.notify_one();
        }
    }

    /// Whether the `bytes` of a short response may be processed in this round, within [`WITH_SHORT`]. Counts them if so.
    pub(crate) fn may_work(&self, bytes: usize) -> bool {
        self.take(bytes, WITH_SHORT)
    }

    fn take(&self, bytes: usize, limit: usize) -> bool {
        // A longer piece counts as one whole round, because it could never have a turn otherwise.
        let used = self.used.get() + bytes.min(ROUND);
        // A new body must not overtake waiting ones, even if it is short enough for the rest of the round.
        let may = used <= limit && self.queue.borrow().order.is_empty();
        if may {
            self.used.set(used);
            self.next_round.notify_one();
        }
        may
    }

    /// Ready when the body of `owner` at `place` may process `bytes`.
    pub(crate) fn poll_work(
        &self,
        owner: Owner,
        bytes: usize,
        place: &mut WorkPlace,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if let Some(ticket) = &place.0 {
            if !ticket.has_turn.get() {
                ticket.waker.borrow_mut().clone_from(context.waker());
                return Poll::Pending;
            }
            place.0 = None;
            return Poll::Ready(());
        }
        if self.take(bytes, ROUND) {
            return Poll::Ready(());
        }
        let waker = RefCell::new(context.waker().clone());
        let ticket = Rc::new(Ticket { bytes: bytes.min(ROUND), has_turn: Cell::new(false), waker });
        self.queue.borrow_mut().add(owner, Rc::clone(&ticket));
        place.0 = Some(ticket);
        self.next_round.notify_one();
        Poll::Pending
    }
}

impl Queue {
    fn add(&mut self, owner: Owner, ticket: Rc<Ticket>) {
        match self.waiting.entry(owner) {
            Entry::Occupied(waiting) => waiting.into_mut().push_back(ticket),
            Entry::Vacant(none) => {
                none.insert(VecDeque::from([ticket]));
                self.order.push_back(owner);
            }
        }
    }

    /// The next body of the next owner, if it needs at most `limit` bytes. Skips bodies that have left.
    fn next(&mut self, limit: usize) -> Option<Rc<Ticket>> {
        while let Some(owner) = self.order.pop_front() {
            let Entry::Occupied(mut waiting) = self.waiting.entry(owner) else { continue };
            let tickets = waiting.get_mut();
            // A ticket with one owner belongs to a dropped body. A search at the drop of each body would cost
            // more than this skip.
            while tickets.pop_front_if(|ticket| Rc::strong_count(ticket) == 1).is_some() {}
            let Some(first) = tickets.front() else {
                waiting.remove();
                continue;
            };
            // The round ends here: if smaller pieces of others went first, this owner could wait without end.
            if first.bytes > limit {
                self.order.push_front(owner);
                return None;
            }
            let ticket = tickets.pop_front();
            if tickets.is_empty() {
                waiting.remove();
            } else {
                self.order.push_back(owner);
            }
            return ticket;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> Owner {
        Owner::of(Some(IpAddr::from([192, 0, 2, number])), 1)
    }

    /// Work without a task for its rounds, and its waiting bodies.
    #[derive(Default)]
    struct Stage {
        work: WorkerWork,
        places: Vec<(u8, WorkPlace)>,
    }

    impl Stage {
        fn poll(&self, number: u8, bytes: usize, place: &mut WorkPlace) -> bool {
            let mut context = Context::from_waker(Waker::noop());
            self.work.poll_work(client(number), bytes, place, &mut context).is_ready()
        }

        fn wait(&mut self, number: u8) {
            let mut place = WorkPlace::default();
            assert!(!self.poll(number, ROUND / 2, &mut place), "a body of client {number} need not wait");
            self.places.push((number, place));
        }

        /// The clients whose bodies have their turn in the next round.
        fn round(&mut self) -> Vec<u8> {
            self.work.begin_round();
            let mut places = std::mem::take(&mut self.places);
            let turns = places.extract_if(.., |(number, place)| self.poll(*number, ROUND / 2, place));
            let turns = turns.map(|(number, _)| number).collect();
            self.places = places;
            turns
        }
    }

    #[test]
    fn a_round_has_a_limit_and_takes_from_the_clients_in_turn() {
        let mut stage = Stage::default();
        assert!(stage.work.take(ROUND, ROUND) && !stage.work.take(1, ROUND));
        // Short responses have a limit of their own, and do not overtake.
        assert!(stage.work.may_work(ROUND));
        for number in [1, 1, 1, 1, 2, 3] {
            stage.wait(number);
        }
        assert_eq!(
            [stage.round(), stage.round(), stage.round(), stage.round()],
            [vec![1, 2], vec![1, 3], vec![1, 1], vec![]]
        );
        assert!(stage.work.may_work(ROUND));
    }

    #[test]
    fn no_body_overtakes_those_that_wait_and_those_that_left_take_no_turn() {
        let mut stage = Stage::default();
        assert!(stage.work.take(ROUND, ROUND));
        for number in [1, 1, 2, 2, 2] {
            stage.wait(number);
        }
        // Both of client 1, and one of client 2.
        stage.places.drain(..3);
        assert!(!stage.work.may_work(1));
        assert_eq!(stage.round(), [2, 2]);
        assert!(stage.work.queue.borrow().waiting.is_empty());
    }

    #[tokio::test]
    async fn rounds_go_on_while_there_is_work() {
        let work = WorkerWork::default();
        let bodies = async {
            let mut place = WorkPlace::default();
            for _ in 0..10 {
                std::future::poll_fn(|context| {
                    work.poll_work(Owner::of(None, 1), ROUND, &mut place, context)
                })
                .await;
            }
        };
        tokio::select! {
            () = work.run() => {}
            () = bodies => {}
        }
    }
}
