//! Merges the measurements of all threads of a run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use crate::measure::{Report, Second};
use crate::process::{Family, own_cpu};
use crate::result::{ErrorCount, Interval, Negotiated, RunResult, ServerUsage};
use crate::run::Observer;
use crate::settings::Settings;
use crate::totals::{Totals, add};

/// The measurements so far.
pub(crate) struct Gathering<'a> {
    settings: &'a Settings,
    /// Start of the measured time.
    begin: Instant,
    started: SystemTime,
    totals: Totals,
    /// Seconds that some threads have reported, with the number of these threads.
    seconds: BTreeMap<u64, (usize, Second)>,
    /// Number of seconds reported by each finished thread.
    finished: Vec<u64>,
    series: Vec<Interval>,
    ended: Instant,
    interrupted: bool,
    server: Option<Watched>,
    own_cpu: Duration,
}

/// The server's process and its resource usage at the start of the measured time.
struct Watched {
    family: Family,
    cpu: Duration,
    memory: u64,
    peak: u64,
}

impl<'a> Gathering<'a> {
    pub(crate) fn new(settings: &'a Settings, server: Option<Family>, begin: Instant) -> Self {
        let watched = |family: Family| Watched { family, cpu: Duration::ZERO, memory: 0, peak: 0 };
        Self {
            settings,
            begin,
            started: SystemTime::now(),
            totals: Totals::new(),
            seconds: BTreeMap::new(),
            finished: Vec::new(),
            series: Vec::new(),
            ended: begin,
            interrupted: false,
            server: server.map(watched),
            own_cpu: Duration::ZERO,
        }
    }

    /// Starts the measured time now.
    pub(crate) fn start(&mut self) {
        self.started = SystemTime::now();
        if let Some(server) = &mut self.server {
            server.cpu = server.family.cpu();
            server.memory = server.family.memory();
            server.peak = server.memory;
        }
        self.own_cpu = own_cpu();
    }

    /// Records that the run ends early.
    pub(crate) fn interrupt(&mut self) {
        self.interrupted = true;
    }

    /// Whether all threads have finished.
    pub(crate) fn is_complete(&self) -> bool {
        self.finished.len() == self.settings.threads
    }

    /// Merges a [`Report`] of a thread, and passes on the seconds that all threads have reported.
    pub(crate) fn take(&mut self, report: Report, observer: &mut impl Observer) {
        match report {
            Report::Second(second) => self.take_second(*second),
            Report::Done { totals, seconds, ended } => {
                self.totals.add(*totals);
                self.finished.push(seconds);
                self.ended = self.ended.max(ended);
                if self.is_complete() {
                    self.finish();
                }
            }
            Report::Ready | Report::Failed(_) => {}
        }
        while let Some(interval) = self.next_interval() {
            observer.second(&interval);
            self.series.push(interval);
            if let Some(server) = &mut self.server {
                server.peak = server.peak.max(server.family.memory());
            }
        }
    }

    fn take_second(&mut self, second: Second) {
        match self.seconds.get_mut(&second.index) {
            None => drop(self.seconds.insert(second.index, (1, second))),
            Some((reporters, sum)) => {
                *reporters += 1;
                sum.add(&second);
            }
        }
    }

    /// The next second, if all running threads have reported it.
    fn next_interval(&mut self) -> Option<Interval> {
        let entry = self.seconds.first_entry()?;
        let index = *entry.key();
        // A finished thread sends no report for later seconds.
        let done = self.finished.iter().filter(|seconds| **seconds <= index).count();
        let (reporters, second) = entry.get();
        let is_reported = reporters + done >= self.settings.threads;
        // Its length is known only when all threads have finished.
        if !is_reported || (second.is_cut && self.finished.len() < self.settings.threads) {
            return None;
        }
        let (_, second) = entry.remove();
        let at = Duration::from_secs(index);
        let mut length = Duration::from_secs(1);
        if self.is_complete() {
            length = length.min(self.elapsed().saturating_sub(at));
        }
        // A run that ends at a full second leaves an interval without length and without events.
        let is_empty = second.operations + second.errors + second.requests + second.handshakes == 0;
        (!length.is_zero() || !is_empty).then(|| self.interval(at, length, second))
    }

    fn interval(&self, at: Duration, length: Duration, second: Second) -> Interval {
        let schedule = &self.settings.schedule;
        Interval {
            at,
            length,
            operations: second.operations,
            requests: second.requests,
            handshakes: second.handshakes,
            errors: second.errors,
            offered: schedule.offered(schedule.warmup() + at),
            concurrency: schedule.concurrency(schedule.warmup() + at),
            in_flight: second.in_flight,
            backlog: second.backlog,
            latency: second.latency,
        }
    }

    fn elapsed(&self) -> Duration {
        self.ended - self.begin
    }

    /// Computes resource usage, right after the last operation.
    fn finish(&mut self) {
        // Before the result is evaluated, which is no work of the load.
        self.own_cpu = own_cpu().saturating_sub(self.own_cpu);
        if let Some(server) = &mut self.server {
            server.cpu = server.family.cpu().saturating_sub(server.cpu);
        }
    }

    /// The [`RunResult`], after [`is_complete`](Self::is_complete).
    pub(crate) fn result(self) -> RunResult {
        let elapsed = self.elapsed();
        let totals = self.totals;
        let handshakes: u64 = totals.handshakes.iter().map(|kind| kind.count).sum();
        let server = self.server.map(|server| server.usage(handshakes, totals.responses.total()));
        let mut result = RunResult {
            target: self.settings.url.clone(),
            started: self.started,
            elapsed,
            interrupted: self.interrupted,
            settings: self.settings.listing.clone(),
            plain: self.settings.handshakes.is_none(),
            unit: self.settings.unit(),
            operations: totals.operations,
            negotiated: totals
                .negotiated
                .into_iter()
                .map(|(agreement, count)| Negotiated { description: agreement.to_string(), count })
                .collect(),
            phases: totals.phases,
            handshakes: totals.handshakes,
            primed: totals.primed,
            responses: totals.responses,
            errors: totals
                .errors
                .into_iter()
                .map(|(cause, (count, example))| ErrorCount { cause, count, example })
                .collect(),
            alerts: totals.alerts.into_iter().collect(),
            traffic: totals.traffic,
            unstarted: totals.unstarted,
            connections: totals.connections,
            series: self.series,
            server,
            client_cpu: self.own_cpu,
        };
        result.negotiated.sort_by_key(|negotiated| std::cmp::Reverse(negotiated.count));
        result.handshakes.sort_by_key(|kind| (kind.asked.name(), std::cmp::Reverse(kind.count)));
        result.errors.sort_by_key(|error| std::cmp::Reverse(error.count));
        result.alerts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        result
    }
}

impl Watched {
    fn usage(&self, handshakes: u64, requests: u64) -> ServerUsage {
        let per = |count: u64| (count > 0).then(|| self.cpu.div_f64(count as f64));
        ServerUsage {
            cpu: self.cpu,
            cpu_per_handshake: per(handshakes),
            cpu_per_request: per(requests),
            memory_before: self.memory,
            memory_peak: self.peak,
        }
    }
}

impl Second {
    fn add(&mut self, other: &Self) {
        // A second is cut only if it is the last one of each thread that reports it.
        self.is_cut &= other.is_cut;
        self.operations += other.operations;
        self.requests += other.requests;
        self.handshakes += other.handshakes;
        self.errors += other.errors;
        self.in_flight += other.in_flight;
        self.backlog += other.backlog;
        add(&mut self.latency, &other.latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::result::histogram;

    fn second(index: u64, operations: u64, is_cut: bool) -> Report {
        let second = Second {
            index,
            is_cut,
            operations,
            requests: 0,
            handshakes: 0,
            errors: 0,
            in_flight: 1,
            backlog: 0,
            latency: histogram(),
        };
        Report::Second(Box::new(second))
    }

    #[test]
    fn a_second_is_passed_on_when_all_threads_have_reported_it() {
        let mut options = Options::new("https://localhost");
        options.threads = std::num::NonZeroU32::new(2);
        let settings = options.settings().expect("settings");
        let begin = Instant::now();
        let mut gathering = Gathering::new(&settings, None, begin);
        let mut seen = Vec::new();
        let mut take =
            |report| gathering.take(report, &mut |interval: &Interval| seen.push(interval.operations));
        take(second(0, 1, false));
        take(second(1, 2, false));
        take(second(0, 10, true));
        let done = |seconds| Report::Done {
            totals: Box::new(Totals::new()),
            seconds,
            ended: begin + Duration::from_millis(2500),
        };
        take(done(1));
        take(second(2, 3, true));
        take(done(3));
        assert_eq!(seen, [11, 2, 3]);
        let result = gathering.result();
        assert_eq!(result.elapsed, Duration::from_millis(2500));
        assert_eq!(result.series.last().map(|last| last.length), Some(Duration::from_millis(500)));
    }
}
