//! Checkpoints: the invariants that hold after each fault, while no request is under way.

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brisk_testkit::process::wait_until;

use crate::fault::Fault;
use crate::gateway::Gateway;
use crate::processes::{descriptors, resident};
use crate::report::Report;
use crate::shared::{Outcome, Record, Shared};
use crate::world::World;

/// Descriptors by which a supervisor, or a gateway with another number of upstream connections, may exceed the first checkpoint.
const SPARE: [usize; 2] = [2, 60];

/// Memory in kB by which a supervisor, or a gateway, may exceed twice that of the first checkpoint.
const SPARE_MEMORY: [u64; 2] = [8 << 10, 48 << 10];

/// Growth of memory in kB per minute, and the shortest run for which it matters.
const SLOPE: f64 = 50.0;
const LEAST_RUN: Duration = Duration::from_mins(30);

/// Time for the counts of a gateway to arrive: they count a request when all of its response is sent.
const SETTLED: Duration = Duration::from_secs(10);

/// The times of a fault, within which it permits failures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) fault: Fault,
    pub(crate) begun: Instant,
    pub(crate) recovered: Instant,
}

/// The state of a gateway at the last checkpoint.
#[derive(Clone, Debug)]
struct Baseline {
    generation: u32,
    requests: f64,
    sent: u64,
    answered: u64,
}

/// Figures of the first checkpoint: of the supervisor and of the gateway.
#[derive(Clone, Copy, Debug)]
struct First {
    descriptors: [usize; 2],
    resident: [u64; 2],
}

pub(crate) struct Checkpoint {
    begun: Instant,
    baselines: Vec<Baseline>,
    firsts: Vec<First>,
    /// Minutes since the start, and memory of each gateway in kB.
    memory: Vec<Vec<(f64, f64)>>,
}

impl Checkpoint {
    /// The first checkpoint, after some requests. The load must pause.
    pub(crate) fn first(world: &World, shared: &Shared) -> Self {
        let gateways = &world.gateways;
        gateways.iter().for_each(settle);
        let baselines = gateways.iter().enumerate().map(|(index, gateway)| baseline(index, gateway, shared));
        let firsts = gateways.iter().map(|gateway| {
            let processes = [gateway.supervisor(), gateway.serving()];
            First { descriptors: processes.map(descriptors), resident: processes.map(resident) }
        });
        let memory = vec![Vec::new(); gateways.len()];
        Self { begun: Instant::now(), baselines: baselines.collect(), firsts: firsts.collect(), memory }
    }

    /// Checks all invariants. The load must pause.
    pub(crate) fn check(&mut self, world: &World, shared: &Shared, span: Option<Span>, report: &mut Report) {
        let found = judge(shared.take_records(), self.begun, span, report);
        report.violate(found);
        for (index, gateway) in world.gateways.iter().enumerate() {
            settle(gateway);
            let counts = self.counts(index, gateway, shared);
            let figures = self.figures(index, gateway);
            report.violate(counts.into_iter().chain(figures).collect());
        }
        report.violate(repeated_uploads(world));
        report.requests = shared.rights();
    }

    /// Compares the counts of clients and metrics since the last checkpoint, unless another generation serves.
    fn counts(&mut self, index: usize, gateway: &Gateway, shared: &Shared) -> Option<String> {
        let before = self.baselines[index].clone();
        let begun = Instant::now();
        let (now, text) = loop {
            let now = baseline(index, gateway, shared);
            let counted = now.requests - before.requests;
            let (least, most) = ((now.answered - before.answered) as f64, (now.sent - before.sent) as f64);
            let is_equal = counted > least - 0.5 && counted < most + 0.5;
            if is_equal || now.generation != before.generation || begun.elapsed() > SETTLED {
                let text = format!(
                    "gateway {index} has counted {counted} requests, clients got {least} responses to {most}"
                );
                break (now, (!is_equal).then_some(text));
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let is_same = now.generation == before.generation;
        self.baselines[index] = now;
        text.filter(|_| is_same)
    }

    /// Compares descriptors and memory with those of the first checkpoint.
    fn figures(&mut self, index: usize, gateway: &Gateway) -> Vec<String> {
        let (first, mut found) = (self.firsts[index], Vec::new());
        let processes = [("supervisor", gateway.supervisor()), ("gateway", gateway.serving())];
        for (place, (name, process)) in processes.into_iter().enumerate() {
            let (open, held) = (descriptors(process), resident(process));
            if open > first.descriptors[place] + SPARE[place] {
                found.push(format!(
                    "{name} {index} has {open} descriptors, {} before",
                    first.descriptors[place]
                ));
            }
            if held > 2 * first.resident[place] + SPARE_MEMORY[place] {
                found.push(format!(
                    "{name} {index} has {held} kB of memory, {} before",
                    first.resident[place]
                ));
            }
            if place == 1 {
                self.memory[index].push((self.begun.elapsed().as_secs_f64() / 60.0, held as f64));
            }
        }
        found
    }

    /// Checks the growth of memory over a long run.
    pub(crate) fn finish(&self, report: &mut Report) {
        if self.begun.elapsed() < LEAST_RUN {
            return;
        }
        for (index, samples) in self.memory.iter().enumerate() {
            // Caches and pools fill in the first third.
            let slope = slope(&samples[samples.len() / 3..]);
            if slope > SLOPE {
                report.violate(vec![format!(
                    "the memory of gateway {index} grows by {slope:.0} kB per minute"
                )]);
            }
        }
    }
}

/// Waits until a gateway has noticed that all clients have left.
fn settle(gateway: &Gateway) {
    wait_until("a gateway without clients", || {
        let open = gateway.metrics()?.sum("brisk_connections_open", &["listener=\"https\""]);
        (open < 0.5).then_some(())
    });
}

fn baseline(index: usize, gateway: &Gateway, shared: &Shared) -> Baseline {
    let counts = &shared.counts[index];
    let requests = wait_until("metrics", || gateway.metrics()).sum("brisk_requests_total", &[]);
    Baseline {
        generation: gateway.serving(),
        requests,
        sent: counts.sent.load(Ordering::SeqCst),
        answered: counts.answered.load(Ordering::SeqCst),
    }
}

/// Violations among the requests that did not succeed.
fn judge(records: Vec<Record>, origin: Instant, span: Option<Span>, report: &mut Report) -> Vec<String> {
    let mut found = Vec::new();
    for Record { begun, ended, gateway, request, outcome } in records {
        let reason = match outcome {
            Outcome::Right | Outcome::Unsent => continue,
            Outcome::Wrong(reason) => reason,
            Outcome::Failed(failure) => {
                let permits = |span: &Span| {
                    span.fault.permits().contains(&failure) && ended >= span.begun && begun <= span.recovered
                };
                match span.filter(permits) {
                    Some(span) => {
                        report.permitted(span.fault, failure);
                        continue;
                    }
                    None => format!("{failure:?} is not permitted"),
                }
            }
        };
        let at = begun.saturating_duration_since(origin).as_secs_f64();
        found.push(format!("{at:.2} s, gateway {gateway}, {request}: {reason}"));
    }
    found
}

/// Uploads that upstream servers have received twice.
fn repeated_uploads(world: &World) -> Vec<String> {
    let ids = fs::read_to_string(&world.uploads).unwrap_or_default();
    let mut seen = HashSet::new();
    ids.lines().filter(|id| !seen.insert(*id)).map(|id| format!("upload {id} was repeated")).collect()
}

/// Slope of a line through `samples` with the least squares.
fn slope(samples: &[(f64, f64)]) -> f64 {
    let count = samples.len().max(1) as f64;
    let sum = |value: fn(&(f64, f64)) -> f64| samples.iter().map(value).sum::<f64>() / count;
    let (x, y) = (sum(|sample| sample.0), sum(|sample| sample.1));
    let (xx, xy) = (sum(|sample| sample.0 * sample.0), sum(|sample| sample.0 * sample.1));
    let spread = xx - x * x;
    if spread > 0.0 { (xy - x * y) / spread } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Failure;

    #[test]
    fn failures_are_permitted_by_kind_and_time() {
        let origin = Instant::now();
        let at = |seconds| origin + Duration::from_secs(seconds);
        let span = Span { fault: Fault::Upgrades, begun: at(10), recovered: at(20) };
        let judged = |begun, ended, outcome| {
            let record =
                Record { begun: at(begun), ended: at(ended), gateway: 0, request: String::new(), outcome };
            judge(vec![record], origin, Some(span), &mut Report::default()).len()
        };
        let stale = Outcome::Failed(Failure::Stale);
        assert_eq!(judged(12, 13, stale.clone()), 0);
        assert_eq!(judged(5, 11, stale.clone()), 0);
        assert_eq!(judged(5, 9, stale.clone()), 1);
        assert_eq!(judged(21, 22, stale), 1);
        assert_eq!(judged(12, 13, Outcome::Failed(Failure::Cut)), 1);
        assert_eq!(judged(12, 13, Outcome::Wrong("a wrong byte".to_owned())), 1);
    }

    #[test]
    fn a_slope_is_that_of_a_line() {
        let samples: Vec<_> = (0..10).map(|x| (f64::from(x), 3.0 * f64::from(x) + 7.0)).collect();
        assert!((slope(&samples) - 3.0).abs() < 1e-9);
        assert!(slope(&[]).abs() < 1e-9 && slope(&samples[..1]).abs() < 1e-9);
    }
}
