//! The end of each turn of a connection: sends what was written and watches the time.

use std::task::{Context, Poll};
use std::time::Duration;

use brisk_net::Peer;

use super::{End, Http, HttpIo, handshake};
use crate::early_data::Handshake;

/// An idle HTTP/1.1 connection gives up its HTTP machinery after this time; the next byte brings it back. Short, so that
/// many clients with a request each do not add up; a client that is at work asks again sooner.
const REST_AFTER: Duration = Duration::from_millis(100);

/// A client that waits for its answer over HTTP/1.1 is not read from, so that its end would go unseen. It is looked for
/// after this time, and then after twice as long each time, up to [`LOOK_AT_MOST`].
const LOOK_FIRST: Duration = Duration::from_millis(500);
const LOOK_AT_MOST: Duration = Duration::from_secs(4);

/// What the client is expected to do; its time limit runs while the phase stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To complete its handshake, whatever else goes on; there was early data.
    Handshake,
    /// To begin a request; so many have been seen.
    Idle(u32),
    /// To finish the head of a request; so many came before it.
    Head(u32),
    /// To go on with a request body, of which so many bytes have come.
    Body(u64),
    /// To read what was sent; so many bytes have gone out.
    Blocked(u64),
    /// To take more of an answer, of all of which so many bytes were taken.
    Held(u64),
    /// To wait: the answer is ours to give.
    Busy,
}

/// Why a turn ends the HTTP machinery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Idle for a while: rest with less memory.
    Rest,
    /// Close, after what was written.
    Close(End),
    /// Close at once: the client does not read, or is gone.
    Abort(End),
}

/// Watches one connection between two rests.
pub(super) struct Turns {
    phase: Option<Phase>,
    requests_before: u32,
    received_when_idle: u64,
    multiplexed: bool,
    draining: bool,
    /// Until the client is looked for once more.
    look_after: Duration,
}

impl Turns {
    /// For HTTP/2, `multiplexed`: heads are not watched apart, since frames come for other reasons too.
    /// `requests` came before.
    pub(super) fn new(multiplexed: bool, requests: u32) -> Self {
        Self {
            phase: None,
            requests_before: requests,
            received_when_idle: 0,
            multiplexed,
            draining: false,
            look_after: LOOK_FIRST,
        }
    }

    /// Whether the drain has begun and the connection was not told before.
    pub(super) fn begins_to_drain(&mut self, http: &Http) -> bool {
        let begins = !self.draining && http.drain.started();
        self.draining |= begins;
        begins
    }

    /// Ends a turn. Pending registers for everything that may begin the next.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>, io: &HttpIo, http: &Http) -> Poll<Stop> {
        if let Poll::Ready(Err(_)) = io.stream_mut().poll_drain(cx) {
            match http.connection.handshake() {
                None => return Poll::Ready(Stop::Abort(End::ClientGone)),
                Some(handshake) => handshake.fail(End::ClientGone),
            }
        }
        if let Some(stop) = handshake::failed(http) {
            return Poll::Ready(stop);
        }
        let phase = self.current(io, http);
        if self.phase != Some(phase) {
            self.enter(phase, io, http);
        }
        if http.deadline.poll_expired(cx).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(match phase {
            Phase::Handshake => handshake::timed_out(http),
            Phase::Idle(_) if self.multiplexed => Stop::Close(end_of_idle(http)),
            Phase::Idle(_) => Stop::Rest,
            Phase::Head(_) => Stop::Close(End::HeadTimeout),
            Phase::Body(_) => Stop::Close(End::BodyTimeout),
            Phase::Blocked(_) | Phase::Held(_) => Stop::Abort(End::WriteTimeout),
            Phase::Busy if is_gone(io, http) => Stop::Abort(End::ClientGone),
            Phase::Busy => {
                self.look_after = (self.look_after * 2).min(LOOK_AT_MOST);
                http.deadline.set(self.look_after);
                return http.deadline.poll_expired(cx).map(|()| Stop::Abort(End::ClientGone));
            }
        })
    }

    fn current(&self, io: &HttpIo, http: &Http) -> Phase {
        if !http.connection.is_confirmed() {
            return Phase::Handshake;
        }
        let stream = io.stream();
        let (received, sent) = stream.bytes();
        if stream.is_blocked() {
            return Phase::Blocked(sent);
        }
        if http.connection.in_flight() > 0 {
            let held = http.connection.held_answer().map(Phase::Held);
            return held.or(http.connection.awaited_body().map(Phase::Body)).unwrap_or(Phase::Busy);
        }
        self.unanswered(http.connection.requests(), received)
    }

    /// The phase of a connection without a request in flight: whether the next has begun. A request may begin and end
    /// within one turn, so it is the number of them that tells.
    fn unanswered(&self, requests: u32, received: u64) -> Phase {
        let begun = !self.multiplexed
            && match self.phase {
                // A turn begins because there is something to read.
                None => requests == self.requests_before,
                Some(Phase::Head(before)) => requests == before,
                Some(Phase::Idle(before)) => requests == before && received != self.received_when_idle,
                Some(_) => false,
            };
        if begun { Phase::Head(requests) } else { Phase::Idle(requests) }
    }

    fn enter(&mut self, phase: Phase, io: &HttpIo, http: &Http) {
        self.phase = Some(phase);
        let timeouts = &http.settings.timeouts;
        match phase {
            Phase::Handshake => {
                let left = http.connection.handshake().map_or(Duration::ZERO, Handshake::time_left);
                http.deadline.set(left);
            }
            Phase::Idle(_) => {
                self.received_when_idle = io.stream().bytes().0;
                if self.multiplexed {
                    http.deadline.set_idle(timeouts.idle);
                } else {
                    http.deadline.set(REST_AFTER.min(timeouts.idle));
                }
                io.stream_mut().rest();
            }
            Phase::Head(_) => http.deadline.set(timeouts.head),
            Phase::Body(_) => http.deadline.set(timeouts.body),
            Phase::Blocked(_) | Phase::Held(_) => http.deadline.set(timeouts.write),
            // Over HTTP/2 the client is read from all the time.
            Phase::Busy if self.multiplexed => http.deadline.clear(),
            Phase::Busy => {
                self.look_after = LOOK_FIRST;
                http.deadline.set(LOOK_FIRST);
            }
        }
    }
}

/// Why an idle connection whose deadline has passed ends.
pub(super) fn end_of_idle(http: &Http) -> End {
    if http.deadline.is_evicted() { End::Evicted } else { End::Idle }
}

/// Whether nobody is there any more to take the answer. The end of what the client sends counts only where the settings
/// say so: it may still read (RFC 9112 section 9.6).
fn is_gone(io: &HttpIo, http: &Http) -> bool {
    match Peer::of(io.stream().tcp()) {
        Ok(Peer::Gone) => true,
        Ok(Peer::HalfClosed) => http.settings.abort_on_close,
        Ok(Peer::Open) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(phase: Option<Phase>) -> Turns {
        Turns { phase, received_when_idle: 500, ..Turns::new(false, 7) }
    }

    #[test]
    fn a_request_answered_within_its_turn_leaves_the_connection_idle() {
        assert_eq!(after(None).unanswered(8, 600), Phase::Idle(8));
        assert_eq!(after(Some(Phase::Head(7))).unanswered(8, 600), Phase::Idle(8));
        assert_eq!(after(Some(Phase::Idle(7))).unanswered(8, 600), Phase::Idle(8));
        assert_eq!(after(Some(Phase::Busy)).unanswered(7, 600), Phase::Idle(7));
    }

    #[test]
    fn a_part_of_a_head_is_watched_from_its_first_byte() {
        assert_eq!(after(None).unanswered(7, 500), Phase::Head(7));
        assert_eq!(after(Some(Phase::Idle(7))).unanswered(7, 501), Phase::Head(7));
        assert_eq!(after(Some(Phase::Head(7))).unanswered(7, 502), Phase::Head(7));
        assert_eq!(after(Some(Phase::Idle(7))).unanswered(7, 500), Phase::Idle(7));
    }

    #[test]
    fn frames_between_requests_are_no_head() {
        let turns = Turns { received_when_idle: 500, ..Turns::new(true, 7) };
        assert_eq!(turns.unanswered(7, 600), Phase::Idle(7));
    }
}
