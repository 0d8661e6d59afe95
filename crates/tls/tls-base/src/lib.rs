//! Parts shared by TLS servers and TLS clients: cipher suites, record sizes, trusted authorities.
//!
//! Connections are elsewhere: `brisk-tls` terminates and originates TLS for the gateway, `brisk-tls-client` is the
//! client for measurements.

pub mod record;
mod roots;
mod service;
mod sha256;
mod suites;

pub use roots::{RootsError, file_roots, system_roots};
pub use service::service_config;
pub use suites::suites;
