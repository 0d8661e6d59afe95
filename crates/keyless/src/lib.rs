//! The protocol by which a gateway has key servers perform key operations, and the gateway's side of it.
//!
//! `docs/keyless-protocol.md` specifies the protocol. [`frame`] and [`shape`] are that without I/O; [`RemoteEngine`] is an engine
//! whose keys are on key servers. The server's side is the crate `brisk-keyserver`.

mod client;
mod code;
pub mod frame;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod io;
mod shape;

pub use brisk_wire::registry::SignatureScheme as Scheme;
pub use client::{Fallback, Passage, Place, RemoteEngine, RemoteMetrics, RemoteSettings};
pub use code::ErrorCode;
pub use frame::{Answer, FrameError, Hello, Request};
pub use shape::{Shape, is_asn1, shape};

/// The name of the protocol in ALPN (RFC 7301). Another major version gets another name.
pub const ALPN: &str = "brisk-keys/1";
