//! HTTP client for requests of the gateway itself: certificate authorities, revocation lists, and decisions about
//! on-demand names.
//!
//! Requests of clients are forwarded by `brisk-upstream` instead. The requests here are rare and not urgent, but their
//! memory must be bounded: a [`FetchResponse`] is read completely, within the [`Limits`] for size, time and redirects.

mod client;
mod destination;
mod error;
mod target;

pub use client::{Client, ClientSettings, FetchResponse, Limits};
pub use destination::{Destinations, PrivateHost, Refused, is_public};
pub use error::{FetchError, Reason};
