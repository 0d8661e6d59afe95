//! A server process: sockets, worker threads, signals, reload, drain, the watchdog, the admin listener, and its reports to a
//! service manager.
//!
//! A [`Service`] serves each connection that holds a permit; a [`Control`] performs the service's duties on the main
//! thread. The crate knows no TLS, and HTTP on the admin listener only.

mod accept;
mod admin;
mod context;
mod control;
mod descriptors;
mod ending;
mod error;
mod files;
mod load;
mod metrics;
mod part;
mod sampling;
mod scheduling;
mod server;
mod service;
mod settings;
mod signals;
mod sockets;
mod stored;
mod succession;
#[cfg(test)]
mod testing;
mod watchdog;
mod worker;

pub use admin::Pages;
pub use context::WorkerContext;
pub use control::{Announcement, Control, Refusal};
pub use error::ServerError;
pub use files::WatchedFiles;
pub use load::WorkerLoad;
pub use metrics::ServerMetrics;
pub use part::{Part, PartError, Parts, PreparedParts};
pub use scheduling::wait_for_turns;
pub use server::{Listening, Process, Server};
pub use service::{Accepted, DatagramSocket, NoService, Place, Service};
pub use settings::{Listen, Program, ServerSettings};
pub use sockets::Sockets;
pub use watchdog::WorkerLoads;
pub use worker::panicked;
