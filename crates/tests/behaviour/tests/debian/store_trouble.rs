//! Redis that is killed, hangs or is slow below a loaded fleet: no handshake fails or waits for long, and afterwards
//! sessions of other gateways resume again.
//!
//! The figures are printed: `cargo test --test debian store_trouble -- --nocapture --test-threads 1`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use brisk_behaviour::fleet::Fleet;
use brisk_behaviour::fleet::{early_fleet, keys};
use brisk_behaviour::site::NAME;
use brisk_testkit::client::TlsClient;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::wait_until;
use brisk_testkit::redis::Redis;
use brisk_testkit::relay::Relay;
use rustls::HandshakeKind;

/// Maximum time for which brisk waits for Redis here: the longest that the configuration allows, so that even a loaded machine is
/// rarely later.
const DEADLINE: Duration = Duration::from_secs(1);

/// A handshake may take so much longer on a loaded machine. One that waits for a silent Redis, for as long as connections to
/// it may be silent, would take longer than that.
const NOISE: Duration = Duration::from_millis(1500);

/// So many handshakes at least.
const PHASE: usize = 100;

/// The pause of a client between two handshakes.
const PAUSE: Duration = Duration::from_millis(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Calm,
    Trouble,
    Recovered,
}

/// One handshake.
#[derive(Clone, Copy, Debug)]
struct Sample {
    phase: Phase,
    took: Duration,
    resumed: bool,
}

/// Two gateways with clients that go from one to the other and back, so that every session is another's.
struct Stage {
    fleet: Fleet,
    _nginx: Nginx,
    phase: Mutex<Phase>,
    samples: Mutex<Vec<Sample>>,
}

/// How a client makes its handshakes.
type Visit = fn(&TlsClient, &Stage, usize) -> (Duration, bool);

/// One that has nothing to say early.
fn visit(client: &TlsClient, stage: &Stage, member: usize) -> (Duration, bool) {
    let started = Instant::now();
    let mut connection = client.connect(stage.fleet.members[member].https()).expect("a handshake");
    let took = started.elapsed();
    let resumed = connection.tls().handshake_kind() == Some(HandshakeKind::Resumed);
    assert_eq!(connection.get(NAME, "/name").status(), 200);
    (took, resumed)
}

/// One that sends its request as early data.
fn visit_early(client: &TlsClient, stage: &Stage, member: usize) -> (Duration, bool) {
    let request = format!("GET /name HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    let flight = client.first_flight(request.as_bytes());
    let started = Instant::now();
    let mut unfinished = flight.send(stage.fleet.members[member].https()).expect("a gateway that listens");
    let accepted = unfinished.is_accepted().expect("a handshake");
    let took = started.elapsed();
    let mut connection = unfinished.finish().expect("a handshake");
    if accepted {
        assert_eq!(connection.response().status(), 200);
    }
    assert_eq!(connection.get(NAME, "/name").status(), 200);
    (took, accepted)
}

impl Stage {
    /// Gateways whose Redis is behind this port.
    fn new(redis: u16) -> Self {
        let nginx = Nginx::http();
        let keys = keys(redis, "").replace("\"1s\"", &format!("\"{}ms\"", DEADLINE.as_millis()));
        let fleet = early_fleet(2, &keys, &nginx.url());
        Self { fleet, _nginx: nginx, phase: Mutex::new(Phase::Calm), samples: Mutex::default() }
    }

    /// Puts load on the gateways, then trouble on Redis between `begin` and `end`, and waits until all is well again.
    fn run(&self, name: &str, begin: impl FnOnce(), end: impl FnOnce()) {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            // Otherwise the clients would go on for ever when an assertion fails here.
            let _stop = Stop(&stop);
            for visit in [visit as Visit, visit, visit_early] {
                let stop = &stop;
                scope.spawn(move || self.come_and_go(visit, stop));
            }
            self.wait_for(Phase::Calm);
            self.enter(Phase::Trouble);
            begin();
            self.wait_for(Phase::Trouble);
            wait_until("handshakes without the store", || (self.failures("store-down") > 10).then_some(()));
            end();
            wait_until("sessions of the other gateway that resume", || self.resumes().then_some(()));
            self.enter(Phase::Recovered);
            self.wait_for(Phase::Recovered);
        });
        self.judge(name);
    }

    fn come_and_go(&self, visit: Visit, stop: &AtomicBool) {
        let client = self.fleet.client();
        client.connect(self.fleet.members[0].https()).expect("a handshake").get(NAME, "/name");
        for count in 1.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let phase = *self.phase.lock().expect("nothing panics with it");
            let (took, resumed) = visit(&client, self, count % 2);
            self.samples().push(Sample { phase, took, resumed });
            thread::sleep(PAUSE);
        }
    }

    fn samples(&self) -> MutexGuard<'_, Vec<Sample>> {
        self.samples.lock().expect("nothing panics with it")
    }

    fn enter(&self, phase: Phase) {
        *self.phase.lock().expect("nothing panics with it") = phase;
    }

    /// Waits until enough handshakes were made in this phase.
    fn wait_for(&self, phase: Phase) {
        wait_until("handshakes", || {
            let samples = self.samples();
            (samples.iter().filter(|sample| sample.phase == phase).count() >= PHASE).then_some(())
        });
    }

    /// Sessions that were not resumed for this reason.
    fn failures(&self, reason: &str) -> u64 {
        let label = format!("reason=\"{reason}\"");
        self.fleet.total("brisk_resumption_failures_total", &[&label])
    }

    /// Whether the latest sessions were resumed, each at the other gateway.
    fn resumes(&self) -> bool {
        let samples = self.samples();
        samples.len() > 20 && samples[samples.len() - 20..].iter().all(|sample| sample.resumed)
    }

    fn judge(&self, name: &str) {
        let [calm, trouble, _] =
            [Phase::Calm, Phase::Trouble, Phase::Recovered].map(|phase| self.summary(name, phase));
        assert!(trouble <= calm + DEADLINE + NOISE, "p90 {trouble:?} after {calm:?}");
        assert_eq!(self.fleet.total("brisk_handshakes_failed_total", &[]), 0);
        let [down, late] = ["store-down", "store-late"].map(|reason| self.failures(reason));
        eprintln!("{name}: {down} handshakes without the store, {late} that it was late for");
    }

    /// Prints how the handshakes of a phase went; the 90th percentile of the time they took. Other work on the machine, or a pause
    /// of it, delays fewer handshakes than a tenth.
    fn summary(&self, name: &str, phase: Phase) -> Duration {
        let samples: Vec<_> = self.samples().iter().filter(|sample| sample.phase == phase).copied().collect();
        let mut times: Vec<_> = samples.iter().map(|sample| sample.took).collect();
        times.sort_unstable();
        let resumed = samples.iter().filter(|sample| sample.resumed).count();
        let [median, p90, p99] = [50, 90, 99].map(|percent| times[(times.len() * percent).div_ceil(100) - 1]);
        eprintln!(
            "{name}, {phase:?}: {} handshakes, {resumed} resumed, median {median:.1?}, p99 {p99:.1?}, longest {:.1?}",
            times.len(),
            times[times.len() - 1]
        );
        p90
    }
}

/// Stops the clients, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn redis_killed() {
    let redis = Mutex::new(Redis::start());
    let redis = || redis.lock().expect("nothing panics with it");
    let stage = Stage::new(redis().port());
    stage.run("killed", || redis().kill(), || redis().restart());
}

#[test]
fn redis_hanging() {
    let redis = Redis::start();
    let stage = Stage::new(redis.port());
    stage.run("hanging", || redis.pause(), || redis.resume());
}

#[test]
fn redis_slow() {
    let redis = Redis::start();
    let relay = Relay::to(&[redis.address()]);
    let stage = Stage::new(relay.address().port());
    stage.run("slow", || relay.set_delay(2 * DEADLINE), || relay.set_delay(Duration::ZERO));
}
