//! The gateway: listeners, workers, and the journey of a connection (`connection.rs`, the file to open first).

mod accept;
mod admin;
mod client;
mod connection;
mod descriptors;
mod error;
mod gateway;
mod listen;
mod page;
mod redirect;
mod resumption;
pub mod settings;
mod shared;
mod termination;
mod tickets;
mod upstreams;
mod watchdog;
mod worker;

pub use error::GatewayError;
pub use gateway::{Environment, Gateway, Program};
pub use listen::Addresses;
pub use settings::GatewaySettings;
