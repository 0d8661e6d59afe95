//! The HTTP client for the gateway's own errands: certificate authorities, revocation lists, questions about names.
//!
//! Requests of visitors do not come here; `brisk-proxy` forwards those. An errand is rare, may take its time, and must never
//! take more memory than it was given: answers are read whole, under limits of size, time and redirects.

mod client;
mod error;
mod target;

pub use client::{Answer, Client, ClientSettings, Limits};
pub use error::{FetchError, Reason};
