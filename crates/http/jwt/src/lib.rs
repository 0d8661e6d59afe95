//! JSON Web Tokens (RFC 7519): verification by the rules of a route, and the keys of issuers with their rotation.
//!
//! Signatures are verified by `jsonwebtoken` with aws-lc. Only asymmetric algorithms exist here, so that a public key can never
//! be the secret of an HMAC, and `none` is not an algorithm.

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

/// Maximum length of a token in bytes. A longer one is refused.
pub const LONGEST: usize = 8 << 10;
