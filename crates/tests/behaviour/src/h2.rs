//! HTTP/2 frames (RFC 9113) that tests write and read byte by byte, for exchanges that ordinary clients do not make.

use std::collections::HashSet;
use std::io::{Read, Write};

use crate::site::NAME;

/// Frame type `DATA`.
pub const DATA: u8 = 0;
/// Frame type `HEADERS`.
pub const HEADERS: u8 = 1;
/// Frame type `RST_STREAM`.
pub const RST_STREAM: u8 = 3;
/// Frame type `SETTINGS`.
pub const SETTINGS: u8 = 4;
/// Frame type `PING`.
pub const PING: u8 = 6;
/// Frame type `GOAWAY`.
pub const GOAWAY: u8 = 7;
/// Frame type `WINDOW_UPDATE`.
pub const WINDOW_UPDATE: u8 = 8;
/// Frame type `CONTINUATION`.
pub const CONTINUATION: u8 = 9;
/// Flag `ACK` of SETTINGS and PING.
pub const ACK: u8 = 1;
/// Flag `END_STREAM`.
pub const END_STREAM: u8 = 1;
/// Flag `END_HEADERS`.
pub const END_HEADERS: u8 = 4;

/// Connection preface of a client, with empty settings.
pub fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, &[])[..]].concat()
}

/// GET of `path`.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &head(0x82, path))
}

/// POST to `path` with a body of four bytes.
pub fn post(stream: u32, path: &str) -> Vec<u8> {
    [post_head(stream, path), frame(DATA, END_STREAM, stream, b"body")].concat()
}

/// Head of a POST to `path` whose body follows.
pub fn post_head(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &head(0x83, path))
}

/// POST of `body` to `path`, with additional headers.
pub fn post_with(stream: u32, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let head = [head(0x83, path), lines(headers)].concat();
    [frame(HEADERS, END_HEADERS, stream, &head), frame(DATA, END_STREAM, stream, body.as_bytes())].concat()
}

/// POST of `body` to `path`, with additional headers and with trailers.
pub fn post_with_trailers(
    stream: u32,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
    trailers: &[(&str, &str)],
) -> Vec<u8> {
    let head = [head(0x83, path), lines(headers)].concat();
    [
        frame(HEADERS, END_HEADERS, stream, &head),
        frame(DATA, 0, stream, body.as_bytes()),
        frame(HEADERS, END_HEADERS | END_STREAM, stream, &lines(trailers)),
    ]
    .concat()
}

/// Extended CONNECT (RFC 8441) of a WebSocket at `path`, with additional headers.
pub fn connect_with(stream: u32, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", path),
        (":authority", NAME),
        ("sec-websocket-version", "13"),
    ];
    frame(HEADERS, END_HEADERS, stream, &[lines(&pseudo), lines(headers)].concat())
}

/// GET of `path` with additional headers.
pub fn get_with(stream: u32, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let head = [head(0x82, path), lines(headers)].concat();
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &head)
}

/// Headers as literals without indexing (RFC 7541 section 6.2.2).
pub fn lines(headers: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [length(text.len()), text.as_bytes().to_vec()].concat();
    // Without indexing, blocks are independent of each other, and tests can send them in any order.
    let line = |(name, value): &(&str, &str)| [vec![0], text(name), text(value)].concat();
    headers.iter().flat_map(line).collect()
}

/// Length of a text without Huffman coding, below 16,511 (RFC 7541 section 5.1).
fn length(length: usize) -> Vec<u8> {
    match length.checked_sub(127) {
        None => vec![length as u8],
        Some(rest @ ..128) => vec![127, rest as u8],
        Some(rest) => vec![127, rest as u8 & 0x7f | 0x80, (rest >> 7) as u8],
    }
}

/// Header block (RFC 7541): `:method` by its index in the static table, `https`, then path and authority as literals.
fn head(method: u8, path: &str) -> Vec<u8> {
    // The length has one byte: paths and names of tests are shorter than 127 bytes (RFC 7541 section 5.1).
    let literal = |index: u8, text: &str| [&[index, text.len() as u8], text.as_bytes()].concat();
    [&[method, 0x87][..], &literal(4, path), &literal(1, NAME)].concat()
}

/// Frame of any type.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Frames received from a server.
#[derive(Debug, Default)]
pub struct Frames {
    data: Vec<(u32, Vec<u8>)>,
    ended: HashSet<u32>,
}

impl Frames {
    /// Sends `request` and reads up to the end of `stream`.
    #[track_caller]
    pub fn exchange(connection: &mut (impl Read + Write), request: &[u8], stream: u32) -> Self {
        connection.write_all(request).expect("a server that reads");
        let mut frames = Self::default();
        frames.read_until_end(connection, stream);
        frames
    }

    /// Reads up to the end of the response on `stream`.
    #[track_caller]
    pub fn read_until_end(&mut self, from: &mut impl Read, stream: u32) {
        while !self.has_ended(stream) {
            let mut header = [0; 9];
            from.read_exact(&mut header).expect("a frame");
            let [a, b, c, kind, flags, s0, s1, s2, s3] = header;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            from.read_exact(&mut payload).expect("a whole frame");
            let number = u32::from_be_bytes([s0, s1, s2, s3]);
            if kind == DATA {
                self.data.push((number, payload));
            }
            if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                self.ended.insert(number);
            }
        }
    }

    /// Whether the response on `stream` is complete.
    pub fn has_ended(&self, stream: u32) -> bool {
        self.ended.contains(&stream)
    }

    /// Body received so far on `stream`.
    pub fn body(&self, stream: u32) -> String {
        let pieces = self.data.iter().filter(|(number, _)| *number == stream);
        let bytes: Vec<u8> = pieces.flat_map(|(_, payload)| payload).copied().collect();
        String::from_utf8(bytes).expect("text")
    }
}
