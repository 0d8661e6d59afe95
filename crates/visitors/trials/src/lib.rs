//! Experiments on visitors (`[experiment.NAME]`): settings whose value differs between connections.
//!
//! [`resolve()`] checks the tables of the configuration. The gateway draws a connection when its host is known and applies
//! the settings of its socket ([`Assignment`]). Settings of requests are given to the hosts as [variants](brisk_variants),
//! which the layers of HTTP look up by connection. [`brisk_visits`] compares the arms. Without an experiment, no lookup takes
//! place.

mod draws;
mod experiments;
mod keys;
mod resolve;

pub use draws::{Assignment, Draws};
pub use experiments::{ExperimentSettings, Experiments, Values};
pub use keys::{ExperimentKeys, ExperimentValue};
pub use resolve::{HostFacts, Surroundings, resolve};
