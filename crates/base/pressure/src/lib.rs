//! Overload of the process: one [`Level`] from several [`Source`]s, and the work that is refused meanwhile.
//!
//! A [`Sampler`] turns the [`Sample`] of every 100 ms into the figures of [`Pressure`]. Gates read [`Pressure`] before they do
//! work, with one load: idle times, keep-alive, full handshakes, requests by priority, connections. The crate decides how much
//! [`Work`] is refused, and the gates decide how.

mod ladder;
mod level;
mod memory;
mod metrics;
mod pressure;
mod sampler;
mod shedding;

pub use level::{Level, Mode, Source, Work};
pub use memory::memory_limit;
pub use pressure::Pressure;
pub use sampler::{INTERVAL, Sample, Sampler};
