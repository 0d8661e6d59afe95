//! QUIC connections: versions, names, retries and times in Initial packets. Later packets are only counted.

mod initial;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use brisk_handshake_view::Party;
use brisk_wire::client_hello::{ClientHello, Progress};
use brisk_wire::ja4::{Transport, ja4};
use serde::Serialize;

use self::initial::{Kind, LongHeader};
use crate::decode::Datagram;
use crate::time::{Nanos, micros};

/// Maximum number of [`Connection`]s at a time; beyond it the oldest one is reported.
const CONNECTIONS: usize = 4096;

/// Longest `ClientHello` that is gathered.
const HELLO: usize = 16 * 1024;

/// Packets opened for each connection until its hello is complete.
const OPENED: u32 = 32;

/// Report of a QUIC connection. Fields with names of the access log have its meaning and unit.
#[derive(Clone, Debug, Serialize)]
pub struct QuicReport {
    /// Address of the client.
    pub client: IpAddr,
    /// Port of the client.
    pub client_port: u16,
    /// Address of the server.
    pub server: IpAddr,
    /// Port of the server.
    pub server_port: u16,
    /// Time of the first packet.
    pub time: Nanos,
    /// Microseconds from the first datagram to the last.
    pub duration_us: u64,
    /// Version of the client's latest Initial packet.
    pub version: String,
    /// Whether the server refused an earlier version with `Version Negotiation`.
    pub has_version_negotiation: bool,
    /// Whether the server demanded the validation of the client's address by `Retry`, which costs one round trip.
    pub has_retry: bool,
    /// Whether the client sent early data (0-RTT packets).
    pub has_early_data: bool,
    /// Host name in the `ClientHello`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Offered protocols of ALPN.
    pub offered_alpn: Vec<String>,
    /// JA4 fingerprint of the `ClientHello`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ja4: Option<String>,
    /// Size of the `ClientHello` in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hello_bytes: Option<usize>,
    /// Microseconds from the client's first packet to the server's first one: a round trip and the server's work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_us: Option<u64>,
    /// Datagrams and bytes of the client.
    pub client_udp: Traffic,
    /// Datagrams and bytes of the server.
    pub server_udp: Traffic,
}

/// Datagrams of one side.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Traffic {
    /// Number of datagrams.
    pub datagrams: u64,
    /// Payload bytes of UDP.
    pub bytes: u64,
}

/// A connection between two addresses and ports.
#[derive(Debug)]
struct Connection {
    client: SocketAddr,
    server: SocketAddr,
    first: Nanos,
    latest: Nanos,
    answered: Option<Nanos>,
    version: u32,
    /// Destination connection ID of the client's first Initial packet, or of the first one after a Retry.
    id: Vec<u8>,
    has_version_negotiation: bool,
    has_retry: bool,
    has_early_data: bool,
    opened: u32,
    /// Parts of the hello, by offset.
    parts: Vec<(u64, Vec<u8>)>,
    hello: Option<(Box<ClientHello>, Option<String>, usize)>,
    traffic: [Traffic; 2],
}

/// Open connections. Memory: at most 4096, each with 16 KiB of its hello.
#[derive(Debug, Default)]
pub(crate) struct QuicTable {
    connections: HashMap<(SocketAddr, SocketAddr), Connection>,
    order: VecDeque<(SocketAddr, SocketAddr)>,
}

impl QuicTable {
    /// Adds a [`Datagram`]. Returns whether it belongs to QUIC, and the report of a connection that had to go.
    pub(crate) fn add(&mut self, datagram: &Datagram<'_>, time: Nanos) -> (bool, Option<QuicReport>) {
        let (one, two) = (datagram.source, datagram.destination);
        let key = if one <= two { (one, two) } else { (two, one) };
        let packet = initial::read(datagram.payload);
        let mut evicted = None;
        if !self.connections.contains_key(&key) {
            let begins =
                packet.is_some_and(|(packet, _)| packet.kind == Kind::Initial && packet.version != 0);
            // The authentication tag is at the end, so a truncated datagram proves nothing.
            let Some((header, _)) = packet.filter(|_| begins && datagram.is_whole()) else {
                return (false, None);
            };
            // Only a packet that opens is certainly one of QUIC.
            if header.destination.is_empty()
                || initial::open(&header, header.destination, Party::Client).is_none()
            {
                return (false, None);
            }
            if self.connections.len() == CONNECTIONS {
                evicted = self.order.pop_front().and_then(|key| self.connections.remove(&key));
            }
            self.connections.insert(key, Connection::new(datagram, &header, time));
            self.order.push_back(key);
        }
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.add(datagram, time);
        }
        (true, evicted.map(Connection::report))
    }

    /// Reports of all connections, by time.
    pub(crate) fn finish(&mut self) -> Vec<QuicReport> {
        let mut all: Vec<_> = self.connections.drain().map(|(_, connection)| connection).collect();
        // A hash map has no order; sorted, one capture always has the same output.
        all.sort_by_key(|connection| (connection.first, connection.client));
        all.into_iter().map(Connection::report).collect()
    }
}

impl Connection {
    fn new(datagram: &Datagram<'_>, header: &LongHeader<'_>, time: Nanos) -> Self {
        Self {
            client: datagram.source,
            server: datagram.destination,
            first: time,
            latest: time,
            answered: None,
            version: header.version,
            id: header.destination.to_vec(),
            has_version_negotiation: false,
            has_retry: false,
            has_early_data: false,
            opened: 0,
            parts: Vec::new(),
            hello: None,
            traffic: Default::default(),
        }
    }

    fn add(&mut self, datagram: &Datagram<'_>, time: Nanos) {
        let from = if datagram.source == self.client { Party::Client } else { Party::Server };
        self.latest = self.latest.max(time);
        let traffic = &mut self.traffic[from as usize];
        traffic.datagrams += 1;
        traffic.bytes += u64::from(datagram.len);
        if from == Party::Server {
            self.answered.get_or_insert(time);
        }
        let mut rest = datagram.payload;
        while let Some((header, after)) = initial::read(rest) {
            self.packet(from, &header);
            rest = after;
        }
    }

    fn packet(&mut self, from: Party, header: &LongHeader<'_>) {
        match (header.kind, from) {
            (Kind::VersionNegotiation, Party::Server) => self.has_version_negotiation = true,
            (Kind::Retry, Party::Server) => {
                // RFC 9001 section 5.2: the client uses the server's ID for new keys, and sends its hello again.
                self.has_retry = true;
                self.id = header.source.to_vec();
            }
            (Kind::EarlyData, Party::Client) => self.has_early_data = true,
            // Decryption is the expensive part; forged datagrams could demand it without end.
            (Kind::Initial, Party::Client) if self.hello.is_none() && self.opened < OPENED => {
                self.opened += 1;
                // After a Version Negotiation the client begins anew, and the keys follow from the ID in the
                // new packet.
                if header.version != self.version {
                    (self.version, self.id) = (header.version, header.destination.to_vec());
                }
                if let Some(payload) = initial::open(header, &self.id, from) {
                    for (offset, bytes) in initial::crypto(&payload) {
                        self.part(offset, bytes);
                    }
                    self.read_hello();
                }
            }
            _ => {}
        }
    }

    fn part(&mut self, offset: u64, bytes: &[u8]) {
        let kept: usize = self.parts.iter().map(|(_, bytes)| bytes.len()).sum();
        if kept + bytes.len() <= HELLO && self.parts.len() < 256 {
            // Browsers split and reorder the frames of their hello on purpose.
            let place = self.parts.partition_point(|(other, _)| *other < offset);
            self.parts.insert(place, (offset, bytes.to_vec()));
        }
    }

    fn read_hello(&mut self) {
        let mut message = Vec::new();
        for (offset, bytes) in &self.parts {
            // A gap: a part is still missing. Parts may overlap, so known bytes are skipped.
            let Some(known) = (message.len() as u64).checked_sub(*offset) else { return };
            message.extend_from_slice(bytes.get(known as usize..).unwrap_or_default());
        }
        if let Ok(Progress::Complete(hello)) = ClientHello::read_message(&message, HELLO) {
            let ja4 = message.get(4..).and_then(|body| ja4(&hello, body, Transport::Quic));
            self.hello = Some((hello, ja4, message.len()));
            self.parts = Vec::new();
        }
    }

    fn report(self) -> QuicReport {
        let printable = brisk_report::text::printable;
        let hello = self.hello.as_ref().map(|(hello, ..)| hello);
        let alpn = hello.iter().flat_map(|hello| &hello.alpn).take(16);
        QuicReport {
            client: self.client.ip(),
            client_port: self.client.port(),
            server: self.server.ip(),
            server_port: self.server.port(),
            time: self.first,
            duration_us: micros(self.latest.since(self.first)),
            version: initial::version_name(self.version),
            has_version_negotiation: self.has_version_negotiation,
            has_retry: self.has_retry,
            has_early_data: self.has_early_data,
            server_name: hello.and_then(|hello| hello.server_name.as_deref()).map(printable),
            offered_alpn: alpn.map(|name| printable(&String::from_utf8_lossy(name))).collect(),
            ja4: self.hello.as_ref().and_then(|(_, ja4, _)| ja4.clone()),
            hello_bytes: self.hello.as_ref().map(|(.., length)| *length),
            response_us: self.answered.map(|at| micros(at.since(self.first))),
            client_udp: self.traffic[0],
            server_udp: self.traffic[1],
        }
    }
}

#[cfg(test)]
mod tests;
