//! Limits of requests by key, rate and number at the same time, shared by all workers, with bounded memory; and limits of
//! bodies, time and pace.
//!
//! The keys are bytes of the caller, such as the address of a client or the value of a cookie. Memory contains keyed
//! hashes of them only.

mod body;
mod concurrency;
mod counters;
mod fleet;
mod limit;
mod rate;
mod registry;

pub use body::{Bandwidth, PacedBody, TimedBody};
pub use concurrency::ConcurrencyPermit;
pub use fleet::{OnFailure, Question};
pub use limit::{Admission, Excess, Limit, LimitSettings};
pub use rate::KEYS;
pub use registry::Limits;
