//! Benchmark plans: servers started from a plan file, measured alternately, and compared with confidence intervals.
//!
//! This crate decides the order of measurements and evaluates the samples. It does not measure: a tool implements
//! [`Runner`] and returns a [`Run`] for each cell.

mod comparison;
mod cores;
mod interrupt;
mod measure;
mod plan;
mod processes;
pub mod report;
mod statistics;
mod time;

pub use comparison::{Cell, Comparison, Ended, Progress, Run, Runner, baseline, compare, ratio};
pub use cores::run_on;
pub use interrupt::Interrupt;
pub use measure::{Measure, Sample};
pub use plan::{Baseline, Limits, Mode, Plan, PlanError, ProcessSource, Service, Target, Variables};
pub use processes::{Server, ServerError, Testbed};
pub use report::Report;
pub use statistics::{CONFIDENCE, Estimate, estimate};
pub use time::duration;
