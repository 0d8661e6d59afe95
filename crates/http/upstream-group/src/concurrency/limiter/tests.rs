//! Tests of limits with a simulated server and a simulated clock.

use std::collections::VecDeque;

use super::*;

/// Step of the simulation in seconds.
const STEP: f64 = 0.001;

/// Steps between two calls of the limiter.
const CALL: u32 = 100;

/// Clients usually leave after this time in seconds.
const LEAVE_AFTER: f64 = 5.0;

/// A request, by the times of its arrival and of its admission.
#[derive(Clone, Copy)]
struct Request {
    arrived: f64,
    sent: f64,
    has_permit: bool,
}

/// A server, its clients, and the gateway between them.
struct Simulation {
    limiter: Limiter,
    /// Requests that the server processes at the same time; the others wait in it.
    slots: usize,
    /// Clients leave after this time in seconds.
    leave_after: f64,
    now: f64,
    due: f64,
    waiting: VecDeque<Request>,
    queued: VecDeque<Request>,
    /// Requests in process with the times of their ends.
    running: Vec<(f64, Request)>,
    steps: u32,
    /// Number of requests that were processed.
    started: u64,
    observed: Observed,
    /// Delay of the event loops of the gateway.
    delay: Duration,
    changes: Vec<Change>,
    done: Vec<f64>,
    refused: usize,
}

impl Simulation {
    fn new(slots: usize) -> Self {
        Self {
            limiter: Limiter::new(),
            slots,
            leave_after: LEAVE_AFTER,
            now: 0.0,
            due: 0.0,
            waiting: VecDeque::new(),
            queued: VecDeque::new(),
            running: Vec::new(),
            steps: 0,
            started: 0,
            observed: Observed::default(),
            delay: Duration::ZERO,
            changes: Vec::new(),
            done: Vec::new(),
            refused: 0,
        }
    }

    /// Lets `rate` requests per second arrive for some seconds. Each takes `service` seconds in a slot, by the time and its number.
    /// Returns the responses per second.
    fn run(&mut self, seconds: f64, rate: f64, service: impl Fn(f64, u64) -> f64) -> f64 {
        self.done.clear();
        self.refused = 0;
        let end = self.now + seconds;
        while self.now < end {
            self.now += STEP;
            self.end_requests();
            self.due += rate * STEP;
            while self.due >= 1.0 {
                self.due -= 1.0;
                self.arrive();
            }
            self.admit();
            while self.running.len() < self.slots
                && let Some(request) = self.queued.pop_front()
            {
                self.started += 1;
                self.running.push((self.now + service(self.now, self.started), request));
            }
            self.steps += 1;
            if self.steps.is_multiple_of(CALL) {
                self.call();
            }
        }
        self.done.len() as f64 / seconds
    }

    /// The time below which this share of the requests of the last run got its response.
    fn quantile(&self, share: f64) -> f64 {
        let mut times = self.done.clone();
        times.sort_by(f64::total_cmp);
        times[((times.len() as f64 * share) as usize).min(times.len() - 1)]
    }

    fn in_flight(&self) -> impl Iterator<Item = &Request> {
        self.queued.iter().chain(self.running.iter().map(|(_, request)| request))
    }

    fn end_requests(&mut self) {
        let (now, leave_after) = (self.now, self.leave_after);
        let mut ended = Vec::new();
        self.running.retain(|(end, request)| {
            let runs = *end > now;
            ended.extend((!runs).then_some(*request));
            runs
        });
        for request in ended {
            // The server has processed the request of a client that has gone, too.
            if now - request.arrived <= leave_after {
                self.observed.answered += 1;
                self.observed.latency += Duration::from_secs_f64(now - request.sent);
                self.done.push(now - request.arrived);
            } else {
                self.observed.lost += 1;
            }
        }
        self.waiting.retain(|request| now - request.arrived <= leave_after);
    }

    fn arrive(&mut self) {
        let request = Request { arrived: self.now, sent: self.now, has_permit: false };
        match self.limiter.limit() {
            None => self.queued.push_back(request),
            Some(Limit { queue, .. }) if self.waiting.len() < queue.unwrap_or(usize::MAX) => {
                self.waiting.push_back(request);
            }
            Some(_) => self.refused += 1,
        }
    }

    fn admit(&mut self) {
        let limit = self.limiter.limit();
        let (mut permits, mut most) = (0, usize::MAX);
        if let Some(limit) = limit {
            permits = self.in_flight().filter(|request| request.has_permit).count();
            let others = self.in_flight().count() - permits;
            most = limit.requests.saturating_sub(others).max(FLOOR);
        }
        while permits < most
            && let Some(request) = self.waiting.pop_front()
        {
            permits += 1;
            self.queued.push_back(Request { sent: self.now, has_permit: limit.is_some(), ..request });
        }
    }

    fn call(&mut self) {
        self.observed.in_flight = self.in_flight().count() as u64;
        self.observed.without_permit = self.in_flight().filter(|request| !request.has_permit).count() as u64;
        self.observed.delay = self.delay;
        self.observed.has_queue = !self.waiting.is_empty();
        let observed = std::mem::take(&mut self.observed);
        self.changes.extend(self.limiter.tick(Duration::from_millis(100), &observed));
        let queue = self.limiter.limit().map_or(usize::MAX, |limit| limit.queue.unwrap_or(usize::MAX));
        while self.waiting.len() > queue {
            self.waiting.pop_front();
            self.refused += 1;
        }
    }
}

/// Throughput, and the slowest one in a hundred, while three times as many requests arrive as a server with `slots` for requests of
/// `service` seconds can answer.
fn under_overload(slots: usize, service: f64) -> (f64, f64) {
    let capacity = slots as f64 / service;
    let mut simulation = Simulation::new(slots);
    let idle = simulation.run(10.0, 0.5 * capacity, |_, _| service);
    assert!((idle / capacity - 0.5).abs() < 0.05 && simulation.limiter.limit().is_none());
    simulation.run(20.0, 3.0 * capacity, |_, _| service);
    assert_eq!(simulation.changes, [Change::Limited]);
    let throughput = simulation.run(60.0, 3.0 * capacity, |_, _| service);
    let slowest = simulation.quantile(0.99);
    // Normal at once: the limit stays for some time, and refuses nothing.
    let after = simulation.run(5.0, 0.5 * capacity, |_, _| service);
    assert!(after / capacity > 0.45, "{after} of {capacity}");
    simulation.run(20.0, 0.5 * capacity, |_, _| service);
    assert_eq!((simulation.refused, simulation.limiter.limit()), (0, None));
    (throughput / capacity, slowest / service)
}

#[test]
fn an_overloaded_server_keeps_its_throughput_and_its_latency() {
    for (slots, service) in [(4, 0.02), (16, 0.1), (64, 0.05), (100, 0.2)] {
        let (throughput, slowest) = under_overload(slots, service);
        assert!(throughput >= 0.9, "{slots} slots of {service} s: {throughput}");
        // Windows as short as the service see its rhythm, and lift a limit now and then.
        assert!(slowest <= 4.5, "{slots} slots of {service} s: {slowest}");
    }
}

#[test]
fn a_small_server_keeps_its_throughput_with_the_least_limit() {
    let mut simulation = Simulation::new(1);
    simulation.run(10.0, 100.0, |_, _| 0.005);
    simulation.run(20.0, 600.0, |_, _| 0.005);
    let throughput = simulation.run(60.0, 600.0, |_, _| 0.005);
    assert!(throughput >= 170.0, "{throughput}");
    assert!(simulation.limiter.limit().is_some_and(|limit| limit.requests <= 8));
}

/// Asserts that a server that processes all requests at once is not limited, however long the requests take.
#[track_caller]
fn stays_open(rates: &[(f64, f64)], service: impl Fn(f64, u64) -> f64 + Copy) {
    let mut simulation = Simulation::new(usize::MAX);
    for (seconds, rate) in rates {
        simulation.run(*seconds, *rate, service);
        assert_eq!((simulation.refused, &simulation.changes[..]), (0, &[][..]), "at {}", simulation.now);
    }
}

#[test]
fn a_slow_server_is_not_limited() {
    stays_open(&[(20.0, 100.0), (40.0, 300.0), (20.0, 10.0)], |_, _| 2.0);
}

#[test]
fn a_server_whose_latency_varies_is_not_limited() {
    // It rises for good, and for a while.
    stays_open(&[(60.0, 100.0)], |now, _| if now < 20.0 { 0.02 } else { 1.0 });
    stays_open(&[(60.0, 200.0)], |now, _| if (20.0..40.0).contains(&now) { 0.2 } else { 0.02 });
    // It rises slowly.
    stays_open(&[(120.0, 100.0)], |now, _| 0.02 * (1.0 + now / 20.0));
    // Some requests take long.
    stays_open(&[(60.0, 200.0)], |_, number| if number.is_multiple_of(20) { 3.0 } else { 0.02 });
}

/// Asserts that a server that processes all requests at once is not limited, and that its throughput never falls, while patient
/// clients send requests that take long beside fast ones.
#[track_caller]
fn keeps_its_throughput(seconds: u32, rate: impl Fn(f64) -> f64, service: impl Fn(f64, u64) -> f64 + Copy) {
    let mut simulation = Simulation::new(usize::MAX);
    simulation.leave_after = f64::INFINITY;
    let mut answered = 0.0;
    for second in 1..=seconds {
        let rate = rate(simulation.now);
        answered += simulation.run(1.0, rate, service);
        let now = simulation.now;
        assert_eq!((simulation.refused, &simulation.changes[..]), (0, &[][..]), "at {now}");
        if second.is_multiple_of(5) {
            assert!(answered >= 0.9 * 5.0 * rate, "{answered} until {now}");
            answered = 0.0;
        }
    }
}

#[test]
fn a_server_with_slow_requests_beside_fast_ones_keeps_its_throughput() {
    keeps_its_throughput(
        120,
        |_| 300.0,
        |now, number| {
            let share = if now < 60.0 { 60 } else { 20 };
            if number.is_multiple_of(share) { 60.0 } else { 0.005 }
        },
    );
}

#[test]
fn one_client_with_slow_requests_causes_no_limit() {
    // Ten requests of 20 s per second for 3 s of every 8 s.
    let is_slow = |now: f64| now % 8.0 < 3.0;
    let service =
        move |now: f64, number: u64| if is_slow(now) && number.is_multiple_of(21) { 20.0 } else { 0.01 };
    keeps_its_throughput(120, move |now| if is_slow(now) { 210.0 } else { 200.0 }, service);
}

#[test]
fn a_limited_server_regains_its_throughput_from_slow_requests() {
    let mut simulation = Simulation::new(16);
    simulation.run(10.0, 100.0, |_, _| 0.05);
    simulation.run(20.0, 900.0, |_, _| 0.05);
    assert!(simulation.limiter.limit().is_some());
    // Slow requests hold permits, but no slots.
    simulation.slots = usize::MAX;
    let service = |_: f64, number: u64| if number.is_multiple_of(100) { 60.0 } else { 0.05 };
    simulation.run(30.0, 300.0, service);
    let throughput = simulation.run(10.0, 300.0, service);
    assert!(throughput >= 160.0, "{throughput}");
}

#[test]
fn a_server_that_answers_no_more_requests_loses_its_limit() {
    let mut simulation = Simulation::new(16);
    simulation.run(10.0, 100.0, |_, _| 0.05);
    simulation.run(20.0, 900.0, |_, _| 0.05);
    simulation.run(2.0, 900.0, |_, _| 1000.0);
    simulation.run(20.0, 900.0, |_, _| 0.05);
    assert_eq!(simulation.changes, [Change::Limited, Change::Opened]);
}

#[test]
fn a_server_that_stands_still_for_a_moment_is_not_limited() {
    let still = |now: f64, _: u64| if now % 20.0 < 3.0 { 3.02 - now % 20.0 } else { 0.02 };
    stays_open(&[(80.0, 100.0)], still);
}

#[test]
fn a_server_of_a_gateway_that_is_busy_itself_is_not_limited() {
    let mut simulation = Simulation::new(4);
    simulation.run(10.0, 100.0, |_, _| 0.02);
    // As if all of the latency was the delay of the event loop.
    simulation.delay = Duration::from_secs(5);
    simulation.run(3.0, 600.0, |_, _| 0.02);
    assert!(simulation.changes.is_empty() && simulation.limiter.limit().is_none());
}

#[test]
fn an_idle_server_has_no_limit() {
    stays_open(&[(30.0, 0.0), (30.0, 0.5), (30.0, 5.0)], |_, _| 0.01);
}

#[test]
fn a_server_that_becomes_faster_gets_more_requests() {
    let mut simulation = Simulation::new(4);
    simulation.run(10.0, 100.0, |_, _| 0.02);
    simulation.run(20.0, 600.0, |_, _| 0.02);
    // Four more servers behind it.
    simulation.slots = 20;
    simulation.run(60.0, 900.0, |_, _| 0.02);
    let throughput = simulation.run(20.0, 900.0, |_, _| 0.02);
    assert!(throughput >= 810.0, "{throughput}");
}

#[test]
fn a_server_that_becomes_slower_is_limited_more() {
    let mut simulation = Simulation::new(16);
    simulation.run(10.0, 100.0, |_, _| 0.05);
    simulation.run(20.0, 900.0, |_, _| 0.05);
    // 80 requests per second instead of 320.
    simulation.run(60.0, 900.0, |_, _| 0.2);
    let throughput = simulation.run(30.0, 900.0, |_, _| 0.2);
    assert!(throughput >= 65.0, "{throughput}");
    assert!(simulation.quantile(0.99) <= 4.0, "{}", simulation.quantile(0.99));
}

#[test]
fn a_server_that_answers_only_clients_that_have_gone_recovers() {
    let mut simulation = Simulation::new(2);
    simulation.run(20.0, 4.0, |_, _| 0.25);
    // Three times as many as it can answer: soon each waits for longer than its client.
    simulation.run(150.0, 24.0, |_, _| 0.25);
    let throughput = simulation.run(60.0, 24.0, |_, _| 0.25);
    assert!(throughput >= 6.0, "{throughput} of 8");
}
