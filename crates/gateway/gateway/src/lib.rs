//! The gateway: hosts, TLS and HTTP, and the life of a connection (start reading with `connection.rs`).

mod beacons;
mod certificates;
mod configuration;
mod connection;
mod error;
mod gateway;
mod limits;
mod listener;
mod pages;
mod part;
mod resumption;
pub mod settings;
mod shared;
mod source;
mod tcp;
mod unix_time;
mod variation;
mod worker;

pub use certificates::{HostCertificates, ObtainedHost, Obtainer};
pub use error::GatewayError;
pub use gateway::{Addresses, Gateway, GatewaySockets};
pub use part::{GatewayPart, PreparedGateway};
pub use settings::GatewaySettings;
pub use shared::Environment;
pub use source::Source;
