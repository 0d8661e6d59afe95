//! The interface between the [`Driver`](crate::Driver) and the protocol above QUIC.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use brisk_tls::Refusal;
use brisk_tls::quic::Handshaken;
use bytes::Bytes;
use quinn_proto::{Connection, ConnectionError, StreamEvent, StreamId};

/// Users of the connections of a [`Driver`](crate::Driver).
pub trait Service: 'static {
    /// Held for each connection from [`admit`](Self::admit) until its end.
    type Permit: 'static;
    /// The user of one connection.
    type Application: Application;

    /// Admits a client before anything is done for it. With `None` the connection is refused (`CONNECTION_REFUSED`).
    fn admit(&self, client: SocketAddr, proof: AddressProof) -> Option<Self::Permit>;

    /// Creates the [`Application`] of a connection whose handshake is complete, or has accepted early data of a client whose
    /// address is validated by a token (RFC 9000 section 8.1).
    fn established(&self, established: Established<Self::Permit>) -> Self::Application;

    /// The first bytes of the first stream that the server opens, the same for all connections. They are sent with the handshake,
    /// before the client is known (RFC 9001 section 5.7), unless early data is served.
    fn greeting(&self) -> Bytes;

    /// Records a handshake that failed, with its [`Failure`].
    fn failed(&self, failed: Failed<Self::Permit>);

    /// Reports that datagrams cannot be received because of this error, or, with `None`, that they can be again.
    fn reception(&self, error: Option<&io::Error>);
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

/// A connection for [`Service::established`].
#[derive(Debug)]
pub struct Established<P> {
    /// Address of the client at the time of the handshake.
    pub client: SocketAddr,
    /// The outcome of the handshake. With early data, [`Application::confirmed`] is called at its completion: immediately
    /// if the early data had to wait for it.
    pub handshake: Handshaken,
    /// The stream with the [greeting](Service::greeting), and the part of it that is still to be written.
    pub greeting: Option<(StreamId, Bytes)>,
    /// The permit of the connection.
    pub permit: P,
}

/// A handshake that failed.
#[derive(Debug)]
pub struct Failed<P> {
    /// Address of the client.
    pub client: SocketAddr,
    /// The [`Refusal`] of the TLS layer, if it refused the handshake.
    pub refusal: Option<Box<Refusal>>,
    /// The end of the handshake.
    pub failure: Failure,
    /// The permit of the connection.
    pub permit: P,
}

/// The end of a handshake that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The handshake exceeded [`Timeouts::handshake`](crate::Timeouts::handshake).
    Late,
    /// [`Failure::Late`] while the session waited: for a certificate, a key operation, or a session store.
    LateSession,
    /// The system has no memory for the stack of a [suspended call](brisk_tls::quic::SuspendedCall).
    NoStack,
    /// The connection was lost.
    Lost(ConnectionError),
}

/// The user of one [`Connection`]. It stays on the thread of its [`Driver`](crate::Driver), which drops it
/// together with the connection, when the last packet of a connection that has ended is sent.
pub trait Application: 'static {
    /// The handshake is complete: early data received until now is no replay.
    fn confirmed(&mut self) {}

    /// The client has changed its address or port.
    fn moved(&mut self) {}

    /// Something happened on a stream. [`poll`](Self::poll) follows.
    fn event(&mut self, event: StreamEvent);

    /// Uses the connection: after events, and when the waker of `cx` was woken, which is the same for the whole
    /// connection. [`Poll::Ready`] closes the connection with this application error code, of at most 2^62 - 1.
    fn poll(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Poll<u64>;

    /// The connection was lost. It is not polled again. `connection` is `None` if a [suspended
    /// call](brisk_tls::quic::SuspendedCall) had it when its handshake exceeded the time limit.
    fn lost(&mut self, connection: Option<&Connection>, error: &ConnectionError);
}
