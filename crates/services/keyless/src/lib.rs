//! Keyless protocol: a gateway has key servers perform its key operations. This crate contains the protocol and the
//! gateway's side.
//!
//! `docs/keyless-protocol.md` is the specification. [`frame`] and [`shape()`] implement it without I/O;
//! [`RemoteEngine`] is a [`PrivateKeyEngine`](brisk_keys::PrivateKeyEngine) for keys on key servers. The crate
//! `brisk-keyserver` is the server's side.

mod client;
mod code;
pub mod frame;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod io;
mod shape;

pub use brisk_wire::registry::SignatureScheme as Scheme;
pub use client::{
    Fallback, KeyProcessConnector, KeyServerAddress, RemoteEngine, RemoteEngines, RemoteMetrics,
    RemoteSettings,
};
pub use code::ErrorCode;
pub use frame::{FrameError, Hello, Request, Response};
pub use shape::{Shape, is_asn1, shape};

/// Protocol name in ALPN (RFC 7301). A new major version gets a new name.
pub const ALPN: &str = "brisk-keys/1";
