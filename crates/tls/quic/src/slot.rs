//! The state of one connection in its driver.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use brisk_net::SharePermit;
use brisk_quic_socket::Datagram;
use brisk_tls::Refusal;
use brisk_tls::quic::SuspendedCall;
use bytes::Bytes;
use quinn_proto::{
    AcceptError, Connection, ConnectionError, ConnectionHandle, ConnectionId, Endpoint, StreamId, Transmit,
};

use crate::application::Service;
use crate::paths::Paths;
use crate::settings::Unproven;
use crate::wake::Signal;

/// Datagrams that may wait for one suspended handshake; 40 requests in early data fit.
const WAITING: usize = 48;
/// Maximum size of a datagram that waits: the size that endpoints accept, rounded up.
const WAITING_SIZE: usize = 1500;

/// The result of [`Endpoint::accept`], with the endpoint. With an [`AcceptError`] come the contents of the response for
/// the client.
pub(crate) type Accepted =
    (Box<Endpoint>, Result<(ConnectionHandle, Box<Connection>), Box<(AcceptError, Vec<u8>)>>);

/// The place of the [`Connection`] and the [`Endpoint`] of a slot.
pub(crate) enum State {
    /// No connection. [`Slot::endpoint`] judges the next unknown packet.
    Free,
    /// The first packet is processed; the [`Endpoint`] is in the [`SuspendedCall`].
    Accepting(SuspendedCall<Accepted>),
    /// Further packets of a handshake are processed; the [`Connection`] is in the [`SuspendedCall`].
    Busy(SuspendedCall<Box<Connection>>),
    Idle(Box<Connection>),
    /// The connection has ended, and its memory is free. Late packets are answered by its [`LastPacket`].
    Ended(LastPacket),
}

/// The end of a connection that is still to be sent.
pub(crate) enum Ending {
    /// The [`Application`](crate::application::Application) has closed the connection.
    Closed,
    Lost(ConnectionError),
}

impl Ending {
    /// Whether the client has ended the connection. It needs no answer (RFC 9000 section 10.2.2).
    pub(crate) fn is_of_client(&self) -> bool {
        matches!(
            self,
            Self::Lost(ConnectionError::ApplicationClosed(_) | ConnectionError::ConnectionClosed(_))
        )
    }
}

/// The packet with which a connection was closed. RFC 9000 section 10.2.1: an endpoint may keep it in place of all other state,
/// and has to answer ever fewer of the packets that still arrive.
#[derive(Debug, Default)]
pub(crate) struct LastPacket {
    packet: Option<(Transmit, Vec<u8>)>,
    received: u64,
}

impl LastPacket {
    /// Keeps a packet. `packet` is `None` if `contents` are several datagrams: they would have to be divided again.
    pub(crate) fn new(transmit: &Transmit, contents: &[u8]) -> Self {
        // A packet that closes a connection is normally single: segments occur with data before it only.
        let is_single = transmit.segment_size.is_none() || contents.len() <= WAITING_SIZE;
        Self { packet: is_single.then(|| (copy(transmit), contents.to_vec())), received: 0 }
    }

    /// The answer to a packet: for the first, second, fourth, eighth and so on, from the address of the client, and at most
    /// three times as long (RFC 9000 section 8.1).
    pub(crate) fn answer(&mut self, datagram: &Datagram) -> Option<(Transmit, &[u8])> {
        self.received += 1;
        let (transmit, contents) = self.packet.as_ref()?;
        let is_due = self.received.is_power_of_two()
            && datagram.remote == transmit.destination
            && contents.len() <= 3 * datagram.data.len();
        is_due.then(|| (copy(transmit), &contents[..]))
    }
}

fn copy(transmit: &Transmit) -> Transmit {
    let Transmit { destination, ecn, size, segment_size, src_ip } = *transmit;
    Transmit { destination, ecn, size, segment_size, src_ip }
}

/// A connection, or a free slot for one. A slot keeps its [`Endpoint`] for the next connection.
pub(crate) struct Slot<S: Service> {
    /// `None` while the slot is [`State::Accepting`].
    pub(crate) endpoint: Option<Box<Endpoint>>,
    /// The [`Current::number`](crate::settings::Current::number) of the settings that the endpoint has.
    pub(crate) settings: u64,
    pub(crate) state: State,
    pub(crate) handle: ConnectionHandle,
    /// The ID that the client chose for its first packets, a key of `Driver::first_ids`.
    pub(crate) first_id: Option<ConnectionId>,
    pub(crate) client: SocketAddr,
    /// Changes of the address after the handshake.
    pub(crate) paths: Paths,
    /// Time limit of the handshake, or the end of [`State::Ended`]; `None` between both.
    pub(crate) deadline: Option<Instant>,
    /// Permit of `QuicSettings::pending_handshakes`; `None` after the handshake.
    pub(crate) pending: Option<SharePermit>,
    /// Permit among the handshakes whose addresses are not validated; `None` if the address is.
    pub(crate) unproven: Option<Unproven>,
    /// The permit of a connection without [`Service::Application`], which takes it.
    pub(crate) permit: Option<S::Permit>,
    pub(crate) refusal: Option<Box<Refusal>>,
    /// The stream with the [`Service::greeting`], and the rest of it, until there is an `application`.
    pub(crate) greeting: Option<(StreamId, Bytes)>,
    pub(crate) application: Option<S::Application>,
    /// The end of the connection, until its last packet is sent.
    pub(crate) ending: Option<Ending>,
    /// The last packet that was sent since `ending` was set.
    pub(crate) last: LastPacket,
    /// Datagrams that arrived while the slot [`is_busy`](Self::is_busy), at most [`WAITING`].
    pub(crate) waiting: Vec<(Datagram, SharePermit)>,
    pub(crate) signal: Arc<Signal>,
    pub(crate) waker: Waker,
    pub(crate) is_dirty: bool,
}

impl<S: Service> Slot<S> {
    pub(crate) fn new(endpoint: Box<Endpoint>, signal: Arc<Signal>, client: SocketAddr) -> Self {
        Self {
            endpoint: Some(endpoint),
            settings: 0,
            state: State::Free,
            handle: ConnectionHandle(0),
            first_id: None,
            client,
            paths: Paths::default(),
            deadline: None,
            pending: None,
            unproven: None,
            permit: None,
            refusal: None,
            greeting: None,
            application: None,
            ending: None,
            last: LastPacket::default(),
            waiting: Vec::new(),
            waker: Waker::from(Arc::clone(&signal)),
            signal,
            is_dirty: false,
        }
    }

    /// Whether a [`SuspendedCall`] has the connection.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.state, State::Accepting(_) | State::Busy(_))
    }

    /// Whether a [`Datagram`] may wait in `waiting`; it is dropped otherwise, and its sender repeats it.
    pub(crate) fn has_room_for(&self, datagram: &Datagram) -> bool {
        self.waiting.len() < WAITING && datagram.data.len() <= WAITING_SIZE
    }
}
