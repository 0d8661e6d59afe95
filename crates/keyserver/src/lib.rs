//! The key server: holds private keys and performs key operations for authenticated gateways.
//!
//! `connection.rs` contains the lifecycle of a connection, [`policy`] the permissions of clients. `brisk-keyless`
//! defines the protocol; the composing program provides the engines ([`Environment`]).

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
pub use server::{Environment, KeyServer, KeyServerPart, PreparedKeyServer};
pub use settings::KeyServerSettings;
