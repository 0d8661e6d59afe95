//! A run: load, faults and checkpoints, until the time is over or an invariant is broken.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use brisk_defects::Defect;
use brisk_testkit::process::wait_until;

use crate::checkpoint::{Checkpoint, Span};
use crate::fault::Fault;
use crate::load;
use crate::plan::{Plan, Step};
use crate::report::Report;
use crate::shared::Shared;
use crate::strike::strike;
use crate::world::World;

/// Right responses before the first fault, and between a recovery and the checkpoint.
const WARM: u64 = 100;
const AFTER: u64 = 20;

/// Interval between two looks at the recovery.
const LOOK: Duration = Duration::from_millis(50);

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of plan and requests.
    pub seed: u64,
    /// Time after which no further fault begins.
    pub time: Duration,
    /// Faults of the plan, at least one.
    pub faults: Vec<Fault>,
    /// The program of the upstream servers.
    pub upstream: PathBuf,
    /// Factor for the times of recovery, which are those of an idle machine.
    pub slack: u32,
    /// A deliberate defect of the gateways, which must have been built with `brisk-cli/defects`.
    pub defect: Option<Defect>,
}

/// Runs a plan. Prints its steps. Returns at the first checkpoint with violations.
pub fn run(options: &Options) -> Report {
    let mut plan = Plan::new(options.seed, &options.faults);
    println!("{plan}");
    let mut world = World::start(&options.upstream, options.defect);
    wait_until("gateways that are ready", || world.is_recovered().ok());
    let shared = Shared::start();
    // Ends the visitors after a failed assertion too.
    let ended = Ended(&shared);
    let root = world.ca.root_file();
    let load = load::start(&shared, world.addresses(), &root, options.seed);
    let mut report = Report::default();
    shared.await_rights(WARM);
    shared.pause();
    let mut checkpoint = Checkpoint::first(&world, &shared);
    checkpoint.check(&world, &shared, None, &mut report);
    let begun = Instant::now();
    while begun.elapsed() < options.time && report.violations.is_empty() {
        let step = plan.step();
        println!("{:7.1} s  {step}", begun.elapsed().as_secs_f64());
        shared.resume();
        let span = perform(&mut world, &shared, step, options.slack, &mut report);
        shared.pause();
        checkpoint.check(&world, &shared, Some(span), &mut report);
    }
    checkpoint.finish(&mut report);
    drop(ended);
    load.join().expect("visitors do not panic");
    print!("{report}");
    report
}

/// Does the fault of a step, and waits for the recovery.
fn perform(world: &mut World, shared: &Shared, step: Step, slack: u32, report: &mut Report) -> Span {
    let begun = Instant::now();
    report.steps += 1;
    strike(world, shared, step, 7 * report.steps);
    let lifted = Instant::now();
    let limit = step.fault.recovery() * slack;
    while let Err(reason) = world.is_recovered() {
        if lifted.elapsed() > limit + shared.stalled_since(lifted) {
            report.violate(vec![format!("{step}: no recovery within {limit:?}: {reason}")]);
            break;
        }
        sleep(LOOK);
    }
    let recovered = Instant::now();
    report.recovered(step.fault, recovered - lifted);
    shared.await_rights(AFTER);
    Span { fault: step.fault, begun, recovered }
}

struct Ended<'s>(&'s Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.resume();
        self.0.end();
    }
}
