//! HTTP requests in the bytes of a connection: HTTP/1.1 and HTTP/2, decrypted or not encrypted.

mod http1;
mod http2;

use brisk_handshake_view::Party;
use brisk_report::text::printable_value;
use serde::Serialize;

use self::http1::Http1;
use self::http2::Http2;
use crate::time::{Nanos, micros};

/// Maximum number of [`Exchange`]s kept for each connection; later ones are only counted.
const REQUESTS: usize = 1000;

/// Bytes of a server that are kept until the client's first bytes: `SETTINGS` of HTTP/2.
const EARLY: usize = 16 * 1024;

/// Longest kept text of a request: its path.
const LONGEST: usize = 512;

/// Longest method. The longest registered one, `UPDATEREDIRECTREF`, has 17 bytes.
const METHOD: usize = 32;

/// Place of bytes: packet, its time, and the offset of the bytes, or of the record that contains them, in their direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) packet: u64,
    pub(crate) time: Nanos,
    pub(crate) offset: u64,
}

/// A request with its response.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Number of the HTTP/2 stream; in HTTP/1.1, of the request, from 1.
    stream: u32,
    method: String,
    host: String,
    path: String,
    status: Option<u16>,
    begin: Place,
    /// Begin of the final response's head.
    response: Option<Place>,
    /// Last byte of the response.
    end: Option<Place>,
    received: u64,
    sent: u64,
    is_reset: bool,
}

impl Exchange {
    fn new(stream: u32, begin: Place) -> Self {
        let (method, host, path) = (String::new(), String::new(), String::new());
        let (status, response, end) = (None, None, None);
        Self {
            stream,
            method,
            host,
            path,
            status,
            begin,
            response,
            end,
            received: 0,
            sent: 0,
            is_reset: false,
        }
    }

    /// Heap memory in bytes.
    fn memory(&self) -> usize {
        self.method.capacity() + self.host.capacity() + self.path.capacity()
    }
}

/// A readable text of bounded length.
fn short(text: &[u8]) -> String {
    printable_value(&String::from_utf8_lossy(&text[..text.len().min(LONGEST)]))
}

/// Requests of one connection.
#[derive(Debug, Default)]
pub(crate) struct Http {
    protocol: Protocol,
    is_http2: bool,
    exchanges: Exchanges,
    /// Bytes before the protocol is known.
    early: Vec<(Party, Place, Vec<u8>)>,
}

/// The requests until now.
#[derive(Debug, Default)]
struct Exchanges {
    list: Vec<Exchange>,
    /// Memory of the texts in bytes.
    texts: usize,
    count: u64,
}

impl Exchanges {
    /// Adds a request and returns its index; `None` beyond [`REQUESTS`].
    fn add(&mut self, exchange: Exchange) -> Option<usize> {
        self.count += 1;
        if self.list.len() == REQUESTS {
            return None;
        }
        // Summed here, because the memory of a connection is measured with each packet.
        self.texts += exchange.memory();
        self.list.push(exchange);
        Some(self.list.len() - 1)
    }

    fn get(&mut self, index: Option<usize>) -> Option<&mut Exchange> {
        index.and_then(|index| self.list.get_mut(index))
    }
}

/// The bytes violate HTTP, or another protocol follows.
#[derive(Debug)]
struct NotHttp;

#[derive(Debug, Default)]
enum Protocol {
    #[default]
    Unknown,
    Http1(Box<Http1>),
    Http2(Box<Http2>),
    /// Another protocol, or bytes that violate HTTP.
    Other,
}

impl Protocol {
    /// Protocol of the first bytes of a client; `Unknown` if they end within a method.
    fn of(first: &[u8]) -> Self {
        // RFC 9110 section 9.1: methods are extensible. Registered ones have upper-case letters and hyphens.
        let is_other = |byte: &u8| !byte.is_ascii_uppercase() && *byte != b'-';
        let length = first.iter().position(is_other).unwrap_or(first.len());
        match first.get(length) {
            _ if length > METHOD => Self::Other,
            None => Self::Unknown,
            // RFC 9113 section 11.6: the method of the preface is reserved.
            Some(b' ') if first.starts_with(b"PRI ") => Self::Http2(Box::default()),
            Some(b' ') if length > 0 => Self::Http1(Box::default()),
            Some(_) => Self::Other,
        }
    }
}

impl Http {
    /// Whether `first`, the first bytes of a client, can be those of HTTP.
    pub(crate) fn is_begin(first: &[u8]) -> bool {
        !matches!(Protocol::of(first), Protocol::Other)
    }

    /// Whether another protocol follows, or the bytes violate HTTP: no further bytes are read.
    pub(crate) fn is_other(&self) -> bool {
        matches!(self.protocol, Protocol::Other)
    }

    /// Adds bytes of the stream, not encrypted.
    pub(crate) fn add(&mut self, from: Party, place: Place, bytes: &[u8]) {
        if let Protocol::Unknown = self.protocol {
            self.begin(from, place, bytes);
        } else {
            self.read(from, place, bytes);
        }
    }

    /// Keeps bytes until those of the client show the protocol, and reads all of them then.
    fn begin(&mut self, from: Party, place: Place, bytes: &[u8]) {
        // Servers may send `SETTINGS` first. Bytes of the client are few: they end with its method.
        let size = bytes.len() + self.early.iter().map(|(.., bytes)| bytes.len()).sum::<usize>();
        if bytes.is_empty() || from == Party::Server && size > EARLY {
            return;
        }
        self.early.push((from, place, bytes.to_vec()));
        if from == Party::Server {
            return;
        }
        let kept = self.early.iter().filter(|(from, ..)| *from == Party::Client);
        self.protocol = Protocol::of(&kept.flat_map(|(.., bytes)| bytes).copied().collect::<Vec<_>>());
        self.is_http2 = matches!(self.protocol, Protocol::Http2(_));
        if !matches!(self.protocol, Protocol::Unknown) {
            for (from, place, bytes) in std::mem::take(&mut self.early) {
                self.read(from, place, &bytes);
            }
        }
    }

    fn read(&mut self, from: Party, place: Place, bytes: &[u8]) {
        let exchanges = &mut self.exchanges;
        let read = match &mut self.protocol {
            Protocol::Http1(http1) => http1.add(from, place, bytes, exchanges),
            Protocol::Http2(http2) => http2.add(from, place, bytes, exchanges),
            Protocol::Unknown | Protocol::Other => Ok(()),
        };
        if let Err(NotHttp) = read {
            self.protocol = Protocol::Other;
        }
    }

    /// Ends a response whose body ends with the connection.
    pub(crate) fn closed(&mut self, from: Party, place: Place) {
        if let Protocol::Http1(http1) = &mut self.protocol {
            http1.closed(from, place, &mut self.exchanges);
        }
    }

    /// Number of requests.
    pub(crate) fn count(&self) -> u64 {
        self.exchanges.count
    }

    /// Heap memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        let protocol = match &self.protocol {
            Protocol::Http1(http1) => http1.memory(),
            Protocol::Http2(http2) => http2.memory(),
            Protocol::Unknown | Protocol::Other => 0,
        };
        let early: usize = self.early.iter().map(|(.., bytes)| bytes.capacity() + 56).sum();
        protocol + early + self.exchanges.texts + self.exchanges.list.capacity() * size_of::<Exchange>()
    }

    /// Name of the request or response that begins at or after `offset` in the bytes of `from`, and its place.
    pub(crate) fn names(&self, from: Party) -> impl Iterator<Item = (u64, String)> {
        self.exchanges.list.iter().filter_map(move |exchange| match from {
            Party::Client => Some((exchange.begin.offset, format!("{} {}", exchange.method, exchange.path))),
            Party::Server => {
                let status = exchange.status?;
                Some((exchange.response?.offset, format!("{status} for {}", exchange.path)))
            }
        })
    }

    /// [`RequestReport`]s with times since `first`.
    pub(crate) fn reports(&self, first: Nanos) -> Vec<RequestReport> {
        let protocol = if self.is_http2 { "HTTP/2.0" } else { "HTTP/1.1" };
        self.exchanges.list.iter().map(|exchange| RequestReport::new(exchange, protocol, first)).collect()
    }
}

/// Report of a request. Times are microseconds since the first packet of the connection.
#[derive(Clone, Debug, Serialize)]
pub struct RequestReport {
    /// Number of the HTTP/2 stream; in HTTP/1.1, of the request, from 1.
    pub stream: u32,
    /// Version: `HTTP/1.1` or `HTTP/2.0`.
    pub protocol: &'static str,
    /// Method.
    pub method: String,
    /// Host of the request.
    pub host: String,
    /// Path with query, at most 512 bytes.
    pub path: String,
    /// Status of the final response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Time of the head of the request.
    pub begin_us: u64,
    /// Time of the head of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_us: Option<u64>,
    /// Time of the last byte of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_us: Option<u64>,
    /// Bytes of the request's body, with the framing of HTTP/1.1.
    pub bytes_received: u64,
    /// Bytes of the response's body.
    pub bytes_sent: u64,
    /// The stream was reset.
    pub is_reset: bool,
    /// Packet that completes the head of the request.
    pub packet: u64,
    /// Packet that completes the head of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_packet: Option<u64>,
    /// Packet with the last byte of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_packet: Option<u64>,
}

impl RequestReport {
    fn new(exchange: &Exchange, protocol: &'static str, first: Nanos) -> Self {
        let at = |place: Place| micros(place.time.since(first));
        Self {
            stream: exchange.stream,
            protocol,
            method: exchange.method.clone(),
            host: exchange.host.clone(),
            path: exchange.path.clone(),
            status: exchange.status,
            begin_us: at(exchange.begin),
            response_us: exchange.response.map(at),
            end_us: exchange.end.map(at),
            bytes_received: exchange.received,
            bytes_sent: exchange.sent,
            is_reset: exchange.is_reset,
            packet: exchange.begin.packet,
            response_packet: exchange.response.map(|response| response.packet),
            end_packet: exchange.end.map(|end| end.packet),
        }
    }
}

#[cfg(test)]
mod tests;
