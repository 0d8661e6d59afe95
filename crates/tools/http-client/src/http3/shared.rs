//! State of a connection, which its handles and its driver share.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use brisk_quic_socket::{Datagram, Socket};
use brisk_tls_client::{ClientFacts, QuicHandshake};
use brisk_wire::h3::error::Code;
use brisk_wire::h3::frame::{self, kind, stream};
use brisk_wire::h3::order::ControlOrder;
use brisk_wire::h3::qpack::Decoder;
use brisk_wire::h3::reader::{FrameReader, Item};
use brisk_wire::h3::varint::Partial;
use bytes::{Buf, Bytes};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, NoneTokenStore,
    ReadError, StreamEvent, StreamId, VarInt, WriteError,
};

use super::Http3Client;
use super::error::Http3Error;
use super::exchange::{Exchange, Fault};
use super::head::{EncodedRequest, KeptFields};
use crate::response::Response;

/// State of a connection.
pub(super) struct Shared {
    pub(super) connection: Connection,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    pub(super) socket: Socket,
    pub(super) handshake: QuicHandshake,
    /// The [`ClientFacts`], set at the end of the handshake.
    pub(super) facts: Option<ClientFacts>,
    /// Whether the control stream was opened.
    is_begun: bool,
    /// Whether the server has sent `GOAWAY` and accepts no further requests.
    is_leaving: bool,
    exchanges: HashMap<u64, Exchange>,
    numbers: HashMap<StreamId, u64>,
    /// Rejected [`Exchange`]s, by their number, that have no new [`StreamId`] yet.
    rejected: BTreeSet<u64>,
    next: u64,
    /// Unidirectional streams of the server.
    incoming: HashMap<StreamId, Incoming>,
    decoder: Decoder,
    pub(super) lost: Option<Http3Error>,
    /// Tasks that wait for a change of the connection.
    pub(super) waiters: Vec<Waker>,
    pub(super) driver: Option<Waker>,
    /// Datagrams to be sent.
    out: Vec<u8>,
}

/// A unidirectional stream of the server.
enum Incoming {
    /// Its type is incomplete.
    Unknown(Partial),
    Control(Box<FrameReader<ControlOrder>>),
    /// Of QPACK, whose table has no capacity, or unknown: ignored.
    Ignored,
}

impl Shared {
    pub(super) fn begin(
        client: &Http3Client,
        socket: Socket,
        server: SocketAddr,
        handshake: QuicHandshake,
    ) -> io::Result<Self> {
        let mut config = ClientConfig::new(handshake.config());
        // Without stored tokens, each connection costs as much as that of a new client.
        config.transport_config(Arc::clone(&client.transport)).token_store(Arc::new(NoneTokenStore));
        let mut endpoint =
            Endpoint::new(Arc::clone(&client.endpoint), None, socket.forbids_fragments(), None);
        // The name is one of the TLS settings.
        let connected = endpoint.connect(Instant::now(), config, server, "");
        let (handle, connection) = connected.map_err(io::Error::other)?;
        let mut shared = Self {
            connection,
            endpoint,
            handle,
            socket,
            handshake,
            facts: None,
            is_begun: false,
            is_leaving: false,
            exchanges: HashMap::new(),
            numbers: HashMap::new(),
            rejected: BTreeSet::new(),
            next: 0,
            incoming: HashMap::new(),
            decoder: Decoder::default(),
            lost: None,
            waiters: Vec::new(),
            driver: None,
            out: Vec::new(),
        };
        if shared.connection.has_0rtt() {
            shared.open_control();
        }
        Ok(shared)
    }

    pub(super) fn is_open(&self) -> bool {
        self.lost.is_none() && !self.is_leaving && !self.connection.is_closed()
    }

    /// Opens a stream for a request and returns its number; `None` while the server permits no stream.
    pub(super) fn request(
        &mut self,
        request: &EncodedRequest,
        kept_fields: KeptFields,
    ) -> Option<Result<u64, Http3Error>> {
        if let Some(lost) = &self.lost {
            return Some(Err(lost.clone()));
        }
        if !self.is_open() {
            return Some(Err(Http3Error::Closed("the server accepts no further requests".to_owned())));
        }
        let stream = self.connection.streams().open(Dir::Bi)?;
        let number = self.next;
        self.next += 1;
        self.numbers.insert(stream, number);
        self.exchanges.insert(number, Exchange::new(stream, request.clone(), kept_fields));
        self.write(number);
        self.wake_driver();
        Some(Ok(number))
    }

    /// The response with this number, once it has ended.
    pub(super) fn poll_response(
        &mut self,
        number: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response, Http3Error>> {
        let exchange = self.exchanges.get_mut(&number).expect("an exchange is removed with its response");
        if exchange.outcome.is_none() {
            exchange.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let exchange = self.exchanges.remove(&number).expect("it was found");
        let _ = exchange.stream.map(|stream| self.numbers.remove(&stream));
        Poll::Ready(exchange.into_response())
    }

    /// Forgets an exchange, and cancels it if it has not ended.
    pub(super) fn abandon(&mut self, number: u64) {
        let Some(exchange) = self.exchanges.remove(&number) else { return };
        let Some(stream) = exchange.stream else { return };
        self.numbers.remove(&stream);
        if exchange.outcome.is_none() {
            let code = VarInt::from_u32(Code::REQUEST_CANCELLED.0 as u32);
            // Fail if the stream has ended.
            let _ = self.connection.send_stream(stream).reset(code);
            let _ = self.connection.recv_stream(stream).stop(code);
            self.wake_driver();
        }
    }

    pub(super) fn close(&mut self) {
        self.end(Code::NO_ERROR);
        self.transmit(Instant::now());
        self.wake_driver();
    }

    fn end(&mut self, code: Code) {
        let code = VarInt::from_u64(code.0).unwrap_or(VarInt::MAX);
        self.connection.close(Instant::now(), code, Bytes::new());
    }

    fn wake_driver(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Ends all [`Exchange`]s with `reason`.
    pub(super) fn lose(&mut self, reason: &Http3Error) {
        // The first reason is the cause; later ones are consequences.
        self.lost.get_or_insert_with(|| reason.clone());
        self.exchanges.values_mut().for_each(|exchange| exchange.finish(Err(reason.clone())));
    }

    /// Lets the connection process a datagram.
    pub(super) fn receive(&mut self, datagram: Datagram) {
        let Datagram { at, remote, ecn, data, .. } = datagram;
        self.out.clear();
        // Other events concern servers and unknown connections.
        let event = self.endpoint.handle(at, remote, None, ecn, data, &mut self.out);
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
    }

    /// Processes the events of the connection.
    pub(super) fn process(&mut self) {
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.connected(),
                Event::ConnectionLost { reason } => {
                    let reason = Http3Error::of(&reason, &self.handshake);
                    self.lose(&reason);
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    while let Some(stream) = self.connection.streams().accept(Dir::Uni) {
                        self.incoming.insert(stream, Incoming::Unknown(Partial::default()));
                        self.read_incoming(stream);
                    }
                }
                Event::Stream(StreamEvent::Available { dir: Dir::Bi }) => self.send_rejected(),
                Event::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => self.read_incoming(id),
                Event::Stream(StreamEvent::Readable { id }) => self.read(id),
                Event::Stream(StreamEvent::Writable { id }) => {
                    if let Some(number) = self.numbers.get(&id) {
                        self.write(*number);
                    }
                }
                _ => {}
            }
        }
    }

    fn connected(&mut self) {
        let stats = self.connection.stats();
        self.facts = self.handshake.facts(self.connection.crypto_session()).map(|facts| ClientFacts {
            bytes_received: stats.udp_rx.bytes,
            bytes_sent: stats.udp_tx.bytes,
            ..facts
        });
        if self.is_begun && !self.connection.accepted_0rtt() {
            self.repeat();
        } else if !self.is_begun {
            self.open_control();
        }
    }

    /// Sends everything again whose early data was rejected (RFC 9001 section 4.6.2: all streams are new).
    fn repeat(&mut self) {
        self.open_control();
        self.numbers.clear();
        self.exchanges.values_mut().for_each(|exchange| exchange.stream = None);
        self.rejected = self.exchanges.keys().copied().collect();
        self.send_rejected();
    }

    /// Sends rejected requests in their order, as far as the server permits streams: fewer than before, perhaps.
    fn send_rejected(&mut self) {
        while let Some(number) = self.rejected.first().copied() {
            // Without the abandoned ones.
            if let Some(exchange) = self.exchanges.get_mut(&number) {
                let Some(stream) = self.connection.streams().open(Dir::Bi) else { return };
                (exchange.stream, exchange.unsent) = (Some(stream), exchange.request.bytes.clone());
                self.numbers.insert(stream, number);
                self.write(number);
            }
            self.rejected.pop_first();
        }
    }

    /// Opens the control stream, with empty `SETTINGS` (RFC 9114 section 6.2.1).
    fn open_control(&mut self) {
        let Some(id) = self.connection.streams().open(Dir::Uni) else { return };
        let mut bytes = vec![stream::CONTROL as u8];
        let at = frame::begin(kind::SETTINGS, &mut bytes);
        frame::end(at, &mut bytes);
        // Fits any window: RFC 9114 section 6.2 demands 1,024 bytes.
        let _ = self.connection.send_stream(id).write(&bytes);
        self.is_begun = true;
    }

    /// Writes as much of a request as is permitted.
    fn write(&mut self, number: u64) {
        let Some(exchange) = self.exchanges.get_mut(&number) else { return };
        let Some(stream) = exchange.stream else { return };
        let mut sending = self.connection.send_stream(stream);
        while !exchange.unsent.is_empty() {
            // `write_chunks` changes the given slice; the clone shares the bytes, and `advance` follows.
            match sending.write_chunks(std::slice::from_mut(&mut exchange.unsent.clone())) {
                Ok(written) => exchange.unsent.advance(written.bytes),
                Err(WriteError::Blocked) => return,
                // RFC 9114 section 4.1: a server that needs no more of the request stops the stream.
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                    exchange.unsent.clear();
                    return;
                }
            }
        }
        // Fails if the server has stopped the stream.
        let _ = sending.finish();
    }

    /// Reads the stream of a response.
    fn read(&mut self, id: StreamId) {
        let Some(exchange) = self.numbers.get(&id).and_then(|number| self.exchanges.get_mut(number)) else {
            return;
        };
        let mut receiving = self.connection.recv_stream(id);
        let Ok(mut chunks) = receiving.read(true) else { return };
        let read = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => match exchange.take(&chunk.bytes, &mut self.decoder) {
                    Ok(()) => {}
                    Err(fault) => break Err(fault),
                },
                Ok(None) => break exchange.end(),
                Err(ReadError::Blocked) => break Ok(()),
                Err(ReadError::Reset(code)) => {
                    break Err(Fault::Stream(Http3Error::reset(code.into_inner())));
                }
            }
        };
        // The result requests a transmission, which follows `process` in any case.
        let _ = chunks.finalize();
        match read {
            Ok(()) => {}
            Err(Fault::Stream(error)) => exchange.finish(Err(error)),
            Err(Fault::Connection(code)) => self.violated(code),
        }
    }

    fn read_incoming(&mut self, id: StreamId) {
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        let mut receiving = self.connection.recv_stream(id);
        let Ok(mut chunks) = receiving.read(true) else { return };
        let read = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => match incoming.take(&chunk.bytes) {
                    Ok(leaving) => self.is_leaving |= leaving,
                    Err(code) => break Err(code),
                },
                // RFC 9114 section 6.2.1: the control stream stays open.
                Ok(None) | Err(ReadError::Reset(_)) if matches!(incoming, Incoming::Control(_)) => {
                    break Err(Code::CLOSED_CRITICAL_STREAM);
                }
                Ok(None) | Err(_) => break Ok(()),
            }
        };
        let _ = chunks.finalize();
        if let Err(code) = read {
            self.violated(code);
        }
    }

    fn violated(&mut self, code: Code) {
        self.lose(&Http3Error::violation(code));
        self.end(code);
    }

    /// Sends until the connection has nothing to send, or the socket is blocked.
    pub(super) fn transmit(&mut self, now: Instant) {
        let segments = self.socket.segments();
        loop {
            while let Some(event) = self.connection.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                    self.connection.handle_event(event);
                }
            }
            if self.socket.is_blocked() {
                return;
            }
            self.out.clear();
            let Some(transmit) = self.connection.poll_transmit(now, segments, &mut self.out) else { return };
            self.socket.send(transmit, &self.out);
        }
    }

    /// Wakes the tasks that wait for a change.
    pub(super) fn wake_waiters(&mut self) {
        self.waiters.drain(..).for_each(Waker::wake);
    }
}

impl Incoming {
    /// Processes bytes; returns whether the server has announced its end.
    fn take(&mut self, mut bytes: &[u8]) -> Result<bool, Code> {
        if let Self::Unknown(number) = self {
            match number.read(&mut bytes) {
                None => return Ok(false),
                Some(stream::CONTROL) => {
                    *self = Self::Control(Box::new(FrameReader::new(ControlOrder::default())));
                }
                // RFC 9114 section 4.6: a push without a permitted ID.
                Some(stream::PUSH) => return Err(Code::ID_ERROR),
                Some(_) => *self = Self::Ignored,
            }
        }
        let Self::Control(reader) = self else { return Ok(false) };
        let mut leaving = false;
        while let Some(item) = reader.next(&mut bytes)? {
            leaving |= matches!(item, Item::Frame(kind::GOAWAY, _));
        }
        Ok(leaving)
    }
}

#[cfg(test)]
mod tests;
