//! HTTP/2 on a client connection.
//!
//! Frames are read in the buffer of the TLS stream, requests are processed in the turn in which they arrive, and responses
//! are written in the order of their priorities. Everything runs in the single task of the connection.

mod blocks;
mod input;
mod invariants;
mod output;
mod prices;
mod run;
mod scratch;
mod state;
#[cfg(any(test, fuzzing))]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod windows;

use std::cell::RefMut;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use brisk_http_connection::end::End;
use brisk_net::TurnLimit;
use brisk_tls::Stream;
use brisk_wire::h2::frame::{Reason, WriteFrames};

use self::output::Sink;
use self::state::{Goaway, H2};
use super::driver::{Driver, Stop};
use super::turn::Turns;

impl Driver<'_> {
    /// Serves HTTP/2 until the connection closes. Never returns [`Stop::Rest`].
    pub(super) async fn h2_turns(&self) -> Stop {
        let http = self.http;
        let multiplexed = http.connection.multiplex();
        let mut h2 = H2::new(http);
        let mut turns = Turns::new(true, http.connection.flow.requests());
        let mut ending = None;
        let stop = poll_fn(|cx| {
            multiplexed.discards.begin_turn(cx);
            self.advance_handshake(cx);
            if turns.begins_to_drain(self.http) {
                h2.drain();
            }
            if let Poll::Ready(stop) = self.poll_h2(cx, &mut h2) {
                return Poll::Ready(ending.map_or(stop, Stop::Close));
            }
            multiplexed.discards.poll(cx);
            // The last permitted request may have arrived in this turn.
            if turns.begins_to_drain(self.http) {
                h2.drain();
                cx.waker().wake_by_ref();
            }
            h2.flood.earn(multiplexed.take_earned());
            h2.flood.heads(multiplexed.long_heads());
            if let Some(reason) = h2.flood.exhausted_by() {
                http.service.floods().count(reason);
                self.say_last(cx, &mut h2);
                return Poll::Ready(Stop::Close(End::Flood));
            }
            match turns.poll_end(cx, self.http, &self.io) {
                // Announces the end with GOAWAY first. If the client does not finish, the next deadline ends the connection.
                // An evicted connection closes at once, because another client waits for its descriptor.
                Poll::Ready(Stop::Close(end)) if ending.is_none() && end != End::Evicted => {
                    ending = Some(end);
                    h2.drain();
                    http.deadline.set(http.settings.timeouts.write);
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                stop => stop,
            }
        })
        .await;
        multiplexed.discards.end();
        stop
    }

    /// One turn: reads, processes, writes. Ready with [`Stop`] if the connection is to be closed.
    fn poll_h2(&self, cx: &mut Context<'_>, h2: &mut H2<'_>) -> Poll<Stop> {
        h2.begin_turn(cx);
        let ended = self.read_h2(cx, h2);
        let was_full = !h2.may_read();
        let written = self.write_h2(cx, h2);
        if h2.failure.is_some() {
            return match written {
                Err(_) => Poll::Ready(Stop::Abort(End::ClientGone)),
                Ok(()) if h2.send.out.is_empty() => Poll::Ready(Stop::Close(End::Malformed)),
                // GOAWAY waits behind output that the client has not read. TLS wakes the task when there is space.
                Ok(()) => Poll::Pending,
            };
        }
        // A failed write is reported by the end of the turn.
        h2.end_turn();
        // While output was full, reading was not registered, so no event would wake the task.
        if was_full && h2.may_read() {
            cx.waker().wake_by_ref();
        }
        match ended {
            Some(end) => Poll::Ready(Stop::Close(end)),
            None if h2.is_drained() => {
                let end = if self.http.drain.started() { End::Drained } else { End::Closed };
                Poll::Ready(Stop::Close(end))
            }
            None => Poll::Pending,
        }
    }

    /// Reads and processes the available frames, until [`TurnLimit`] is reached. Returns the reason if the client has ended the
    /// connection.
    fn read_h2(&self, cx: &mut Context<'_>, h2: &mut H2<'_>) -> Option<End> {
        let connection = &self.http.connection;
        let mut turn = TurnLimit::default();
        while turn.poll_more(cx).is_ready() {
            let may_read =
                h2.may_read() && h2.notices.has_room(connection.budgets(), connection.client.address());
            let polled = if may_read { self.poll_feed(cx, h2, &mut turn) } else { Poll::Pending };
            h2.run();
            h2.look_at_bodies();
            debug_assert_eq!(h2.broken_rule(), None);
            match polled {
                Poll::Pending => break,
                Poll::Ready(None) => {}
                Poll::Ready(end) => return end,
            }
        }
        None
    }

    fn write_h2(&self, cx: &mut Context<'_>, h2: &mut H2<'_>) -> io::Result<()> {
        h2.write(TlsSink { stream: self.io.stream_mut(), cx })
    }

    fn poll_feed(&self, cx: &mut Context<'_>, h2: &mut H2<'_>, turn: &mut TurnLimit) -> Poll<Option<End>> {
        let mut stream = self.io.stream_mut();
        // During the handshake the driver reads, and wakes this task.
        if !stream.is_confirmed() && !stream.has_plaintext() {
            return Poll::Pending;
        }
        let mut any = false;
        let read = stream.poll_read(cx, |data| {
            any = true;
            h2.feed_within(data, turn)
        });
        read.map(|read| match read {
            Ok(()) if any => None,
            Ok(()) if self.http.drain.started() => Some(End::Drained),
            Ok(()) => Some(End::Closed),
            // `Close` instead of `Abort`, because GOAWAY, an alert, or responses may wait to be sent.
            Err(_) => Some(End::ClientGone),
        })
    }

    /// Sends `GOAWAY` with `ENHANCE_YOUR_CALM` to a client that has exhausted its budget; streams in flight are abandoned.
    fn say_last(&self, cx: &mut Context<'_>, h2: &mut H2<'_>) {
        h2.send.out.goaway(h2.last_stream(), Reason::ENHANCE_YOUR_CALM);
        let mut stream = self.io.stream_mut();
        // Makes space for the frame, if the client reads at all.
        if stream.poll_drain(cx).is_ready() {
            // An error is ignored here, because the connection closes in any case.
            let _ = h2.send.flush(|bytes| stream.poll_write(cx, &[IoSlice::new(bytes)]));
        }
    }
}

/// The [`Sink`] of a connection: its output goes into TLS records.
struct TlsSink<'a, 'b> {
    stream: RefMut<'a, Stream>,
    cx: &'a mut Context<'b>,
}

impl Sink for TlsSink<'_, '_> {
    fn poll_room(&mut self) -> Poll<io::Result<usize>> {
        self.stream.poll_room(self.cx)
    }

    fn poll_write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.poll_write(self.cx, &[IoSlice::new(bytes)])
    }
}

impl H2<'_> {
    fn begin_turn(&mut self, cx: &Context<'_>) {
        self.wakes.register(cx);
        self.notices.begin_turn(cx);
        if self.send.out.capacity() == 0 {
            self.send.out = scratch::take();
        }
    }

    fn end_turn(&mut self) {
        self.notices.end_turn();
    }

    /// Whether all streams up to that of [`Goaway::Last`] have ended and all output is sent.
    fn is_drained(&self) -> bool {
        matches!(self.goaway, Goaway::Last(_)) && self.numbers.is_empty() && self.send.out.is_empty()
    }
}
