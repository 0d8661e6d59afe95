//! JSON Web Tokens (RFC 7519): verification by the rules of a route, and the keys of issuers with their rotation.
//!
//! Signatures are verified by `jsonwebtoken` with aws-lc. [`Algorithms`] contains asymmetric ones only, so that a public key
//! can never be the secret of an HMAC, and `none` is not an algorithm (RFC 8725 sections 3.1 and 3.2).

mod claims;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod key_set;
mod rules;
mod source;
mod verified;

pub use claims::ClaimHeader;
pub use key_set::{KeySet, KeySetError};
pub use rules::{Algorithms, TokenFault, TokenRules};
pub use source::{KeySource, KeySources};
pub use verified::{Token, TokenCheck};

/// Maximum length of a token in bytes. A longer one is [`TokenFault::Malformed`].
pub const LONGEST: usize = 8 << 10;
