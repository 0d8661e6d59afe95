//! HTTP/2 client that sends individual frames, for exchanges that ordinary clients do not make.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use brisk_testkit::client::TlsStream;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{TIMEOUT, wait_until};

use crate::h2::{GOAWAY, HEADERS, RST_STREAM, WINDOW_UPDATE, frame, get, preface};
use crate::site::{Site, connect_from};

/// HTTP/2 client that writes frames and reads those of the server at the same time.
pub struct Client {
    connection: TlsStream,
    received: Vec<u8>,
    /// Frames that arrived after an awaited frame.
    later: Vec<Received>,
    /// Whether nothing more can be sent, although frames of the server may be unread.
    closed: bool,
    /// Whether nothing more can be read.
    ended: bool,
}

/// Frame from the server.
#[derive(Clone, Debug)]
pub struct Received {
    /// Frame type.
    pub kind: u8,
    /// Flags.
    pub flags: u8,
    /// Stream number.
    pub stream: u32,
    /// Payload.
    pub payload: Vec<u8>,
}

impl Client {
    /// Connects to `site` and sends the preface.
    pub fn connect(site: &Site) -> Self {
        Self::over(site, TcpStream::connect(site.brisk.https()).expect("a listener"))
    }

    /// Like [`Self::connect`], as the client at the address `source`.
    pub fn connect_from(site: &Site, source: Ipv4Addr) -> Self {
        Self::over(site, connect_from(source, site.brisk.https()))
    }

    fn over(site: &Site, tcp: TcpStream) -> Self {
        let mut connection = site.client().alpn(&["h2"]).over(tcp).expect("a handshake");
        connection.write_all(&preface()).expect("a server that reads");
        Self { connection, received: Vec::new(), later: Vec::new(), closed: false, ended: false }
    }

    /// Sends frames. A failure marks the connection as closed.
    pub fn send(&mut self, frames: &[u8]) {
        self.closed |= self.connection.write_all(frames).is_err();
    }

    /// Opens the connection's window by another 64 KiB.
    pub fn open_window(&mut self) {
        self.send(&frame(WINDOW_UPDATE, 0, 0, &65_535_u32.to_be_bytes()));
    }

    /// Returns the frames received within `time`.
    pub fn frames(&mut self, time: Duration) -> Vec<Received> {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.connection.tcp().set_read_timeout(Some(left)).expect("a socket");
            let mut buffer = [0; 16384];
            match self.connection.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                // The kind of a timeout depends on the system.
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(_) => self.ended = true,
            }
            if self.ended {
                self.closed = true;
                break;
            }
        }
        let mut frames = std::mem::take(&mut self.later);
        while let Some(frame) = take_frame(&mut self.received) {
            frames.push(frame);
        }
        frames
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Puts frames back: the next call of [`Self::frames`] returns them again.
    pub fn put_back(&mut self, frames: Vec<Received>) {
        self.later = frames;
    }

    /// Waits for a frame that fulfils `wanted`.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&Received) -> bool) -> Received {
        let until = Instant::now() + TIMEOUT;
        let mut seen = Vec::new();
        // Frames before the end of the connection still count.
        while Instant::now() < until && !(self.ended && self.later.is_empty()) {
            let mut frames = self.frames(Duration::from_millis(5)).into_iter();
            while let Some(frame) = frames.next() {
                if wanted(&frame) {
                    self.later = frames.collect();
                    return frame;
                }
                seen.push((frame.kind, frame.stream, frame.payload.len()));
            }
        }
        panic!("no {what}; closed: {}; frames: {seen:?}", self.closed)
    }

    /// Waits for the head of the response on `stream`, and returns its status.
    #[track_caller]
    pub fn status(&mut self, stream: u32) -> u16 {
        let head = self.wait_for("head", |frame| frame.kind == HEADERS && frame.stream == stream);
        match head.payload[..] {
            // RFC 7541 appendix A: `:status` in the static table.
            [0x88, ..] => 200,
            [0x8c, ..] => 400,
            [0x8d, ..] => 404,
            [0x8e, ..] => 500,
            [0x48, 3, a, b, c, ..] => {
                [a, b, c].iter().fold(0, |status, digit| 10 * status + u16::from(digit - b'0'))
            }
            [0x48, _, ref code @ ..] => digits(code),
            ref other => panic!("a status that this client cannot read: {other:?}"),
        }
    }

    /// Repeats `round` until the server sends GOAWAY. Returns its error code.
    #[track_caller]
    pub fn until_goaway(&mut self, rounds: usize, mut round: impl FnMut(&mut Self, usize)) -> u32 {
        for number in 0..rounds {
            round(self, number);
            // Read in each round: otherwise the responses fill the socket, and the server stops reading.
            let frames = self.frames(Duration::from_millis(1));
            if let Some(goaway) = frames.iter().find(|frame| frame.kind == GOAWAY) {
                return error_code(goaway);
            }
            if self.closed {
                break;
            }
        }
        // A server on a busy machine may be some rounds behind, and its frames unread when it has closed the connection.
        let goaway = self.wait_for("GOAWAY", |frame| frame.kind == GOAWAY);
        error_code(&goaway)
    }
}

/// Error code of a GOAWAY frame.
fn error_code(goaway: &Received) -> u32 {
    u32::from_be_bytes(goaway.payload[4..8].try_into().expect("four bytes"))
}

/// Decodes three digits in Huffman code (RFC 7541 appendix B): five bits each for 0 to 2, six for the others.
fn digits(code: &[u8]) -> u16 {
    let mut bits = code.iter().flat_map(|byte| (0..8).rev().map(move |bit| u16::from(byte >> bit & 1)));
    let mut next = |count: usize| bits.by_ref().take(count).fold(0, |value, bit| 2 * value + bit);
    (0..3).fold(0, |status, _| {
        let five = next(5);
        10 * status + if five < 3 { five } else { 2 * five + next(1) - 22 }
    })
}

fn take_frame(bytes: &mut Vec<u8>) -> Option<Received> {
    let [a, b, c, kind, flags, s0, s1, s2, s3, ..] = bytes[..] else { return None };
    let end = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
    let payload = bytes.get(9..end)?.to_vec();
    bytes.drain(..end);
    Some(Received { kind, flags, stream: u32::from_be_bytes([s0, s1, s2, s3]), payload })
}

/// Sends and cancels this number of requests, in tens on one connection, each after it has reached the upstream, where
/// `reached` requests have arrived.
pub fn cancel_many(site: &Site, requests: u32, reached: impl Fn() -> usize) {
    let mut client = Client::connect(site);
    for first in (0..requests).step_by(10) {
        let before = reached();
        let streams: Vec<u32> = (first..first + 10).map(|number| 2 * number + 1).collect();
        client.send(&streams.iter().flat_map(|stream| get(*stream, "/")).collect::<Vec<_>>());
        // A reset before that would show nothing: the request might never be forwarded.
        wait_until("requests at the upstream", || (reached() >= before + streams.len()).then_some(()));
        // `CANCEL` (RFC 9113 section 7).
        let reset = |stream: &u32| frame(RST_STREAM, 0, *stream, &8_u32.to_be_bytes());
        client.send(&streams.iter().flat_map(reset).collect::<Vec<_>>());
    }
    assert!(!client.is_closed(), "the budget of the client suffices");
}

/// Upstream that never responds.
pub fn silent() -> Origin {
    Origin::raw(|mut stream| io::copy(&mut stream, &mut io::sink()).map(drop))
}
