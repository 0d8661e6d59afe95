//! The load generator: connections whose handshakes are as asked for, at the times asked for, and what came of them.
//!
//! What a connection does (`workload`) and when it does it (`schedule`) know nothing of one another; a worker brings
//! both together, [`result`] is what a run comes to.

pub mod choice;
mod connection;
mod contact;
mod dial;
mod error;
mod feed;
mod gathering;
mod http1;
mod http2;
mod measure;
pub mod mix;
pub mod options;
mod process;
pub mod report;
pub mod result;
mod run;
mod sample;
pub mod schedule;
mod sessions;
pub mod settings;
mod timer;
mod totals;
mod transport;
mod worker;
pub mod workload;

pub use error::{BenchError, Failure};
pub use options::Options;
pub use result::RunResult;
pub use run::{Observer, run};
pub use settings::Settings;
