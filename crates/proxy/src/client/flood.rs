//! What a client may do on an HTTP/2 connection that costs the server work and gets the client nothing: a budget.
//!
//! Streams that are reset (CVE-2023-44487), or that the client makes the server reset (CVE-2025-8671), and control
//! frames (CVE-2019-9512 and its relatives) cost points. Answers, data and time earn them back. brisk's own server counts
//! frames as it reads and writes them. Under hyper, which counts only some of it, and for the whole life of a connection,
//! they are counted where they pass, in plaintext.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use brisk_telemetry::metrics::Flood;
use hyper::rt::{Read, ReadBufCursor, Write};

use super::frames::{self, Frame, Frames};
use super::io::HttpIo;
use crate::connection::streams::RESET;

/// RFC 9113 section 3.4.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// RFC 9113 section 7.
const ENHANCE_YOUR_CALM: u32 = 0xb;

/// Points that a KiB of header fields costs beyond what its block explains. No browser has a reason for one: the tables
/// of HPACK and short names explain 8 KiB of each head, which are free.
const HEAD_KIB: u32 = RESET;
/// Points that a second earns.
const SECOND: u32 = RESET;
/// Points that a frame of the answer earns: the client owes updates of two windows for it, and may measure the path by
/// a PING.
const ANSWER_DATA: u32 = 3;
/// A smaller frame earns nothing: a client could ask for one with each byte of its window (CVE-2019-9511).
const DATA_WORTH: u32 = 256;

/// Counts the frames of one connection. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct FloodWatch(Rc<RefCell<Counts>>);

#[derive(Debug)]
struct Counts {
    received: Frames,
    sent: Frames,
    tally: Tally,
}

/// What the frames so far come to.
#[derive(Debug)]
struct Tally {
    budget: Budget,
    /// PING frames of ours that were not acknowledged yet.
    pings: u32,
    last_stream: u32,
    /// Bytes of header blocks received.
    blocks: u64,
    /// KiB of long heads that were charged.
    heads_charged: u64,
}

/// Points left.
#[derive(Debug)]
struct Budget {
    full: u32,
    left: u32,
    earned_until: Instant,
    spent: [u64; Flood::ALL.len()],
    exhausted: bool,
}

impl FloodWatch {
    /// A watch with a budget for `resets` streams that are reset at once.
    pub(super) fn new(resets: usize) -> Self {
        let full = u32::try_from(resets).unwrap_or(u32::MAX).saturating_mul(RESET);
        Self(Rc::new(RefCell::new(Counts {
            received: Frames::after(PREFACE),
            sent: Frames::default(),
            tally: Tally {
                budget: Budget::new(full, Instant::now()),
                pings: 0,
                last_stream: 0,
                blocks: 0,
                heads_charged: 0,
            },
        })))
    }

    /// Gives back `points`, at most to the full budget.
    pub(super) fn earn(&self, points: u32) {
        self.0.borrow_mut().tally.budget.earn(points);
    }

    /// Charges for header fields that are far longer than the blocks that stood for them: HPACK lets a client repeat a
    /// field of 4 KiB with one byte. `long` is the size of all long heads so far (see [`Connection::long_heads`]).
    ///
    /// [`Connection::long_heads`]: crate::Connection::long_heads
    pub(super) fn heads(&self, long: u64) {
        if long == 0 {
            return;
        }
        let Tally { budget, blocks, heads_charged, .. } = &mut self.0.borrow_mut().tally;
        // Huffman coding makes a field 5/8 as long at best.
        let excess = long.saturating_sub(2 * *blocks) / 1024;
        if let Some(due @ 1..) = excess.checked_sub(*heads_charged) {
            *heads_charged = excess;
            let due = u32::try_from(due).unwrap_or(u32::MAX);
            budget.spend(Flood::HeaderSize, due.saturating_mul(HEAD_KIB));
        }
    }

    /// What has used up the budget, once it is used up.
    pub(super) fn exhausted_by(&self) -> Option<Flood> {
        let budget = &self.0.borrow().tally.budget;
        budget.exhausted.then(|| budget.most_spent())
    }

    /// The last frame of the connection, if one may be written: the last one that was sent is complete.
    pub(super) fn goaway(&self) -> Option<[u8; 17]> {
        let counts = self.0.borrow();
        if !counts.sent.at_boundary() {
            return None;
        }
        let mut frame = [0; 17];
        (frame[2], frame[3]) = (8, 7);
        frame[9..13].copy_from_slice(&counts.tally.last_stream.to_be_bytes());
        frame[13..].copy_from_slice(&ENHANCE_YOUR_CALM.to_be_bytes());
        Some(frame)
    }

    /// Counts a frame of the client.
    pub(super) fn frame_received(&self, frame: Frame) {
        self.0.borrow_mut().tally.received(frame);
    }

    /// Counts a frame that the client is sent.
    pub(super) fn frame_sent(&self, frame: Frame) {
        self.0.borrow_mut().tally.sent(frame);
    }

    /// Charges for a header block that was decoded and ignored.
    pub(super) fn ignored(&self) {
        self.0.borrow_mut().tally.budget.spend(Flood::OtherFrame, 1);
    }

    fn received(&self, bytes: &[u8]) {
        let Counts { received, tally, .. } = &mut *self.0.borrow_mut();
        received.feed(bytes, |frame| tally.received(frame));
    }

    fn sent(&self, bytes: &[u8]) {
        let Counts { sent, tally, .. } = &mut *self.0.borrow_mut();
        sent.feed(bytes, |frame| tally.sent(frame));
    }
}

impl Tally {
    fn received(&mut self, frame: Frame) {
        if matches!(frame.kind, frames::HEADERS | frames::CONTINUATION) {
            self.last_stream = frame.stream.max(self.last_stream);
            self.blocks += u64::from(frame.length);
        }
        let is_ack = frame.kind == frames::PING && frame.has_flag();
        if is_ack && self.pings > 0 {
            self.pings -= 1;
        } else if let Some((reason, points)) = price(frame) {
            self.budget.spend(reason, points);
        }
    }

    fn sent(&mut self, frame: Frame) {
        match frame.kind {
            frames::DATA if frame.length >= DATA_WORTH => self.budget.earn(ANSWER_DATA),
            frames::PING if !frame.has_flag() => self.pings += 1,
            frames::RST_STREAM if is_clients_error(frame.code) => {
                self.budget.spend(Flood::StreamError, RESET);
            }
            _ => {}
        }
    }
}

/// What a frame of the client counts as, and its price in points; `None` where it is free.
fn price(frame: Frame) -> Option<(Flood, u32)> {
    match frame.kind {
        frames::DATA if frame.length == 0 && !frame.has_flag() => Some((Flood::EmptyData, 1)),
        frames::DATA | frames::HEADERS | frames::CONTINUATION => None,
        frames::PRIORITY => Some((Flood::Priority, 1)),
        frames::RST_STREAM => Some((Flood::Reset, RESET)),
        frames::SETTINGS if frame.has_flag() => None,
        // A client has a reason to send one or two, and each has to be answered.
        frames::SETTINGS => Some((Flood::Settings, RESET)),
        frames::PING if frame.has_flag() => Some((Flood::PingAck, RESET)),
        frames::PING => Some((Flood::Ping, 1)),
        frames::WINDOW_UPDATE => Some((Flood::WindowUpdate, 1)),
        _ => Some((Flood::OtherFrame, 1)),
    }
}

/// Whether a stream that ends with this error code was reset for what the client did on it: `PROTOCOL_ERROR`,
/// `FLOW_CONTROL_ERROR`, `STREAM_CLOSED`, `FRAME_SIZE_ERROR`, `REFUSED_STREAM`.
fn is_clients_error(code: u32) -> bool {
    matches!(code, 1 | 3 | 5 | 6 | 7)
}

impl Budget {
    fn new(full: u32, now: Instant) -> Self {
        Self { full, left: full, earned_until: now, spent: [0; _], exhausted: false }
    }

    fn earn(&mut self, points: u32) {
        self.left = self.left.saturating_add(points).min(self.full);
    }

    fn spend(&mut self, reason: Flood, points: u32) {
        self.spent[reason as usize] += u64::from(points);
        if self.left < points {
            self.earn_by_time(Instant::now());
        }
        match self.left.checked_sub(points) {
            Some(left) => self.left = left,
            None => self.exhausted = true,
        }
    }

    /// Looked at only when points are short, so that no frame costs a look at the clock.
    fn earn_by_time(&mut self, now: Instant) {
        let seconds = now.duration_since(self.earned_until).as_secs();
        if seconds > 0 {
            self.earned_until = now;
            self.earn(u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(SECOND));
        }
    }

    fn most_spent(&self) -> Flood {
        let most = Flood::ALL.iter().max_by_key(|reason| self.spent[**reason as usize]);
        most.copied().unwrap_or(Flood::Reset)
    }
}

/// The IO of hyper: the connection, with its frames counted.
pub(super) struct WatchedIo {
    io: HttpIo,
    watch: FloodWatch,
}

impl WatchedIo {
    pub(super) fn new(io: HttpIo, watch: FloodWatch) -> Self {
        Self { io, watch }
    }
}

impl Read for WatchedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // The connection is about to end: no further frame is worth the work.
        if self.watch.0.borrow().tally.budget.exhausted {
            return Poll::Pending;
        }
        let Self { io, watch } = &mut *self;
        io.poll_read_noting(cx, buf, |bytes| watch.received(bytes))
    }
}

impl Write for WatchedIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        if let Poll::Ready(Ok(length)) = written {
            self.watch.sent(&buf[..length]);
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(mut length)) = written {
            for buf in bufs {
                let taken = length.min(buf.len());
                self.watch.sent(&buf[..taken]);
                length -= taken;
            }
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::connection::streams::ANSWER;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    fn watch(resets: usize) -> FloodWatch {
        let watch = FloodWatch::new(resets);
        watch.received(&[b'p'; PREFACE]);
        watch
    }

    #[test]
    fn resets_beyond_the_budget_exhaust_it() {
        let watch = watch(3);
        for _ in 0..3 {
            watch.received(&frame(frames::RST_STREAM, 0, 1, &[0, 0, 0, 8]));
        }
        assert_eq!(watch.exhausted_by(), None);
        watch.received(&frame(frames::RST_STREAM, 0, 1, &[0, 0, 0, 8]));
        assert_eq!(watch.exhausted_by(), Some(Flood::Reset));
    }

    #[test]
    fn two_answers_earn_a_reset() {
        let watch = watch(1);
        for _ in 0..100 {
            watch.received(&frame(frames::RST_STREAM, 0, 1, &[0, 0, 0, 8]));
            watch.earn(ANSWER);
            watch.earn(ANSWER);
        }
        assert_eq!(watch.exhausted_by(), None);
    }

    #[test]
    fn resets_that_the_client_provokes_count_and_our_own_do_not() {
        let watch = watch(3);
        for _ in 0..100 {
            watch.sent(&frame(frames::RST_STREAM, 0, 1, &[0, 0, 0, 2]));
        }
        assert_eq!(watch.exhausted_by(), None);
        for _ in 0..4 {
            watch.sent(&frame(frames::RST_STREAM, 0, 1, &[0, 0, 0, 1]));
        }
        assert_eq!(watch.exhausted_by(), Some(Flood::StreamError));
    }

    #[test]
    fn an_acknowledgement_is_free_where_a_ping_was_sent() {
        let watch = watch(1);
        let ping = frame(frames::PING, 0, 0, &[0; 8]);
        let ack = frame(frames::PING, frames::FLAG, 0, &[0; 8]);
        for _ in 0..10 {
            watch.sent(&ping);
            watch.received(&ack);
        }
        watch.received(&ack);
        assert_eq!(watch.exhausted_by(), None);
        watch.received(&ack);
        assert_eq!(watch.exhausted_by(), Some(Flood::PingAck));
    }

    #[test]
    fn window_updates_are_paid_for_by_data() {
        let watch = watch(1);
        let data = frame(frames::DATA, 0, 1, &[0; 255]);
        let whole = [&[0, 1, 0, frames::DATA, 0, 0, 0, 0, 1][..], &[0; 256]].concat();
        let update = frame(frames::WINDOW_UPDATE, 0, 1, &[0, 0, 1, 0]);
        for _ in 0..100 {
            watch.sent(&whole);
            watch.received(&[&update[..], &update].concat());
        }
        assert_eq!(watch.exhausted_by(), None);
        for _ in 0..11 {
            watch.sent(&data);
            watch.received(&update);
        }
        assert_eq!(watch.exhausted_by(), Some(Flood::WindowUpdate));
    }

    #[test]
    fn heads_cost_what_they_are_longer_than_their_blocks() {
        let watch = watch(1);
        let mut long = 0;
        for _ in 0..100 {
            let block = [&[0, 0x20, 0, frames::HEADERS, 5, 0, 0, 0, 1][..], &[0; 0x2000]].concat();
            watch.received(&block);
            long += 0x3000;
            watch.heads(long);
        }
        assert_eq!(watch.exhausted_by(), None);
        watch.heads(long + 100 * 0x1000 + 1024);
        assert_eq!(watch.exhausted_by(), None);
        watch.heads(long + 100 * 0x1000 + 2048);
        assert_eq!(watch.exhausted_by(), Some(Flood::HeaderSize));
    }

    #[test]
    fn a_second_earns_a_reset() {
        let start = Instant::now();
        let mut budget = Budget::new(30, start);
        budget.left = 0;
        budget.earn_by_time(start + Duration::from_millis(900));
        assert_eq!(budget.left, 0);
        budget.earn_by_time(start + Duration::from_millis(2100));
        assert_eq!(budget.left, 20);
        budget.earn_by_time(start + Duration::from_mins(1));
        assert_eq!(budget.left, 30);
    }

    #[test]
    fn the_last_frame_names_the_last_stream() {
        let watch = watch(1);
        watch.received(&frame(frames::HEADERS, 5, 7, &[0x82]));
        let goaway = watch.goaway().expect("nothing was sent");
        assert_eq!(goaway, [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0xb]);
        watch.sent(&[0, 0, 8, 7]);
        assert_eq!(watch.goaway(), None);
    }
}
