//! What TLS and HTTP/2 look like on the wire: code points with their registered names, the facts that a `ClientHello`
//! states, hellos written for probes and what servers answer to them, frames and header blocks.
//!
//! Nothing here does I/O, holds a key or knows of a connection; every parser takes bytes of strangers and never panics.

pub mod client_hello;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod h2;
mod http_version;
pub mod offer;
pub mod registry;
pub mod server_flight;
pub mod suites;

pub use http_version::HttpVersion;
