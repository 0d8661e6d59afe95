//! A QUIC client on quinn-proto, for the tests that other clients cannot perform: chosen ports, lost datagrams, and early
//! data at a chosen time.

use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, ConnectionIdGenerator, DatagramEvent, Dir,
    Endpoint, EndpointConfig, Event, RandomConnectionIdGenerator, StreamId, TokenStore, TransportConfig,
    VarInt,
};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::process::TIMEOUT;

/// A client that trusts one CA. Its handshakes resume one another's sessions.
#[derive(Clone)]
#[must_use = "nothing happens before `connect`"]
pub struct QuicClient {
    config: ClientConfig,
    name: String,
}

impl QuicClient {
    /// Trusts the certificates in this file, sends the server name `name` and the protocol `alpn`, and early data when it
    /// resumes a session that permits it.
    pub fn new(root: &Path, name: &str, alpn: &str) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(root).expect("a PEM file") {
            roots.add(certificate.expect("a certificate")).expect("a root");
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("a version that the provider has")
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        tls.enable_early_data = true;
        let tls = QuicClientConfig::try_from(tls).expect("a suite for Initial packets");
        let mut config = ClientConfig::new(Arc::new(tls));
        let mut transport = TransportConfig::default();
        // Instead of 30 s: a connection may wait until hundreds of others are open.
        transport.max_idle_timeout(Some(TIMEOUT.try_into().expect("a time that QUIC can state")));
        config.transport_config(Arc::new(transport));
        Self { config, name: name.to_owned() }
    }

    /// Begins the random connection ID of its first packets with this byte.
    pub fn first_id_byte(mut self, first: u8) -> Self {
        self.config.initial_dst_cid_provider(Arc::new(move || {
            let mut id = RandomConnectionIdGenerator::new(8).generate_cid();
            id[0] = first;
            id
        }));
        self
    }

    /// Takes the tokens of its first packets (RFC 9000 section 8.1.3) from `store`, and enters those of its servers there.
    pub fn token_store(mut self, store: Arc<dyn TokenStore>) -> Self {
        self.config.token_store(store);
        self
    }

    /// Sends the first packet, from a new port.
    pub fn connect(&self, server: SocketAddr) -> QuicConnection {
        self.connect_from(new_socket(server), server)
    }

    /// Sends the first packet from this socket.
    pub fn connect_from(&self, socket: UdpSocket, server: SocketAddr) -> QuicConnection {
        let config = EndpointConfig::default();
        let mut endpoint = Endpoint::new(Arc::new(config), None, true, None);
        let connecting = endpoint.connect(Instant::now(), self.config.clone(), server, &self.name);
        let (handle, connection) = connecting.expect("a configuration that fits");
        let mut connection = QuicConnection {
            server,
            socket,
            endpoint,
            handle,
            connection,
            is_connected: false,
            lost: None,
            redirect: None,
            first_byte: None,
            first: Vec::new(),
        };
        connection.send();
        connection
    }
}

impl fmt::Debug for QuicClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicClient").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A connection, which blocks the thread while it waits.
pub struct QuicConnection {
    server: SocketAddr,
    socket: UdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    /// The protocol's state.
    pub connection: Connection,
    /// Whether the handshake is complete.
    pub is_connected: bool,
    /// The reason for which the connection ended.
    pub lost: Option<ConnectionError>,
    /// Another address to which datagrams are sent instead.
    pub redirect: Option<SocketAddr>,
    /// The first byte of the first datagram of the server.
    pub first_byte: Option<u8>,
    /// The first datagram that was sent.
    first: Vec<u8>,
}

impl fmt::Debug for QuicConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_connected, lost, .. } = self;
        f.debug_struct("QuicConnection")
            .field("is_connected", is_connected)
            .field("lost", lost)
            .finish_non_exhaustive()
    }
}

fn new_socket(server: SocketAddr) -> UdpSocket {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(any).expect("a socket")
}

impl QuicConnection {
    /// Waits for the end of the handshake.
    pub fn handshake(&mut self) -> Result<(), ConnectionError> {
        self.wait(|this| this.is_connected)
    }

    /// Sends and receives until `done`, which is asked before each wait.
    ///
    /// # Errors
    ///
    /// The reason for which the connection was lost before.
    pub fn wait(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> Result<(), ConnectionError> {
        let end = Instant::now() + TIMEOUT;
        loop {
            self.send();
            if done(self) {
                self.send();
                return Ok(());
            }
            if let Some(lost) = &self.lost {
                return Err(lost.clone());
            }
            assert!(Instant::now() < end, "{self:?} did not get so far in {TIMEOUT:?}");
            self.receive(Duration::from_millis(50));
        }
    }

    /// Receives until `done`, without sending.
    ///
    /// # Errors
    ///
    /// The reason for which the connection was lost before.
    pub fn wait_without_sending(
        &mut self,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), ConnectionError> {
        let end = Instant::now() + TIMEOUT;
        while !done(self) {
            if let Some(lost) = &self.lost {
                return Err(lost.clone());
            }
            assert!(Instant::now() < end, "{self:?} did not get so far in {TIMEOUT:?}");
            self.receive(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Changes to a new port, as a NAT does that has forgotten the client.
    pub fn rebind(&mut self) {
        self.socket = new_socket(self.server);
    }

    /// The socket of the client.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// The first datagram that was sent.
    pub fn first(&self) -> &[u8] {
        &self.first
    }

    /// Changes to another local address and a new port, as a client does that changes its network.
    pub fn rebind_to(&mut self, address: IpAddr) {
        self.socket = UdpSocket::bind((address, 0)).expect("a socket");
    }

    /// Sends a packet to which the server responds.
    pub fn ping(&mut self) {
        self.connection.ping();
        self.send();
    }

    /// Sends the first datagram again.
    pub fn repeat(&self) {
        let _ = self.socket.send_to(&self.first, self.server);
    }

    /// Opens a stream as soon as the server permits another one.
    fn open(&mut self, direction: Dir) -> StreamId {
        let mut stream = self.connection.streams().open(direction);
        if stream.is_none() {
            let opened = self.wait(|this| {
                stream = this.connection.streams().open(direction);
                stream.is_some()
            });
            opened.expect("an open connection");
        }
        stream.expect("a stream that was opened")
    }

    /// Opens a stream, and sends `data` and its end.
    pub fn request(&mut self, data: &[u8]) -> StreamId {
        let stream = self.open(Dir::Bi);
        let mut sending = self.connection.send_stream(stream);
        assert_eq!(sending.write(data).expect("an open stream"), data.len(), "more than the window");
        sending.finish().expect("an open stream");
        self.send();
        stream
    }

    /// Opens a stream, and sends `data`, which may be longer than the window, and its end.
    pub fn upload(&mut self, data: &[u8]) -> Result<StreamId, ConnectionError> {
        let stream = self.open(Dir::Bi);
        let mut rest = data;
        self.wait(|this| {
            let mut sending = this.connection.send_stream(stream);
            while !rest.is_empty() {
                // An error is the end of the window.
                let Ok(written) = sending.write(rest) else { return false };
                rest = &rest[written..];
            }
            true
        })?;
        self.connection.send_stream(stream).finish().expect("an open stream");
        self.send();
        Ok(stream)
    }

    /// Opens a unidirectional stream that stays open, and sends `data`.
    pub fn send_uni(&mut self, data: &[u8]) {
        let stream = self.open(Dir::Uni);
        let written = self.connection.send_stream(stream).write(data).expect("an open stream");
        assert_eq!(written, data.len(), "more than the window");
        self.send();
    }

    /// Waits for all data of the server on a stream.
    pub fn response(&mut self, stream: StreamId) -> Result<Vec<u8>, ConnectionError> {
        let mut data = Vec::new();
        self.wait(|this| this.read(stream, &mut data))?;
        Ok(data)
    }

    /// Waits for all data of the server on a stream, or for the code of its reset.
    pub fn response_or_reset(&mut self, stream: StreamId) -> Result<Result<Vec<u8>, u64>, ConnectionError> {
        let (mut data, mut reset) = (Vec::new(), None);
        self.wait(|this| {
            // Reading a reset stream forgets it.
            reset = this.connection.recv_stream(stream).received_reset().ok().flatten();
            reset.is_some() || this.read(stream, &mut data)
        })?;
        Ok(reset.map_or(Ok(data), |code| Err(code.into())))
    }

    /// Reads the data that has arrived on a stream; returns whether the stream has ended.
    pub fn read(&mut self, stream: StreamId, data: &mut Vec<u8>) -> bool {
        let mut receiving = self.connection.recv_stream(stream);
        let Ok(mut chunks) = receiving.read(true) else { return true };
        let ended = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => data.extend_from_slice(&chunk.bytes),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let _ = chunks.finalize();
        ended
    }

    /// Closes the connection with a packet to the server.
    pub fn close(&mut self) {
        self.connection.close(Instant::now(), VarInt::from_u32(0), Bytes::new());
        self.send();
    }

    /// Sends all that is due.
    fn send(&mut self) {
        let now = Instant::now();
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
        }
        let mut datagram = Vec::new();
        loop {
            // Connection IDs are issued here, and the next packet may contain them.
            while let Some(event) = self.connection.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                    self.connection.handle_event(event);
                }
            }
            datagram.clear();
            // One datagram at a time: segmentation by the kernel would need another system call.
            let Some(transmit) = self.connection.poll_transmit(now, 1, &mut datagram) else { break };
            if self.first.is_empty() {
                self.first.clone_from(&datagram);
            }
            // A datagram that the system refuses is lost.
            let destination = self.redirect.unwrap_or(transmit.destination);
            let _ = self.socket.send_to(&datagram[..transmit.size], destination);
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.is_connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                _ => {}
            }
        }
    }

    /// Receives datagrams for `limit` at most, or until the next timer.
    fn receive(&mut self, limit: Duration) {
        let timer = self.connection.poll_timeout().map(|at| at.saturating_duration_since(Instant::now()));
        // A timeout of zero is an error of the standard library.
        let wait = timer.map_or(limit, |timer| timer.min(limit)).max(Duration::from_millis(1));
        self.socket.set_read_timeout(Some(wait)).expect("a timeout");
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
            self.first_byte.get_or_insert(buffer[0]);
            let (data, mut response) = (BytesMut::from(&buffer[..length]), Vec::new());
            let event = self.endpoint.handle(Instant::now(), from, None, None, data, &mut response);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.connection.handle_event(event);
            }
            // The first datagram is waited for; the others are read if they are there.
            self.socket.set_nonblocking(true).expect("non-blocking");
        }
        self.socket.set_nonblocking(false).expect("blocking");
    }
}
