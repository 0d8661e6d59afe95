//! Limits of requests by key, which all workers share: `rate` and `concurrency` of a [`Limit`], with bounded memory. Response
//! bodies are limited in time by [`TimedBody`] and in pace by [`PacedBody`].
//!
//! The keys are bytes of the caller, such as the address of a client or the value of a cookie. A [`Limit`] stores keyed hashes
//! of keys only.

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
