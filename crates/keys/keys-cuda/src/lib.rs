#![doc = include_str!("kernels/README.md")]

mod collector;
mod driver;
mod engine;
mod error;
mod gpu_stream;
#[cfg(test)]
mod host;
#[cfg(test)]
mod kernel_tests;
mod key;
mod keyed_stream;
pub mod measure;
mod rehearsal;
mod source;
mod statistics;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tiered;

use brisk_keys::Performer;

pub use engine::{CudaEngine, CudaSettings};
pub use error::CudaError;
pub use statistics::{CudaLayout, CudaStatistics, CudaTimes};
pub use tiered::Tiered;

/// Name of the engine in metrics and results.
pub const PERFORMER: Performer = Performer::new("cuda");
