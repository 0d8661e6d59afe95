//! The gateway: hosts, TLS and HTTP, and the life of a connection (start reading with `connection.rs`).

mod accept;
mod certificates;
mod client;
mod connection;
mod connections;
mod dashboard;
mod errands;
mod error;
mod fixed;
mod gateway;
mod key_checks;
mod limits;
mod live;
mod measured;
mod metrics;
mod obtained;
mod page;
mod part;
mod redirect;
mod resumption;
mod session_metrics;
pub mod settings;
mod shared;
mod source;
mod termination;
mod tickets;
mod upstreams;
mod worker;

pub use certificates::HostCertificates;
pub use error::GatewayError;
pub use gateway::{Addresses, Gateway};
pub use obtained::{ObtainedHost, Obtainer};
pub use part::{GatewayPart, PreparedGateway};
pub use settings::GatewaySettings;
pub use shared::Environment;
pub use source::Source;
