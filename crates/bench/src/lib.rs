//! The load generator: connections whose handshakes are as asked for, at the times asked for, and what came of them.
//!
//! What a connection does (`workload`) and when it does it (`schedule`) know nothing of one another; a worker brings
//! both together, [`result`] is what a run comes to.

pub mod result;

pub use result::RunResult;
