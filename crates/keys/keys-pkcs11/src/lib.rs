//! Private keys in hardware security modules and other tokens, through PKCS #11.
//!
//! A URI of RFC 7512 ([`KeyUri`]) names a key. [`Tokens::attach`] finds the key and verifies that it belongs to a
//! certificate. The returned [`TokenEngine`] performs operations on threads of its own, because modules block. The
//! private key never leaves the token.
//!
//! A module is foreign code in this process: it may crash the process, and a call that never returns occupies a thread
//! until the process ends. [`TokenEngine`] documents the guarantees that hold nevertheless.

mod attach;
mod connection;
mod dispatcher;
mod engine;
mod error;
mod key;
mod mechanism;
mod module;
mod pin;
mod registry;
mod select;
mod signature;
mod status;
mod task;
#[cfg(test)]
mod tests;
mod uri;
mod worker;

pub use attach::CertificateKey;
pub use engine::TokenEngine;
pub use error::{TokenError, UriError};
pub use registry::{TokenSettings, Tokens};
pub use status::TokenStatus;
pub use uri::{KeyUri, PinSource};

use brisk_keys::Performer;

/// Name of the engine: the label `engine` of metrics.
pub const PERFORMER: Performer = Performer::new("pkcs11");
