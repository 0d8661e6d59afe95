//! Simulation of the operations of a gateway: key servers that answer, refuse, fall silent, and lose connections, with a clock of its
//! own.

use std::collections::HashSet;
use std::pin::Pin;
use std::task::Poll;

use brisk_testkit::random::Random;
use brisk_testkit::simulation::each_seed;

use super::*;

const STEPS: usize = 200;

/// Rounds within which all operations end that began before the faults stopped.
const ROUNDS: usize = 100;

/// Start of the clock. Links read the clock of the system, which must not overtake this one.
const AHEAD: Duration = Duration::from_hours(1);

struct Simulation {
    pool: Pool,
    now: Instant,
    /// Operations that each server accepts at a time; `None` for a server that is not connected.
    limits: Vec<Option<u16>>,
    begun: Vec<Begun>,
}

/// An operation whose caller waits.
struct Begun {
    pending: Pin<Box<PendingOperation>>,
    number: u32,
    deadline: Instant,
}

impl Simulation {
    fn new(random: &mut Random) -> Self {
        let servers = 1 + random.below(3);
        let pool = pool(servers as u16);
        Self { pool, now: Instant::now() + AHEAD, limits: vec![None; servers], begun: Vec::new() }
    }

    fn step(&mut self, random: &mut Random) {
        let server = random.below(self.limits.len());
        match random.below(10) {
            0..=3 => self.submit(random),
            4 | 5 => self.answer(server, random, Ok(())),
            6 => {
                let codes =
                    [ErrorCode::Overloaded, ErrorCode::UnknownKey, ErrorCode::Failed, ErrorCode::Shape];
                let code = *random.of(&codes);
                self.answer(server, random, Err(code));
            }
            7 => self.connect_or_lose(server, random),
            8 => {
                self.now += Duration::from_millis(random.below(50) as u64);
                self.pool.pass(self.now);
            }
            _ if !self.begun.is_empty() => drop(self.begun.swap_remove(random.below(self.begun.len()))),
            _ => {}
        }
        self.check();
    }

    fn submit(&mut self, random: &mut Random) {
        let deadline = self.now + Duration::from_millis(1 + random.below(200) as u64);
        let (pending, completion) = PendingOperation::with_completion(deadline);
        // Some operations are for one server alone.
        let excluded = if random.chance(10) { !(1 << random.below(self.limits.len())) } else { 0 };
        self.pool.submit(Job {
            key: KeyId([1; 32]),
            scheme: SignatureScheme::ED25519,
            message: Bytes::from_static(b"message"),
            deadline,
            public_key: None,
            completion,
            counted: InProgress::new(&self.pool.statistics),
            excluded,
        });
        self.begun.push(Begun { pending: Box::pin(pending), number: self.pool.number.get(), deadline });
    }

    /// The operations that a server has, also those that have ended meanwhile.
    fn of(&self, server: usize) -> Vec<u32> {
        (1..=self.pool.number.get()).filter(|number| self.pool.links[server].has(*number)).collect()
    }

    /// A response of the server to one of its operations.
    fn answer(&self, server: usize, random: &mut Random, outcome: Result<(), ErrorCode>) {
        let numbers = self.of(server);
        if !numbers.is_empty() {
            self.respond(server, *random.of(&numbers), outcome);
        }
    }

    fn respond(&self, server: usize, number: u32, outcome: Result<(), ErrorCode>) {
        let link = &self.pool.links[server];
        link.hear(&self.pool);
        let result = outcome.map(|()| Bytes::copy_from_slice(&number.to_be_bytes()));
        link.answered(&self.pool, number, result).expect("no wrong signature");
    }

    fn connect_or_lose(&mut self, server: usize, random: &mut Random) {
        if self.limits[server].take().is_some() {
            return self.pool.links[server].disconnect(&self.pool);
        }
        let operations = random.below(4) as u16;
        self.limits[server] = Some(operations);
        connect(&self.pool, server, operations);
    }

    /// Takes the results of operations that have ended, and checks those that have not.
    fn check(&mut self) {
        let now = self.now;
        self.begun.retain_mut(|begun| {
            let polled = begun.pending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(result) = polled else { return true };
            match result {
                Ok(_) => {
                    assert_eq!(
                        result,
                        Ok(begun.number.to_be_bytes().to_vec().into()),
                        "of another operation"
                    );
                }
                Err(error) => {
                    assert!(error != KeyError::DeadlinePassed || begun.deadline <= now, "ended early");
                }
            }
            false
        });
        let (operations, unsent) = (self.pool.operations.borrow(), self.pool.unsent.borrow());
        let queued: HashSet<_> = unsent.iter().copied().collect();
        assert_eq!(queued.len(), unsent.len(), "an operation waits twice");
        for (number, operation) in &*operations {
            let having = having(&self.pool, *number).len();
            assert_eq!(usize::from(operation.waiting), having, "operation {number}");
            assert!(having > 0 || queued.contains(number), "operation {number} is neither sent nor queued");
        }
        for (server, limit) in self.limits.iter().enumerate() {
            assert!(
                self.of(server).len() <= usize::from(limit.unwrap_or_default()),
                "server {server} has too many"
            );
        }
    }

    /// Deadlines hold without any server, and connected servers end all operations before them.
    fn settle(mut self, random: &mut Random) {
        if random.chance(50) {
            self.now += Duration::from_millis(200);
            self.pool.pass(self.now);
            self.check();
            assert!(self.begun.is_empty(), "operations outlive their deadlines");
        }
        for server in 0..self.limits.len() {
            if self.limits[server].take().is_some() {
                self.pool.links[server].disconnect(&self.pool);
            }
            self.limits[server] = Some(2);
            connect(&self.pool, server, 2);
        }
        for _ in 0..ROUNDS {
            for server in 0..self.limits.len() {
                self.of(server).into_iter().for_each(|number| self.respond(server, number, Ok(())));
            }
            self.check();
        }
        assert!(self.begun.is_empty(), "{} operations do not end", self.begun.len());
        assert!(self.pool.operations.borrow().is_empty());
    }
}

#[test]
fn operations_end_once_with_their_own_result_and_by_their_deadline() {
    each_seed("keyless", 60, |random| {
        let mut simulation = Simulation::new(random);
        (0..STEPS).for_each(|_| simulation.step(random));
        simulation.settle(random);
    });
}
