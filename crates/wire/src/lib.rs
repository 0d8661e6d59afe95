//! What TLS looks like on the wire: code points with their registered names, and the facts a `ClientHello` states.
//!
//! Nothing here does I/O, holds a key or knows of a connection; every parser takes bytes of strangers and never panics.

pub mod client_hello;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod http_version;
pub mod registry;

pub use http_version::HttpVersion;
