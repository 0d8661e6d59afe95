//! Experiments on visitors (`[experiment.NAME]`): settings whose value differs between connections.
//!
//! Each layer has one hook. The gateway draws a connection when its host is known and applies the settings of its
//! socket ([`Assignment`]). Settings of requests are prepared for each host ([`HostExperiments`]) and looked up by the
//! arms of the connection ([`ByArm`]). [`brisk_visits`] compares the arms. Without an experiment, no lookup takes
//! place.

mod draws;
mod experiments;
mod host;

pub use draws::{Assignment, Draws};
pub use experiments::{ExperimentSettings, Experiments, Values};
pub use host::{ByArm, HostExperiments};
