//! What TLS servers and TLS clients have in common: cipher suites, the sizes of records, trusted authorities.
//!
//! There are no connections here. `brisk-tls` terminates and originates TLS for the gateway, `brisk-tls-client` is the
//! client for measurements.

pub mod record;
mod roots;
mod suites;

pub use roots::{RootsError, file_roots, system_roots};
pub use suites::suites;
