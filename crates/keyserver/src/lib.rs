//! The key server: holds private keys, and performs operations with them for gateways that it knows.
//!
//! `connection.rs` has the life of a connection, `policy.rs` decides what a client may do. The protocol is that of
//! `brisk-keyless`, the engines are those of the program that composes it.

mod audit;
mod beside;
mod bucket;
mod connection;
mod error;
mod metrics;
mod operations;
pub mod policy;
mod server;
mod service;
pub mod settings;

pub use beside::KeyProcess;
pub use error::KeyServerError;
pub use server::{Environment, KeyServer};
pub use settings::KeyServerSettings;
