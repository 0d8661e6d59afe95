//! The state of one connection in its driver.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use brisk_net::SharePermit;
use brisk_quic_socket::Datagram;
use brisk_tls::Refusal;
use brisk_tls::quic::SuspendedCall;
use quinn_proto::{AcceptError, Connection, ConnectionHandle, ConnectionId, Endpoint};

use crate::application::Service;
use crate::settings::Unproven;
use crate::wake::Signal;

/// Datagrams that may wait for one suspended handshake; 40 requests in early data fit.
const WAITING: usize = 48;
/// Maximum size of a datagram that waits: the size that endpoints accept, rounded up.
const WAITING_SIZE: usize = 1500;

/// The result of `Endpoint::accept`, with the endpoint. A refusal contains the response for the client.
pub(crate) type Accepted =
    (Box<Endpoint>, Result<(ConnectionHandle, Box<Connection>), Box<(AcceptError, Vec<u8>)>>);

/// The place of a connection's parts.
pub(crate) enum State {
    /// No connection. The endpoint judges the next unknown packet.
    Free,
    /// The first packet is processed; the endpoint is in the call.
    Accepting(SuspendedCall<Accepted>),
    /// Further packets of a handshake are processed; the connection is in the call.
    Busy(SuspendedCall<Box<Connection>>),
    Idle(Box<Connection>),
}

/// A connection, or the place for one. A slot keeps its endpoint for the next connection.
pub(crate) struct Slot<S: Service> {
    /// Absent while the slot is [`State::Accepting`].
    pub(crate) endpoint: Option<Box<Endpoint>>,
    pub(crate) state: State,
    pub(crate) handle: ConnectionHandle,
    /// The ID that the client chose for its first packets.
    pub(crate) first_id: Option<ConnectionId>,
    pub(crate) client: SocketAddr,
    /// Time limit of the handshake; `None` once it is complete.
    pub(crate) deadline: Option<Instant>,
    /// Place among the handshakes in progress.
    pub(crate) pending: Option<SharePermit>,
    /// Place among the handshakes whose addresses are not validated.
    pub(crate) unproven: Option<Unproven>,
    /// The permit of a connection without application.
    pub(crate) permit: Option<S::Permit>,
    pub(crate) refusal: Option<Box<Refusal>>,
    pub(crate) application: Option<S::Application>,
    /// Datagrams that arrived while the slot was busy.
    pub(crate) waiting: Vec<(Datagram, SharePermit)>,
    pub(crate) signal: Arc<Signal>,
    pub(crate) waker: Waker,
    pub(crate) is_dirty: bool,
}

impl<S: Service> Slot<S> {
    pub(crate) fn new(endpoint: Box<Endpoint>, signal: Arc<Signal>, client: SocketAddr) -> Self {
        Self {
            endpoint: Some(endpoint),
            state: State::Free,
            handle: ConnectionHandle(0),
            first_id: None,
            client,
            deadline: None,
            pending: None,
            unproven: None,
            permit: None,
            refusal: None,
            application: None,
            waiting: Vec::new(),
            waker: Waker::from(Arc::clone(&signal)),
            signal,
            is_dirty: false,
        }
    }

    /// Whether a suspended call has the connection.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.state, State::Accepting(_) | State::Busy(_))
    }

    /// Whether a datagram may wait; it is dropped otherwise, and its sender repeats it.
    pub(crate) fn has_room_for(&self, datagram: &Datagram) -> bool {
        self.waiting.len() < WAITING && datagram.data.len() <= WAITING_SIZE
    }
}
