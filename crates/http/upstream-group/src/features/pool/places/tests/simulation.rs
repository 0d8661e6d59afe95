//! Simulation of the permits of one server: workers with pools of connections, whose requests begin, wait, leave and end in any
//! order.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use brisk_testkit::random::Random;
use brisk_testkit::simulation::each_seed;

use super::{Grant, Next, Place, Places, Waiting, Worker, poll};

const WORKERS: usize = 3;
const STEPS: usize = 200;

/// Rounds within which all requests end that began before the faults stopped.
const ROUNDS: usize = 100;

/// The connections of a worker, each with its permit, and the requests that wait, as in the crate `brisk-upstream`.
#[derive(Default)]
struct Pool {
    active: Vec<Place>,
    idle: Vec<Place>,
    /// Connections for requests with a [`Grant::Connection`].
    handed: VecDeque<Place>,
    waiting: Vec<Waiting>,
}

struct Simulation {
    places: Arc<Places>,
    limit: usize,
    queue: usize,
    pools: [Pool; WORKERS],
}

impl Simulation {
    fn new(random: &mut Random) -> Self {
        let (limit, queue) = (1 + random.below(4), random.below(8));
        Self { places: Places::new(limit, queue), limit, queue, pools: Default::default() }
    }

    /// A request takes an idle connection, opens one, waits, or is refused.
    fn begin(&mut self, worker: usize, client: Option<IpAddr>) {
        let place = self.pools[worker].idle.pop().or_else(|| self.places.try_take());
        if let Some(place) = place {
            return self.pools[worker].active.push(place);
        }
        let is_full = self.places.waiting() >= self.queue;
        match self.places.wait(Worker(worker), client) {
            Some(waiting) => self.pools[worker].waiting.push(waiting),
            None => assert!(is_full || client.is_some(), "a request is refused although the queue has room"),
        }
    }

    /// A request looks at its grant.
    fn look(&mut self, worker: usize, index: usize) {
        let pool = &mut self.pools[worker];
        let Some(grant) = poll(&mut pool.waiting[index]) else { return };
        drop(pool.waiting.swap_remove(index));
        let place = match grant {
            Grant::Place(place) => place,
            Grant::Connection => pool.handed.pop_front().expect("a connection for each grant"),
            Grant::Refused => unreachable!("the limits stay"),
        };
        pool.active.push(place);
    }

    /// A request gives up.
    fn leave(&mut self, worker: usize, index: usize) {
        let mut waiting = self.pools[worker].waiting.swap_remove(index);
        let grant = waiting.leave();
        if matches!(grant, Some(Grant::Connection)) {
            let place = self.pools[worker].handed.pop_front().expect("a connection for each grant");
            self.keep(worker, place);
        }
    }

    /// A request ends and leaves its connection.
    fn keep(&mut self, worker: usize, place: Place) {
        match self.places.pass_on(Worker(worker)) {
            Next::Idle => self.pools[worker].idle.push(place),
            Next::SameWorker => self.pools[worker].handed.push_back(place),
            Next::OtherWorker => drop(place),
        }
    }

    /// A worker closes idle connections whose permits are needed.
    fn yield_idle(&mut self, worker: usize) {
        while self.places.waiting() > 0 {
            let Some(place) = self.pools[worker].idle.pop() else { return };
            drop(place);
        }
    }

    fn step(&mut self, random: &mut Random) {
        let worker = random.below(WORKERS);
        let (active, waiting) = (self.pools[worker].active.len(), self.pools[worker].waiting.len());
        match random.below(8) {
            0..=2 => {
                let client = random.chance(50).then(|| IpAddr::from([192, 0, 2, random.below(3) as u8]));
                self.begin(worker, client);
            }
            3 if active > 0 => {
                let place = self.pools[worker].active.swap_remove(random.below(active));
                self.keep(worker, place);
            }
            // The connection has failed.
            4 if active > 0 => drop(self.pools[worker].active.swap_remove(random.below(active))),
            5 if waiting > 0 => self.leave(worker, random.below(waiting)),
            6 if waiting > 0 => self.look(worker, random.below(waiting)),
            7 => self.yield_idle(worker),
            _ => {}
        }
        self.check();
    }

    fn check(&self) {
        let open = self.pools.iter().map(|pool| pool.active.len() + pool.idle.len() + pool.handed.len());
        let open: usize = open.sum();
        let requests: usize = self.pools.iter().map(|pool| pool.waiting.len()).sum();
        let taken = self.places.lock().taken;
        assert!(taken <= self.limit, "{taken} permits of {}", self.limit);
        assert!(open <= taken, "{open} connections with {taken} permits");
        assert!(self.places.waiting() <= self.queue.min(requests), "more requests wait than there are");
    }

    /// Without faults, all requests end, and all permits are free afterwards.
    fn settle(mut self) {
        for _ in 0..ROUNDS {
            for worker in 0..WORKERS {
                self.yield_idle(worker);
                for index in (0..self.pools[worker].waiting.len()).rev() {
                    self.look(worker, index);
                }
                while let Some(place) = self.pools[worker].active.pop() {
                    self.keep(worker, place);
                }
                self.check();
            }
        }
        assert!(self.pools.iter().all(|pool| pool.waiting.is_empty()), "a request waits without an end");
        self.pools = Default::default();
        let state = self.places.lock();
        assert_eq!((state.taken, state.queue.len(), state.left), (0, 0, 0));
    }
}

#[test]
fn permits_are_never_exceeded_and_every_request_gets_one() {
    each_seed("places", 300, |random| {
        let mut simulation = Simulation::new(random);
        (0..STEPS).for_each(|_| simulation.step(random));
        simulation.settle();
    });
}
