//! HTTP/3 connection without QUIC, for tests and for libFuzzer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use brisk_wire::h3::error::Code;
use brisk_wire::h3::frame::{FrameHead, kind};
use brisk_wire::h3::qpack;
use brisk_wire::h3::varint;
use bytes::{Buf as _, Bytes};

use super::transport::{Direction, Read, Transport, Write};
use super::{Closing, Http3};
use crate::driver::Http;
use crate::testing;

/// Client without QUIC: streams that were sent, and the output of the server.
#[derive(Default)]
pub(super) struct Client {
    sent: BTreeMap<u64, Sent>,
    /// Streams that the server has not accepted, and the ID of the next stream, by direction.
    opened: [VecDeque<u64>; 2],
    next: [u64; 2],
    pub(super) received: BTreeMap<u64, Received>,
    /// Bytes that the server may still write: on each stream, and on the connection. `None`: no limit.
    pub(super) window: Option<usize>,
    pub(super) connection_window: Option<usize>,
    /// Maximum number of bytes of a write, and the streams of all writes.
    pub(super) per_write: Option<usize>,
    pub(super) writes: Vec<u64>,
    /// Number of unidirectional streams that the server has opened.
    servers: u64,
    /// Maximum length of a piece that is read.
    pub(super) piece: usize,
}

/// Stream of the client.
#[derive(Default)]
struct Sent {
    bytes: Vec<u8>,
    end: Option<Read>,
    stopped: Option<Code>,
}

/// Output of the server on a stream.
#[derive(Default)]
pub(super) struct Received {
    pub(super) bytes: Vec<u8>,
    /// Output that is not acknowledged.
    held: Vec<Bytes>,
    pub(super) is_finished: bool,
    pub(super) reset: Option<Code>,
    /// The server's request to send no more.
    pub(super) stop: Option<Code>,
    pub(super) priority: i32,
    /// Whether the client has stopped the stream, and whether a write was refused.
    is_stopped: bool,
    is_blocked: bool,
}

impl Client {
    /// Number of bytes on a stream that the server has not read.
    #[cfg(test)]
    pub(super) fn unread(&self, stream: u64) -> usize {
        self.sent.get(&stream).map_or(0, |sent| sent.bytes.len())
    }

    /// Opens a stream, and all streams before it (RFC 9000 section 2.1).
    fn open_up_to(&mut self, stream: u64) {
        let direction = usize::from(stream & 2 != 0);
        while self.next[direction] <= stream / 4 {
            let id = 4 * self.next[direction] + (stream & 2);
            self.next[direction] += 1;
            self.sent.insert(id, Sent::default());
            self.opened[direction].push_back(id);
        }
    }
}

impl Transport for Client {
    fn accept(&mut self, direction: Direction) -> Option<u64> {
        self.opened[usize::from(direction == Direction::Uni)].pop_front()
    }

    fn open(&mut self) -> Option<u64> {
        self.servers += 1;
        Some(4 * self.servers - 1)
    }

    fn read(&mut self, stream: u64, mut take: impl FnMut(&[u8]) -> bool) -> Read {
        let piece = self.piece.clamp(1, 16 << 10);
        let Some(sent) = self.sent.get_mut(&stream).filter(|sent| sent.stopped.is_none()) else {
            return Read::Closed;
        };
        if sent.end == Some(Read::Reset) {
            self.sent.remove(&stream);
            return Read::Reset;
        }
        while !sent.bytes.is_empty() {
            let length = piece.min(sent.bytes.len());
            let taken: Vec<u8> = sent.bytes.drain(..length).collect();
            if !take(&taken) {
                return Read::Enough;
            }
        }
        if sent.end.is_none() {
            return Read::Blocked;
        }
        self.sent.remove(&stream);
        Read::End
    }

    fn write(&mut self, stream: u64, chunks: &mut [Bytes]) -> Write {
        let received = self.received.entry(stream).or_default();
        assert!(!received.is_finished && received.reset.is_none(), "a write after the end of {stream}");
        if received.is_stopped {
            return Write::Stopped;
        }
        let window = self.window.map_or(usize::MAX, |window| window.saturating_sub(received.bytes.len()));
        let mut allowed = window.min(self.connection_window.unwrap_or(usize::MAX));
        if allowed == 0 {
            received.is_blocked = true;
            return Write::Blocked;
        }
        self.writes.push(stream);
        allowed = allowed.min(self.per_write.unwrap_or(usize::MAX));
        let mut written = 0;
        for chunk in chunks {
            let length = chunk.remaining().min(allowed);
            let accepted = chunk.split_to(length);
            received.bytes.extend_from_slice(&accepted);
            received.held.push(accepted);
            (written, allowed) = (written + length, allowed - length);
        }
        if let Some(window) = &mut self.connection_window {
            *window -= written;
        }
        Write::Written(written)
    }

    fn finish(&mut self, stream: u64) {
        self.received.entry(stream).or_default().is_finished = true;
    }

    fn reset(&mut self, stream: u64, code: Code) {
        self.received.entry(stream).or_default().reset = Some(code);
    }

    fn stop(&mut self, stream: u64, code: Code) {
        if let Some(sent) = self.sent.get_mut(&stream) {
            sent.stopped = Some(code);
            self.received.entry(stream).or_default().stop = Some(code);
        }
    }

    fn set_priority(&mut self, stream: u64, priority: i32) {
        self.received.entry(stream).or_default().priority = priority;
    }

    fn round_trip(&self) -> Duration {
        Duration::ZERO
    }

    fn bytes(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// Connection of a [`Client`].
pub(super) struct Bench {
    pub(super) client: Client,
    pub(super) http3: Http3,
    pub(super) closing: Option<Closing>,
    task: Arc<Task>,
}

/// Task of the connection.
#[derive(Default)]
struct Task {
    is_woken: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Relaxed);
    }
}

/// Frame of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) kind: u64,
    pub(super) payload: Vec<u8>,
}

impl Bench {
    /// Creates a connection without any stream of the client.
    pub(super) fn new() -> Self {
        Self::of(testing::http())
    }

    /// Creates a connection with these inputs.
    pub(super) fn of(http: Http) -> Self {
        let client = Client { piece: usize::MAX, ..Client::default() };
        Self { client, http3: Http3::new(http), closing: None, task: Arc::default() }
    }

    /// Sends bytes on a stream, opened if necessary.
    pub(super) fn send(&mut self, stream: u64, bytes: &[u8]) {
        self.client.open_up_to(stream);
        if let Some(sent) = self.client.sent.get_mut(&stream) {
            sent.bytes.extend_from_slice(bytes);
            self.http3.readable(stream);
        }
    }

    /// Ends or resets a stream of the client.
    pub(super) fn end(&mut self, stream: u64, end: Read) {
        self.send(stream, b"");
        if let Some(sent) = self.client.sent.get_mut(&stream) {
            sent.end = Some(end);
        }
    }

    /// Stops a stream of the server.
    pub(super) fn stop(&mut self, stream: u64) {
        self.stop_silently(stream);
        self.http3.stopped(stream);
    }

    /// Stops a stream of the server without an event.
    pub(super) fn stop_silently(&mut self, stream: u64) {
        self.client.received.entry(stream).or_default().is_stopped = true;
    }

    /// Runs a turn. Nothing happens after the end of the connection.
    pub(super) fn turn(&mut self) {
        let waker = Waker::from(Arc::clone(&self.task));
        let mut context = Context::from_waker(&waker);
        if self.closing.is_none()
            && let Poll::Ready(closing) = self.http3.poll(&mut self.client, &mut context)
        {
            self.closing = Some(closing);
        }
    }

    /// Complete frames of the server on a stream.
    pub(super) fn frames(&self, stream: u64) -> Vec<Written> {
        let Some(received) = self.client.received.get(&stream) else { return Vec::new() };
        // RFC 9000 section 2.1: a unidirectional stream of the server begins with its type.
        match varint::split(&received.bytes).filter(|_| stream & 3 == 3) {
            Some((_, frames)) => complete_frames(frames),
            None => complete_frames(&received.bytes),
        }
    }
}

#[cfg(test)]
impl Bench {
    /// Sends a whole stream.
    pub(super) fn send_all(&mut self, stream: u64, bytes: &[u8]) {
        self.send(stream, bytes);
        self.end(stream, Read::End);
    }

    /// Sends the client's control stream with these settings.
    pub(super) fn settings(&mut self, payload: &[u8]) {
        self.send(2, &[&[0][..], &frame(kind::SETTINGS, payload)].concat());
    }

    /// Lets the server write again on blocked streams.
    pub(super) fn unblock(&mut self) {
        for (stream, received) in &mut self.client.received {
            if std::mem::take(&mut received.is_blocked) {
                self.http3.writable(*stream);
            }
        }
    }

    /// Acknowledges all output.
    pub(super) fn acknowledge(&mut self) {
        for (stream, received) in &mut self.client.received {
            received.held.clear();
            if received.is_finished {
                self.http3.finished(*stream);
            }
        }
    }

    /// Whether the task was woken since the last call.
    pub(super) fn was_woken(&self) -> bool {
        self.task.is_woken.swap(false, Ordering::Relaxed)
    }

    /// Error of the connection, if it has ended with one.
    pub(super) fn failure(&self) -> Option<Code> {
        self.closing.map(|closing| closing.code)
    }
}

/// Frames without the last, if that is incomplete.
pub(super) fn complete_frames(bytes: &[u8]) -> Vec<Written> {
    let mut rest = bytes;
    let mut frames = Vec::new();
    while let Some((kind, after)) = varint::split(rest) {
        let Some((length, after)) = varint::split(after) else { break };
        let Some((payload, after)) = after.split_at_checked(length as usize) else { break };
        frames.push(Written { kind, payload: payload.to_vec() });
        rest = after;
    }
    frames
}

/// Frame with this payload.
pub(super) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    FrameHead { kind, length: payload.len() as u64 }.write(&mut out);
    out.extend_from_slice(payload);
    out
}

/// `HEADERS` with these fields.
pub(super) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    qpack::begin(&mut section);
    for (name, value) in fields {
        qpack::field(name.as_bytes(), value.as_bytes(), &mut section);
    }
    frame(kind::HEADERS, &section)
}

/// Streams of a client, each after its ID, its end and its length, in pieces of `piece` bytes: the responses do not depend on
/// the pieces, and at most the permitted number of requests is open.
pub(crate) fn compare(bytes: &[u8], piece: usize) {
    let run = |piece: usize| {
        let mut bench = Bench::new();
        bench.client.piece = piece;
        let mut rest = bytes;
        while let Some((&[stream, length], after)) = rest.split_first_chunk() {
            let (payload, after) = after.split_at(after.len().min(usize::from(length)));
            rest = after;
            let stream = u64::from(stream & 0x7f) / 2 * 2;
            bench.send(stream, payload);
            if length % 2 == 0 {
                bench.end(stream, Read::End);
            }
        }
        for _ in 0..3 {
            bench.turn();
            assert!(bench.http3.open_requests() <= 8);
        }
        bench
    };
    let (whole, pieces) = (run(usize::MAX), run(piece));
    assert_eq!(whole.closing, pieces.closing);
    if whole.closing.is_some() {
        return;
    }
    let outcome = |bench: &Bench| -> Vec<_> {
        let streams = bench.client.received.iter();
        // Without payloads: dates may differ.
        let kinds = |stream| bench.frames(stream).into_iter().map(|frame| frame.kind).collect::<Vec<_>>();
        streams.map(|(id, out)| (*id, kinds(*id), out.is_finished, out.reset)).collect()
    };
    assert_eq!(outcome(&whole), outcome(&pieces));
}
