//! Wire formats of TLS, HTTP/2 and HTTP/3: code points with registered names, facts and fingerprints of a `ClientHello`, hellos of probes and
//! responses of servers, frames and compressed fields of HTTP/2 and HTTP/3, priorities of responses, directives for
//! caches, schemes of URIs.
//!
//! The crate does no I/O, holds no keys and has no connections. Every parser accepts untrusted bytes and never panics.

pub mod cache_control;
pub mod client_hello;
pub mod fields;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod h2;
pub mod h3;
mod http_version;
pub mod ja4;
pub mod offer;
pub mod priority;
pub mod registry;
pub mod server_flight;
pub mod suites;
pub mod uri;
pub mod vectors;

pub use http_version::HttpVersion;
