//! HTTP/3 (RFC 9114), with concurrent requests on one connection.
//!
//! A connection consists of a handle, [`Http3`], and a [`Driver`], a future that sends and receives for it. The TLS side is
//! a [`QuicHandshake`] of the caller. Each connection has a socket of its own, as those of browsers do.

mod driver;
mod error;
mod exchange;
mod head;
mod shared;

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use brisk_quic_socket::{Batch, Socket};
use brisk_tls_client::{ClientFacts, QuicHandshake};
use quinn_proto::{EndpointConfig, RandomConnectionIdGenerator, TransportConfig};

use crate::response::Response;
pub use driver::Driver;
pub use error::Http3Error;
pub use head::{EncodedRequest, KeptFields, RequestHead};
use shared::Shared;

/// Flow-control windows of a response and a connection, large enough not to slow down responses.
const STREAM_WINDOW: u32 = 16 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Unidirectional streams that a server may have open: three are defined, and others are permitted (RFC 9114 section 6.2).
const UNIDIRECTIONAL_STREAMS: u32 = 16;

/// Makes the HTTP/3 connections of one thread.
pub struct Http3Client {
    endpoint: Arc<EndpointConfig>,
    transport: Arc<TransportConfig>,
    /// Receive buffers, which all connections use in turn.
    batch: Rc<RefCell<Batch>>,
}

/// Handle of a connection. The connection is cut when its [`Driver`] is dropped.
#[derive(Clone)]
pub struct Http3 {
    shared: Rc<RefCell<Shared>>,
}

/// A request that was sent or will be sent by the [`Driver`]. Dropping a `PendingResponse` abandons the request with
/// `H3_REQUEST_CANCELLED`.
#[derive(Debug)]
pub struct PendingResponse {
    connection: Http3,
    number: u64,
}

/// Bytes and datagrams of a connection, without the headers of UDP and IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Bytes of datagrams received.
    pub received_bytes: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
}

impl Default for Http3Client {
    fn default() -> Self {
        let mut transport = TransportConfig::default();
        transport
            // RFC 9114 section 6.1: servers open no bidirectional streams.
            .max_concurrent_bidi_streams(0_u32.into())
            .max_concurrent_uni_streams(UNIDIRECTIONAL_STREAMS.into())
            .stream_receive_window(STREAM_WINDOW.into())
            .receive_window(CONNECTION_WINDOW.into())
            // The server's idle timeout applies, and the caller's timeouts.
            .max_idle_timeout(None)
            .datagram_receive_buffer_size(None)
            // A client sends little, so larger datagrams would not repay the packets that probe for them.
            .mtu_discovery_config(None);
        let mut endpoint = EndpointConfig::default();
        // RFC 9000 section 5.1: an endpoint that needs no routing by ID uses an empty one, as Chrome does.
        endpoint.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)));
        Self { endpoint: Arc::new(endpoint), transport: Arc::new(transport), batch: Rc::default() }
    }
}

impl Http3Client {
    /// Begins a connection to `server`, with which `socket` must be connected so that errors of the network are reported.
    /// The first packet is sent by the [`Driver`]. Must be called inside a runtime.
    pub fn connect(
        &self,
        socket: std::net::UdpSocket,
        server: SocketAddr,
        handshake: QuicHandshake,
    ) -> io::Result<(Http3, Driver)> {
        let socket = Socket::new(socket)?;
        let shared = Shared::begin(self, socket, server, handshake)?;
        let shared = Rc::new(RefCell::new(shared));
        let driver = Driver::new(Rc::clone(&shared), Rc::clone(&self.batch));
        Ok((Http3 { shared }, driver))
    }
}

impl Http3 {
    /// Waits for the end of the handshake; an `Err` is [`Http3Error::Tls`] or the loss of the connection. Early requests may
    /// have their [`Response`] before.
    pub async fn handshake(&self) -> Result<ClientFacts, Http3Error> {
        self.until(|shared| match (&shared.facts, &shared.lost) {
            (Some(facts), _) => Some(Ok(facts.clone())),
            (None, Some(lost)) => Some(Err(lost.clone())),
            (None, None) => None,
        })
        .await
    }

    /// Whether requests can be sent before the end of the handshake.
    pub fn permits_early_requests(&self) -> bool {
        self.shared.borrow().connection.has_0rtt()
    }

    /// Sends a request. Waits while the server permits no further stream; before the end of the handshake, streams of early
    /// data are permitted if the session has them.
    pub async fn request(
        &self,
        request: EncodedRequest,
        kept_fields: KeptFields,
    ) -> Result<PendingResponse, Http3Error> {
        let opened = self.until(|shared| shared.request(&request, kept_fields)).await?;
        Ok(PendingResponse { connection: self.clone(), number: opened })
    }

    /// Whether further requests are possible: the connection is neither lost nor closed, and the server has sent no
    /// `GOAWAY`.
    pub fn is_open(&self) -> bool {
        self.shared.borrow().is_open()
    }

    /// Bytes and datagrams so far.
    pub fn traffic(&self) -> Traffic {
        let stats = self.shared.borrow().connection.stats();
        Traffic {
            sent_bytes: stats.udp_tx.bytes,
            received_bytes: stats.udp_rx.bytes,
            sent: stats.udp_tx.datagrams,
            received: stats.udp_rx.datagrams,
        }
    }

    /// The TLS side, for [`ClientFacts`] and sessions.
    pub fn tls(&self) -> QuicHandshake {
        self.shared.borrow().handshake.clone()
    }

    /// Waits until a session has been received. Returns whether there is one: `false` if the connection ends before. Has
    /// no timeout, and a server need not send any `NewSessionTicket`.
    pub async fn receives_session(&self) -> bool {
        self.until(|shared| match (shared.handshake.has_session(), &shared.lost) {
            (true, _) => Some(true),
            (false, Some(_)) => Some(false),
            (false, None) => None,
        })
        .await
    }

    /// Closes the connection without an error, with a packet to the server. Unanswered requests are abandoned.
    pub fn close(&self) {
        self.shared.borrow_mut().close();
    }

    async fn until<T>(&self, mut check: impl FnMut(&mut Shared) -> Option<T>) -> T {
        poll_fn(|cx| {
            let mut shared = self.shared.borrow_mut();
            let Some(value) = check(&mut shared) else {
                // A waker may be stored twice: a wake-up without a change only repeats the check.
                shared.waiters.push(cx.waker().clone());
                return Poll::Pending;
            };
            Poll::Ready(value)
        })
        .await
    }
}

impl PendingResponse {
    /// Waits for the end of the [`Response`].
    pub async fn finish(self) -> Result<Response, Http3Error> {
        poll_fn(|cx| self.connection.shared.borrow_mut().poll_response(self.number, cx)).await
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.connection.shared.borrow_mut().abandon(self.number);
    }
}

impl fmt::Debug for Http3Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http3Client").finish_non_exhaustive()
    }
}

impl fmt::Debug for Http3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http3").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}
