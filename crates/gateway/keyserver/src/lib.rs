//! The key server: holds private keys and performs key operations for authenticated gateways.
//!
//! `connection.rs` contains the lifecycle of a connection, [`policy`] the permissions of clients. `brisk-keyless`
//! defines the protocol; the composing program provides the engines ([`Environment`]).

mod audit;
mod bucket;
mod connection;
mod error;
mod key_process;
mod metrics;
mod operations;
pub mod policy;
mod server;
mod service;
pub mod settings;

pub use error::KeyServerError;
pub use key_process::KeyProcess;
pub use server::{Environment, KeyServer, KeyServerPart, KeyServerSockets, PreparedKeyServer};
pub use settings::KeyServerSettings;
