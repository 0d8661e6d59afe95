//! The interface between the driver and the protocol above QUIC.

use std::net::SocketAddr;
use std::task::{Context, Poll};

use brisk_tls::Refusal;
use brisk_tls::quic::Handshaken;
use quinn_proto::{Connection, ConnectionError, StreamEvent};

/// Users of the connections of a driver.
pub trait Service: 'static {
    /// Held for each connection from its first packet until its end.
    type Permit: 'static;
    /// The user of one connection.
    type Application: Application;

    /// Admits a client before anything is done for it. Without a permit the connection is refused.
    fn admit(&self, client: SocketAddr, proof: AddressProof) -> Option<Self::Permit>;

    /// Creates the user of a connection whose handshake is complete or has accepted early data.
    fn established(&self, established: Established<Self::Permit>) -> Self::Application;

    /// Records a handshake that failed.
    fn failed(&self, failed: Failed<Self::Permit>);
}

/// Whether a client has proven its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressProof {
    /// The client has returned a token that was sent to its address.
    Validated,
    /// Any client may have sent the packet with this address.
    Claimed,
}

impl AddressProof {
    pub(crate) fn of(is_validated: bool) -> Self {
        if is_validated { Self::Validated } else { Self::Claimed }
    }
}

/// A connection that can be used.
#[derive(Debug)]
pub struct Established<P> {
    /// Address of the client at the time of the handshake.
    pub client: SocketAddr,
    /// The outcome of the handshake. With early data, [`Application::confirmed`] is called at its completion.
    pub handshake: Handshaken,
    /// The permit of the connection.
    pub permit: P,
}

/// A handshake that failed.
#[derive(Debug)]
pub struct Failed<P> {
    /// Address of the client.
    pub client: SocketAddr,
    /// The reason of the TLS layer, if it refused the handshake.
    pub refusal: Option<Box<Refusal>>,
    /// The end of the connection; `None` if its handshake exceeded the time limit.
    pub error: Option<ConnectionError>,
    /// The permit of the connection.
    pub permit: P,
}

/// The user of one connection. It stays on the thread of its driver. The driver drops it when the connection has ended.
pub trait Application: 'static {
    /// The handshake is complete: early data received until now is no replay.
    fn confirmed(&mut self) {}

    /// The client has changed its address or port.
    fn moved(&mut self) {}

    /// Something happened on a stream. [`poll`](Self::poll) follows.
    fn event(&mut self, event: StreamEvent);

    /// Uses the connection: after events, and when the waker of `cx` was woken, which is the same for the whole
    /// connection. `Ready` closes the connection with this application error code.
    fn poll(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Poll<u64>;

    /// The connection was lost. It is not polled again.
    fn lost(&mut self, connection: &Connection, error: &ConnectionError);
}
