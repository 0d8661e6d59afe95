//! HTTP/3 client that sends individual frames on the streams of a QUIC connection.

use std::net::SocketAddr;

use brisk_testkit::quic::{QuicClient, QuicConnection};
use brisk_wire::h3::qpack;
use quinn_proto::{ConnectionError, StreamId};

use crate::field_lines::FieldLines;
use crate::site::{NAME, Site};

/// Frame type `DATA` (RFC 9114 section 7.2).
pub const DATA: u8 = 0;
/// Frame type `HEADERS`.
pub const HEADERS: u8 = 1;

/// Site with HTTP/3, with `tables` after its host.
pub fn h3_site(keys: &str, tables: &str) -> Site {
    Site::custom(&format!("server.http3 = true\n{keys}"), tables, |setup| setup)
}

/// QUIC client that trusts the CA of a site.
pub fn client(site: &Site) -> QuicClient {
    QuicClient::new(&site.ca.root_file(), NAME, "h3")
}

/// Connects to `server`, which may be a relay, and sends the control stream with empty SETTINGS.
#[track_caller]
pub fn connect(client: &QuicClient, server: SocketAddr) -> QuicConnection {
    let mut connection = client.connect(server);
    connection.handshake().expect("a handshake");
    // RFC 9114 section 6.2.1: a control stream begins with SETTINGS, or the server closes the connection.
    connection.send_uni(&[0, 4, 0]);
    connection
}

/// Frame with a length of four bytes (RFC 9000 section 16), so with a payload of less than 1 GiB.
pub fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind], &(payload.len() as u32 | 0x8000_0000).to_be_bytes()[..], payload].concat()
}

/// Field section, without the dynamic table.
pub fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    qpack::begin(&mut section);
    for (name, value) in fields {
        qpack::field(name.as_bytes(), value.as_bytes(), &mut section);
    }
    section
}

/// HEADERS frame of a request for the first host, with further fields.
pub fn head(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    head_for(NAME, method, path, more)
}

/// HEADERS frame of a request, with further fields.
pub fn head_for(host: &str, method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "https"), (":authority", host), (":path", path)];
    frame(HEADERS, &section(&[&fields[..], more].concat()))
}

/// Message received on a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Fields of each HEADERS frame.
    pub sections: Vec<Vec<(String, String)>>,
    /// Contents of all DATA frames.
    pub body: Vec<u8>,
}

impl Received {
    /// Status of the last section that has one.
    pub fn status(&self) -> &str {
        let fields = self.sections.iter().flatten().rev();
        fields
            .filter(|(name, _)| name == ":status")
            .map(|(_, value)| value.as_str())
            .next()
            .unwrap_or_default()
    }

    /// Value of a field of the last section.
    pub fn field(&self, name: &str) -> Option<&str> {
        let (_, value) = self.sections.last()?.iter().find(|(own, _)| own == name)?;
        Some(value)
    }

    /// Reads complete frames.
    pub fn read(bytes: &[u8]) -> Self {
        let (mut received, mut rest) = (Self::default(), bytes);
        while let Some((kind, payload, after)) = read_frame(rest) {
            match kind {
                HEADERS => received.sections.push(fields(payload)),
                DATA => received.body.extend_from_slice(payload),
                _ => {}
            }
            rest = after;
        }
        received
    }
}

/// Waits for the whole response on a stream.
///
/// # Errors
///
/// The reason for which the connection was lost before.
pub fn response(connection: &mut QuicConnection, stream: StreamId) -> Result<Received, ConnectionError> {
    Ok(Received::read(&connection.response(stream)?))
}

/// Sends GET and waits for the response.
#[track_caller]
pub fn get(connection: &mut QuicConnection, path: &str) -> Received {
    let stream = connection.request(&head("GET", path, &[]));
    response(connection, stream).expect("a response")
}

/// First frame: type, payload, and the rest.
fn read_frame(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, rest) = bytes.split_first()?;
    // RFC 9000 section 16: the two highest bits are the logarithm of the length.
    let size = 1 << (rest.first()? >> 6);
    let number = rest.get(..size)?;
    let first = usize::from(number[0] & 0x3f);
    let length = number[1..].iter().fold(first, |length, byte| length << 8 | usize::from(*byte));
    let (payload, after) = rest[size..].split_at_checked(length)?;
    Some((kind, payload, after))
}

fn fields(section: &[u8]) -> Vec<(String, String)> {
    let mut lines = FieldLines::new(|index| qpack::CONSTANTS[index]);
    qpack::Decoder::default().decode(section, usize::MAX, usize::MAX, &mut lines).expect("fields");
    lines.into_text()
}
