#![doc = include_str!("cuda/kernels/README.md")]

mod card;
mod desk;
mod driver;
mod engine;
mod error;
#[cfg(test)]
mod host;
#[cfg(test)]
mod kernel_tests;
mod key;
mod rehearsal;
mod source;
mod station;
mod statistics;
#[cfg(test)]
mod tests;
mod tiered;

pub use engine::{CudaEngine, CudaSettings};
pub use error::CudaError;
pub use statistics::{CudaLayout, CudaStatistics, CudaTimes};
pub use tiered::Tiered;
