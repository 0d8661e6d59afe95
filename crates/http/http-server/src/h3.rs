//! HTTP/3 on a client connection (RFC 9114), independent of the QUIC implementation.
//!
//! The driver of the transport reports events of streams and polls the connection once per turn. Frames are read, requests are
//! processed in the turn in which they arrive, and responses are written as far as the transport accepts them.

mod control;
mod held;
mod input;
mod invariants;
#[cfg(any(test, fuzzing))]
pub(crate) mod model;
mod output;
mod prices;
mod quic;
mod run;
mod state;
#[cfg(any(test, fuzzing))]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod transport;

use std::io;
use std::task::{Context, Poll};

use brisk_http_connection::end::End;
use brisk_http_connection::settings::HttpSettings;
use brisk_wire::h3::error::Code;
use bytes::Bytes;

use self::state::H3;
pub use self::transport::{Direction, Read, Transport, Write};
use crate::driver::{Http, Stop};
use crate::turn::{Channel, Turns};

/// Maximum number of times per turn that requests are read and run before responses are written.
const READS: usize = 4;

/// The beginning of the server's control stream, which is the same for all connections: a client remembers its settings for
/// early data (RFC 9114 section 7.2.4.2).
pub fn greeting(settings: &HttpSettings) -> Bytes {
    control::greeting(settings)
}

/// HTTP/3 connection with a client, over any [`Transport`].
pub struct Http3 {
    h3: H3,
    turns: Turns,
    /// Reason of an end that is announced with `GOAWAY`.
    ending: Option<End>,
}

/// End of an [`Http3`] connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// Reason, for the record of the connection.
    pub end: End,
    /// Application error code of `CONNECTION_CLOSE`.
    pub code: Code,
}

impl Http3 {
    /// Creates the state of a connection whose transport can send.
    pub fn new(http: Http) -> Self {
        http.surround();
        let requests = http.connection.flow.requests();
        http.connection.multiplex();
        Self { h3: H3::new(http), turns: Turns::new(true, requests), ending: None }
    }

    /// Reports that [`greeting`] was sent on this stream, except for `rest`. To be called before the first turn.
    pub fn greeted(&mut self, stream: u64, rest: Bytes) {
        self.h3.control.greeted(stream, rest);
    }

    /// Reports that bytes, the end or a reset have arrived on the stream with the ID `stream`.
    pub fn readable(&mut self, stream: u64) {
        // RFC 9000 section 2.1: the second bit is set for unidirectional streams.
        if stream & 2 == 0 { self.h3.request_readable(stream) } else { self.h3.incoming_readable(stream) }
    }

    /// Reports that a stream may be written again, after [`Write::Blocked`].
    pub fn writable(&mut self, stream: u64) {
        if let Some(place) = self.h3.find(stream) {
            self.h3.unblocked(place);
        }
    }

    /// Reports that the client has acknowledged a stream entirely.
    pub fn finished(&mut self, stream: u64) {
        self.h3.acknowledged(stream);
    }

    /// Reports that the client does not want the rest of a stream (`STOP_SENDING`).
    pub fn stopped(&mut self, stream: u64) {
        // RFC 9114 section 6.2.1: our control stream, the only stream that we open, must not be stopped.
        if stream & 3 == 3 {
            return self.h3.fail(Code::CLOSED_CRITICAL_STREAM);
        }
        match self.h3.find(stream).filter(|place| !self.h3.is_finished(*place)) {
            Some(place) => self.h3.stopped(place),
            None => self.h3.stopped_after_its_end(stream),
        }
    }

    /// Number of open requests.
    #[cfg(any(test, fuzzing))]
    fn open_requests(&self) -> usize {
        self.h3.numbers.len()
    }

    /// One turn: reads, processes, writes. Ready with [`Closing`] if the connection is to be closed.
    ///
    /// To be called after the events of a turn, after datagrams of the client were processed, since acknowledgements release
    /// memory, and when the waker of `cx` is woken.
    pub fn poll(&mut self, transport: &mut impl Transport, cx: &mut Context<'_>) -> Poll<Closing> {
        let stop = std::task::ready!(self.poll_stop(transport, cx));
        let h3 = &self.h3;
        let end = match stop {
            Stop::Close(end) | Stop::Abort(end) => end,
            // Not reached: `Turns` closes an idle multiplexed connection instead.
            Stop::Rest => End::Idle,
        };
        let code = match end {
            End::Malformed => h3.failure.unwrap_or(Code::GENERAL_PROTOCOL_ERROR),
            // RFC 9114 section 10.5: suspicious activity may end a connection with this code.
            End::Flood | End::Shed => Code::EXCESSIVE_LOAD,
            _ => Code::NO_ERROR,
        };
        Poll::Ready(Closing { end, code })
    }

    fn poll_stop(&mut self, transport: &mut impl Transport, cx: &mut Context<'_>) -> Poll<Stop> {
        let Self { h3, turns, ending } = self;
        h3.begin_turn(cx);
        if turns.begins_to_drain(&h3.http) {
            h3.drain();
        }
        h3.turn(transport, cx);
        h3.http.connection.multiplex().discards.poll(cx);
        // The last permitted request may have arrived in this turn.
        if turns.begins_to_drain(&h3.http) {
            h3.drain();
            cx.waker().wake_by_ref();
        }
        h3.poll_drain(transport, cx);
        h3.notices.end_turn();
        if h3.failure.is_some() {
            return Poll::Ready(Stop::Close(End::Malformed));
        }
        if let Some(end) = h3.flood_end() {
            return Poll::Ready(Stop::Close(end));
        }
        if h3.is_drained() {
            let end = if h3.http.drain.started() { End::Drained } else { End::Closed };
            return Poll::Ready(Stop::Close(ending.unwrap_or(end)));
        }
        match turns.poll_end(cx, &h3.http, &Datagrams(transport.bytes())) {
            // Announces the end with GOAWAY first. If the client does not finish, the next deadline ends the connection.
            // An evicted connection closes at once, because another client waits for its slot.
            Poll::Ready(Stop::Close(end)) if ending.is_none() && end != End::Evicted => {
                *ending = Some(end);
                h3.drain();
                h3.http.deadline.set(h3.http.settings.timeouts.write);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(Stop::Close(end)) => Poll::Ready(Stop::Close(ending.unwrap_or(end))),
            stop => stop,
        }
    }
}

impl H3 {
    fn begin_turn(&mut self, cx: &Context<'_>) {
        self.http.connection.multiplex().discards.begin_turn(cx);
        self.wakes.register(cx);
        self.notices.begin_turn(cx);
        // First, so that responses which wait for memory find the acknowledged bytes free in this turn.
        self.held.release(&self.http.connection);
        self.turn.begin();
    }

    /// Reads, processes and writes.
    fn turn(&mut self, transport: &mut impl Transport, cx: &mut Context<'_>) {
        for read in 0.. {
            self.read_incoming(transport);
            self.read_requests(transport);
            self.run();
            self.look_at_bodies();
            if self.readable.is_empty() {
                break;
            }
            if read == READS || self.turn.is_reached() {
                cx.waker().wake_by_ref();
                break;
            }
        }
        if self.is_over() {
            return;
        }
        if let Err(code) = self.control.write(transport) {
            self.fail(code);
        }
        self.write(transport);
        // Bodies that were let go at the end of their responses.
        self.look_at_bodies();
        // Last, because writing adds cuts: of streams that the client has stopped, and of uploads after their
        // response.
        self.cut(transport);
        // Streams that ended while they were written: no other turn may follow soon.
        self.dropped.clear();
        debug_assert_eq!(self.broken_rule(), None);
    }

    /// [`End::Flood`] for a connection whose flood budget is exhausted; `None` otherwise.
    fn flood_end(&self) -> Option<End> {
        let multiplexed = self.http.connection.multiplex();
        self.flood.earn(multiplexed.take_earned());
        self.flood.heads(multiplexed.long_heads());
        let reason = self.flood.exhausted_by()?;
        self.http.service.floods().count(reason);
        Some(End::Flood)
    }
}

/// The [`Channel`] at the end of a turn. It is never blocked: each response has a timeout of its own, and a client that does
/// not acknowledge is detected by QUIC.
struct Datagrams((u64, u64));

impl Channel for Datagrams {
    fn poll_drain(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn is_blocked(&self) -> bool {
        false
    }

    fn unsent(&self) -> usize {
        0
    }

    fn bytes(&self) -> (u64, u64) {
        self.0
    }

    fn rest(&self) {}

    fn is_gone(&self, _abort_on_close: bool) -> bool {
        false
    }
}
