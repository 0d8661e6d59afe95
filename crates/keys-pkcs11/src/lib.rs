//! Private keys in tokens: hardware security modules, USB tokens and software that behaves like them, through PKCS #11.
//!
//! A key is named by a URI of RFC 7512 ([`KeyUri`]). [`TokenKeys::attach`] finds it and makes sure that it is the key of a
//! certificate; the engine that it returns performs operations with it, on threads of its own, since modules block. The
//! private key never leaves the token.
//!
//! A module is foreign code in this process. It may crash it, and a call that never returns holds a thread for good; what the
//! engine promises nevertheless is in [`TokenEngine`].

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

pub use attach::Certified;
pub use engine::TokenEngine;
pub use error::{TokenError, UriError};
pub use registry::{TokenKeys, TokenSettings, close, statuses};
pub use status::TokenStatus;
pub use uri::{KeyUri, PinSource};

use brisk_keys::Performer;

/// The name of what computes: the label `engine` of metrics.
pub const PERFORMER: Performer = Performer::new("pkcs11");
