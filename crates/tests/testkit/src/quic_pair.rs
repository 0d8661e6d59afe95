//! Both ends of a QUIC connection in memory: without sockets, loss and waiting.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event, ServerConfig,
    StreamEvent, TransportConfig,
};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::ca::TestCa;

const NAME: &str = "a";

/// A client and a server after their handshake.
pub struct QuicPair {
    /// End of the client.
    pub client: End,
    /// End of the server.
    pub server: End,
    now: Instant,
}

/// One end of the connection.
pub struct End {
    /// State of the protocol.
    pub connection: Connection,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    address: SocketAddr,
    /// Events of streams since the last call of [`take_events`](Self::take_events).
    events: Vec<StreamEvent>,
}

impl QuicPair {
    /// Connects both ends; the server has this transport configuration.
    pub fn new(transport: TransportConfig) -> Self {
        let (server, client) = configurations(transport);
        let [at_client, at_server] = [40_001, 443].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let now = Instant::now();
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
        let (handle, connection) = endpoint.connect(now, client, at_server, NAME).expect("a configuration");
        let mut client = End { connection, endpoint, handle, address: at_client, events: Vec::new() };
        let mut endpoint =
            Endpoint::new(Arc::new(EndpointConfig::default()), Some(Arc::new(server)), true, None);
        let (first, mut out) = (client.send(now).expect("a first datagram"), Vec::new());
        let arrived = endpoint.handle(now, at_client, None, None, BytesMut::from(&first[..]), &mut out);
        let Some(DatagramEvent::NewConnection(incoming)) = arrived else { panic!("no connection") };
        let (handle, connection) = endpoint.accept(incoming, now, &mut out, None).expect("a connection");
        let server = End { connection, endpoint, handle, address: at_server, events: Vec::new() };
        let mut pair = Self { client, server, now };
        pair.exchange();
        assert!(!pair.client.connection.is_handshaking(), "{pair:?}");
        pair
    }

    /// Passes datagrams until neither end has one to send. Timers of the next second expire at once, such as those of delayed
    /// acknowledgements.
    pub fn exchange(&mut self) {
        // The clock is advanced by timers only, so no test waits. The idle timeout is longer and never
        // expires.
        let end = self.now + Duration::from_secs(1);
        loop {
            let mut is_idle = true;
            for is_client in [true, false] {
                let Self { client, server, now } = self;
                let (from, to) = if is_client { (client, server) } else { (server, client) };
                while let Some(datagram) = from.send(*now) {
                    is_idle = false;
                    to.receive(*now, from.address, &datagram);
                }
            }
            let timers = [&mut self.client, &mut self.server].map(|end| end.connection.poll_timeout());
            match timers.into_iter().flatten().min().filter(|next| *next <= end) {
                _ if !is_idle => {}
                None => return,
                Some(next) => self.now = self.now.max(next),
            }
        }
    }
}

impl End {
    /// Takes the events of streams.
    pub fn take_events(&mut self) -> Vec<StreamEvent> {
        std::mem::take(&mut self.events)
    }

    fn send(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
        }
        let mut datagram = Vec::new();
        let transmit = self.connection.poll_transmit(now, 1, &mut datagram);
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.poll() {
            if let Event::Stream(event) = event {
                self.events.push(event);
            }
        }
        transmit.map(|transmit| datagram[..transmit.size].to_vec())
    }

    fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let mut out = Vec::new();
        let arrived = self.endpoint.handle(now, from, None, None, BytesMut::from(datagram), &mut out);
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = arrived {
            self.connection.handle_event(event);
        }
    }
}

fn configurations(transport: TransportConfig) -> (ServerConfig, ClientConfig) {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).issue();
    let chain = CertificateDer::pem_slice_iter(leaf.chain_pem.as_bytes());
    let chain = chain.collect::<Result<_, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).expect("a key");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version of the provider")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate with its key");
    server.alpn_protocols = vec![b"h3".to_vec()];
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.root_pem().as_bytes()).expect("a root")).expect("a root");
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version of the provider")
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"h3".to_vec()];
    let server = QuicServerConfig::try_from(server).expect("a suite for Initial packets");
    let mut server = ServerConfig::with_crypto(Arc::new(server));
    server.transport_config(Arc::new(transport));
    let client = QuicClientConfig::try_from(client).expect("a suite for Initial packets");
    (server, ClientConfig::new(Arc::new(client)))
}

impl fmt::Debug for QuicPair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("QuicPair").field("now", &self.now).finish_non_exhaustive()
    }
}

impl fmt::Debug for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("End").field("address", &self.address).finish_non_exhaustive()
    }
}
