//! The load generator: makes connections with chosen kinds of handshake at chosen times, and measures them.
//!
//! The requests on a connection (`workload`) are independent of their times (`schedule`). A `worker` combines both;
//! [`result`] contains the measurements.

pub mod choice;
mod connection;
mod contact;
mod dial;
mod error;
mod feed;
mod gathering;
mod http1;
mod http2;
mod http3;
mod measure;
pub mod mix;
pub mod options;
mod process;
mod quic;
pub mod records;
pub mod report;
pub mod result;
mod run;
mod sample;
pub mod schedule;
mod sessions;
pub mod settings;
mod shared;
mod totals;
mod transport;
mod worker;
pub mod workload;

pub use error::{BenchError, Failure};
pub use options::Options;
pub use result::RunResult;
pub use run::{Observer, run};
pub use settings::Settings;
