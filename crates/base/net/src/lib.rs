//! Sockets: listening, dialling over TCP and Unix sockets, limits, deadlines and drain; the datagram sockets of QUIC.
//!
//! Independent of TLS and HTTP.

mod acknowledge;
mod congestion;
pub mod datagram;
pub mod deadline;
pub mod dial;
pub mod drain;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod limits;
mod linger;
pub mod listener;
mod names;
mod networks;
mod options;
mod peer;
pub mod proxy_protocol;
pub mod rates;
mod share;
mod silent;
mod source;
pub mod tcp_info;
mod timer;
mod turn;
pub mod unix;
mod unsent;

pub use acknowledge::acknowledge;
pub use congestion::Congestion;
pub use deadline::{Deadline, DeadlineWheel};
pub use dial::{DialLimits, Target};
pub use drain::{Drain, DrainGuard, DrainTrigger};
pub use limits::{AddressLimit, AddressPermit, ConnectionLimit, ConnectionPermit};
pub use linger::{Lingering, end_by_reset, linger};
pub use listener::{FastOpenState, Listener, ListenerSettings};
pub use networks::{Networks, canonical_network};
pub use peer::Peer;
pub use proxy_protocol::ProxyProtocolError;
pub use rates::{RateLimits, Rates};
pub use share::{FairShare, SharePermit};
pub use silent::{SilentLimit, SilentPermit};
pub use source::{ConnectOptions, FastOpenConnect, connect_from};
pub use tcp_info::{TcpInfo, accept_queue};
pub use timer::Timer;
pub use turn::TurnLimit;
pub use unix::UnixTarget;
pub use unsent::UnsentLimit;
