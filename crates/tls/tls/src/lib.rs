//! Terminates TLS, and originates it towards upstreams.
//!
//! [`Acceptor`] performs the handshake of a TCP connection and returns a [`Stream`]; [`quic`] performs those of QUIC; [`connector`] does the same
//! towards an upstream. `hooks` turns synchronous callbacks of rustls (signing, session look-up, tickets) into
//! operations that may wait without blocking the worker (`suspend`). The client for measurements is the crate
//! `brisk-tls-client`.

pub mod acceptor;
mod batch;
pub mod connector;
mod demands;
mod early_data;
mod error;
pub mod flight;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod gate;
pub mod gather;
mod groups;
mod handshake;
mod hooks;
mod host_config;
pub mod internal;
mod key_exchange;
mod key_log;
pub mod mutual;
mod notes;
mod prepared_slot;
mod provider;
pub mod quic;
mod refusal;
mod resources;
pub mod settings;
mod stream;
mod suspend;
#[cfg(test)]
mod testing;

pub use acceptor::hello::{ReadHello, read_hello, refuse_name};
pub use acceptor::{Accepted, Acceptor, Trace};
pub use demands::Demands;
pub use error::TlsError;
pub use flight::FirstFlight;
pub use gate::KeyGate;
pub use refusal::Refusal;
pub use resources::Resources;
pub use settings::{ClientCertificates, HostSettings, Revocation, TlsSettings, UnknownRevocation, Variant};
pub use stream::{Confirmation, Stream};
