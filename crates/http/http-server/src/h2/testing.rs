//! HTTP/2 connection without TLS and socket, for tests and for libFuzzer.

use std::io;
use std::task::{Context, Poll, Waker, ready};

#[cfg(test)]
use brisk_http_connection::Connection;
use brisk_net::TurnLimit;
use brisk_wire::h2::frame::{FrameHead, HEAD, PREFACE, WriteFrames, kind};

use super::output::Sink;
use super::state::H2;
use crate::driver::Http;
use crate::testing;
#[cfg(test)]
pub(super) use crate::testing::BIG;

/// Server without a socket.
pub(super) struct Bench(Http);

/// Frame written by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) head: FrameHead,
    pub(super) payload: Vec<u8>,
}

impl Bench {
    /// Creates a host `a`, which responds to `/` with `hello` and to `/big` with [`BIG`] bytes.
    pub(super) fn new() -> Self {
        Self::of(testing::http())
    }

    /// Creates a server with the inputs of a connection.
    pub(super) fn of(http: Http) -> Self {
        http.surround();
        http.connection.multiplex();
        Self(http)
    }

    /// Connection state shared with the requests.
    #[cfg(test)]
    pub(super) fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// Creates a connection that has read the preface and `settings`.
    pub(super) fn connect(&self, settings: &[u8]) -> H2<'_> {
        let mut h2 = H2::new(&self.0);
        let mut bytes = PREFACE.to_vec();
        bytes.frame(kind::SETTINGS, 0, 0, settings);
        h2.feed(&bytes);
        h2
    }
}

impl H2<'_> {
    /// Processes all of `bytes`, in as many turns as necessary.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let processed = self.feed_within(bytes, &mut TurnLimit::default());
            bytes = &bytes[processed..];
        }
    }
}

/// Feeds `bytes` at once and in pieces of `length`, and compares the output.
pub(crate) fn compare(bytes: &[u8], length: usize) {
    let (one, other) = (Bench::new(), Bench::new());
    let (mut whole, mut pieces) = (one.connect(&[]), other.connect(&[]));
    whole.feed(bytes);
    bytes.chunks(length.max(1)).for_each(|piece| pieces.feed(piece));
    assert_eq!((&whole.send.out, whole.failure), (&pieces.send.out, pieces.failure));
    for _ in 0..2 {
        let frames = whole.answer();
        assert!(frames.iter().all(|frame| frame.payload.len() <= 16_384));
        // Without payloads: dates may differ.
        let kinds = |frames: &[Written]| -> Vec<_> {
            frames.iter().map(|frame| (frame.head.kind, frame.head.stream)).collect()
        };
        assert_eq!(kinds(&frames), kinds(&pieces.answer()));
        assert!(whole.numbers.len() <= one.0.settings.h2_streams as usize);
    }
}

impl H2<'_> {
    /// Runs the connection and returns the frames it wrote.
    pub(super) fn answer(&mut self) -> Vec<Written> {
        self.answer_up_to(usize::MAX)
    }

    /// Runs the connection for a client that reads at most `most` bytes, and returns the frames it read, which have to be
    /// complete.
    pub(super) fn answer_up_to(&mut self, most: usize) -> Vec<Written> {
        written(&self.write_up_to(most))
    }

    /// Runs the connection for a client that reads at most `most` bytes, and returns the bytes it read.
    pub(super) fn write_up_to(&mut self, most: usize) -> Vec<u8> {
        let context = Context::from_waker(Waker::noop());
        self.notices.begin_turn(&context);
        self.run();
        self.look_at_bodies();
        let mut memory = Memory { taken: Vec::new(), most };
        self.write(&mut memory).expect("no error");
        self.notices.end_turn();
        memory.taken
    }

    /// Connection error, if one occurred.
    #[cfg(test)]
    pub(super) fn failure(&self) -> Option<brisk_wire::h2::frame::Reason> {
        self.failure
    }

    /// Number of open streams.
    #[cfg(test)]
    pub(super) fn open_streams(&self) -> usize {
        self.numbers.len()
    }
}

/// Memory that accepts a limited number of bytes.
struct Memory {
    taken: Vec<u8>,
    most: usize,
}

impl Sink for &mut Memory {
    fn poll_room(&mut self) -> Poll<io::Result<usize>> {
        let room = self.most - self.taken.len();
        if room > 0 { Poll::Ready(Ok(room)) } else { Poll::Pending }
    }

    fn poll_write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let room = ready!(self.poll_room())?;
        let length = bytes.len().min(room);
        self.taken.extend_from_slice(&bytes[..length]);
        Poll::Ready(Ok(length))
    }
}

/// Parses `bytes` into complete frames.
fn written(mut bytes: &[u8]) -> Vec<Written> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
        let head = FrameHead::read(head);
        let (payload, rest) = rest.split_at_checked(head.length as usize).expect("a whole frame");
        frames.push(Written { head, payload: payload.to_vec() });
        bytes = rest;
    }
    assert!(bytes.is_empty(), "a part of a head: {bytes:?}");
    frames
}
