//! Simulation of the health of a group: servers that break and recover, checks that are wrong, and a clock of its own.

use std::sync::Arc;
use std::time::Duration;

use brisk_telemetry::Metrics;
use brisk_testkit::random::Random;
use brisk_testkit::simulation::each_seed;
use tokio::runtime::Builder;
use tokio::time::{Instant, advance};

use super::{DOUBLINGS, PassiveChecks, Verdict};
use crate::group::GroupState;
use crate::server::ServerState;
use crate::settings::GroupSettings;

const STEPS: usize = 300;

struct Simulation {
    group: Arc<GroupState>,
    checks: PassiveChecks,
    servers: Vec<Simulated>,
}

struct Simulated {
    state: Arc<ServerState>,
    is_broken: bool,
    /// Verdict of the last active check.
    verdict: Verdict,
    last_failure: Option<Instant>,
}

impl Simulation {
    fn new(random: &mut Random) -> Self {
        let count = 1 + random.below(4);
        let urls = (0..count).map(|number| format!("http://192.0.2.{number}:80").parse().expect("a URL"));
        let mut settings = GroupSettings::new("app", urls);
        let checks = PassiveChecks {
            max_failures: 1 + random.below(3) as u32,
            max_excluded: *random.of(&[1, 34, 50, 100]),
            pause: Duration::from_secs(1 + random.below(10) as u64),
            ..PassiveChecks::default()
        };
        settings.health.passive = checks.clone();
        let group = GroupState::new(settings, &Metrics::new()).expect("a group");
        let simulated = |state: &Arc<ServerState>| Simulated {
            state: Arc::clone(state),
            is_broken: false,
            verdict: Verdict::Up,
            last_failure: None,
        };
        let servers = group.servers().iter().map(simulated).collect();
        Self { group, checks, servers }
    }

    /// The longest pause of a server, and a second more: the origin of times is that of the first test of the process.
    fn longest(&self) -> Duration {
        self.checks.pause * (1 << DOUBLINGS) + Duration::from_secs(1)
    }

    async fn step(&mut self, random: &mut Random) {
        let index = random.below(self.servers.len());
        match random.below(8) {
            0..=3 => self.request(index),
            4 => self.servers[index].is_broken ^= random.chance(60),
            5 => {
                // A check may be wrong.
                let is_up = self.servers[index].is_broken == random.chance(10);
                self.check(index, if is_up { Verdict::Up } else { Verdict::Down });
            }
            _ => advance(Duration::from_millis(random.below(3_000) as u64)).await,
        }
        self.assert_invariants();
    }

    fn request(&mut self, index: usize) {
        let server = &mut self.servers[index];
        if server.is_broken {
            server.last_failure = Some(Instant::now());
            self.group.record_failure(&server.state, &"no connection");
        } else {
            self.group.record_success(&server.state);
        }
    }

    fn check(&mut self, index: usize, verdict: Verdict) {
        self.servers[index].verdict = verdict;
        self.group.set_checked(&self.servers[index].state, verdict);
    }

    fn assert_invariants(&self) {
        let paused = self.servers.iter().filter(|server| server.state.health().is_paused()).count();
        let most = self.servers.len() * self.checks.max_excluded as usize / 100;
        assert!(paused <= most.max(1), "{paused} of {} servers are in a pause", self.servers.len());
        for server in &self.servers {
            let is_healthy = server.state.is_healthy();
            assert!(
                !is_healthy || server.verdict == Verdict::Up,
                "a server gets requests although it is down"
            );
            // Without a recent failure, only a check excludes a server.
            let failed = server.last_failure.is_some_and(|failed| failed.elapsed() <= self.longest());
            assert!(
                is_healthy || failed || server.verdict == Verdict::Down,
                "a server is excluded without a reason"
            );
        }
    }

    /// Servers that work get requests after the longest pause at the latest.
    async fn settle(&mut self) {
        for index in 0..self.servers.len() {
            self.servers[index].is_broken = false;
            self.check(index, Verdict::Up);
        }
        advance(self.longest()).await;
        assert!(
            self.servers.iter().all(|server| server.state.is_healthy()),
            "a server that works is excluded"
        );
        for index in 0..self.servers.len() {
            self.request(index);
        }
        self.assert_invariants();
    }
}

#[test]
fn servers_are_excluded_for_a_reason_and_return() {
    each_seed("health", 100, |random| {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let mut simulation = Simulation::new(random);
            for _ in 0..STEPS {
                simulation.step(random).await;
            }
            simulation.settle().await;
        });
    });
}
