//! QUIC (RFC 9000) for the protocols above: one [`Driver`] per worker and datagram socket, on quinn-proto.
//!
//! A handshake that waits for a key operation, a certificate or a session store suspends its own connection only. For
//! this, every connection has an `Endpoint` of its own: `Endpoint::accept` borrows the endpoint while the hello is
//! processed, so the endpoint moves into a [suspended call](brisk_tls::quic::SuspendedCall) and back, and the driver itself
//! routes datagrams by connection ID. The crate knows nothing of HTTP: the protocol above implements [`Service`] and
//! [`Application`].

mod application;
mod counters;
mod driver;
mod group;
mod ids;
mod paths;
mod settings;
mod slot;
mod timers;
mod tokens;
mod wake;

pub use application::{AddressProof, Application, Established, Failed, Failure, Service};
pub use counters::{Counter, QuicCounters};
pub use driver::Driver;
pub use group::Group;
pub use settings::{Endpoints, QuicSettings, Timeouts};
