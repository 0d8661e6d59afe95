//! Arithmetic of key operations, several at a time in the lanes of vector registers: RSA, X25519, ECDSA with P-256
//! and ML-KEM-768.
//!
//! Each kind has kernels for the instructions of some processors, and a measurement of their gain over AWS-LC on the
//! current one. The crate has no queues or deadlines: engines in `brisk_keys` decide which operations share a batch.

pub mod ec_lanes;
pub mod mlkem_lanes;
mod processor;
pub mod rsa;
pub mod rsa_lanes;
pub mod sha256;
#[cfg(any(test, feature = "testing"))]
pub mod timing;

pub use ec_lanes::{Exchange, KeyPair, LanesUse};
pub use mlkem_lanes::Encapsulation;
