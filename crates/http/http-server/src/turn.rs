//! End of a connection's turn, [`Turns::poll_end`]: sends its output and checks its timeouts.

mod rounds;

use std::io;
use std::mem;
use std::task::{Context, Poll};
use std::time::Duration;

use brisk_http_connection::end::End;
use brisk_http_connection::handshake::Handshake;
use brisk_http_connection::settings::AbortOnClose;
use brisk_net::Peer;

use super::driver::{Http, Stop};
use super::io::HttpIo;
use rounds::Rounds;

/// Idle time after which an HTTP/1.1 connection releases its protocol state; the next byte restores it. Short, so that the
/// state of many clients with one request each does not accumulate; an active client sends its next request sooner.
const REST_AFTER: Duration = Duration::from_millis(100);

/// First interval of checks for a client that is gone while its HTTP/1.1 request is processed: nothing is read then, so its
/// end goes unnoticed. The interval doubles up to [`LOOK_AT_MOST`].
const LOOK_FIRST: Duration = Duration::from_millis(500);
const LOOK_AT_MOST: Duration = Duration::from_secs(4);

/// Expected action of the client. Its timeout runs as long as the [`Phase`], including its value, does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Completing its handshake after early data; takes precedence over all else.
    Handshake,
    /// Beginning a request. Value: number of requests so far.
    Idle(u32),
    /// Completing the head of a request. Value: number of requests before it.
    Head(u32),
    /// Reading output. Value: bytes sent so far.
    Blocked(u64),
    /// Taking more of a response (HTTP/1.1). Value: response bytes taken so far on the connection.
    Held(u64),
    /// None: the server has to respond.
    Busy,
    /// Continuing its streams (HTTP/2), each of which has its own timeout.
    Streams,
}

/// Phases and timeouts of one connection between two rests.
pub(super) struct Turns {
    phase: Option<Phase>,
    requests_before: u32,
    received_when_idle: u64,
    multiplexed: bool,
    draining: bool,
    /// Next interval of the check for a client that is gone.
    look_after: Duration,
    rounds: Rounds,
    /// Number of requests so far, and the time at which the latest was first seen, by the wheel's clock.
    latest: (u32, Duration),
    /// Bytes of records that the socket has not accepted, as far as they are counted.
    unsent: usize,
}

impl Turns {
    /// Creates the watch of a connection with `requests` so far. `multiplexed` (HTTP/2) disables the timeout for heads,
    /// because incoming bytes need not belong to a head there.
    pub(super) fn new(multiplexed: bool, requests: u32) -> Self {
        Self {
            phase: None,
            requests_before: requests,
            received_when_idle: 0,
            multiplexed,
            draining: false,
            look_after: LOOK_FIRST,
            rounds: Rounds::default(),
            latest: (requests, Duration::ZERO),
            unsent: 0,
        }
    }

    /// Whether this turn is the first in which the connection accepts no further requests.
    pub(super) fn begins_to_drain(&mut self, http: &Http) -> bool {
        let begins = !self.draining && (http.drain.started() || http.connection.is_used_up());
        self.draining |= begins;
        begins
    }

    /// Ends a turn. After [`Poll::Pending`], the task is registered for all events that may begin the next turn.
    pub(super) fn poll_end(
        &mut self,
        cx: &mut Context<'_>,
        http: &Http,
        channel: &impl Channel,
    ) -> Poll<Stop> {
        if let Poll::Ready(Err(_)) = channel.poll_drain(cx) {
            match http.handshake() {
                None => return Poll::Ready(Stop::Abort(End::ClientGone)),
                // Requests already forwarded in early data are completed first, and then logged.
                Some(handshake) => handshake.fail(End::ClientGone),
            }
        }
        self.hold(channel.unsent(), http);
        let requests = http.connection.flow.requests();
        if self.latest.0 != requests {
            self.latest = (requests, http.deadline.now());
        }
        http.connection.flow.set_blocked(channel.is_blocked());
        if let Some(stop) = http.failed_handshake() {
            return Poll::Ready(stop);
        }
        let phase = self.current(http, channel);
        if self.phase != Some(phase) {
            self.enter(phase, http, channel);
        }
        loop {
            if http.deadline.poll_expired(cx).is_pending() {
                return Poll::Pending;
            }
            if let Some(stop) = self.expired(phase, http, channel) {
                if let Stop::Abort(end) = stop {
                    http.connection.flow.set_ended(end.of_requests());
                }
                return Poll::Ready(stop);
            }
        }
    }

    /// Counts `unsent` bytes as held by the responses of the connection.
    fn hold(&mut self, unsent: usize, http: &Http) {
        let before = mem::replace(&mut self.unsent, unsent);
        if unsent > before {
            http.connection.answers.take(unsent - before);
        } else if unsent < before {
            http.connection.answers.free(before - unsent);
        }
    }

    /// Reason to stop at the end of the time of `phase`; `None` after setting a new deadline.
    fn expired(&mut self, phase: Phase, http: &Http, channel: &impl Channel) -> Option<Stop> {
        match phase {
            Phase::Handshake => Some(http.late_handshake()),
            Phase::Idle(_) if self.multiplexed => Some(Stop::Close(http.end_of_idle())),
            Phase::Idle(_) => Some(Stop::Rest),
            Phase::Head(_) => Some(Stop::Close(End::HeadTimeout)),
            // Nothing is read while bodies of requests wait for memory, so that the end of the client goes unnoticed.
            Phase::Streams if is_full(http) && channel.is_gone(aborts_on_close(http)) => {
                Some(Stop::Abort(End::ClientGone))
            }
            Phase::Blocked(_) | Phase::Held(_) | Phase::Streams => {
                self.rounds.turn(phase, channel.bytes().1, http).or_else(|| self.late_request(http))
            }
            Phase::Busy if channel.is_gone(aborts_on_close(http)) => Some(Stop::Abort(End::ClientGone)),
            Phase::Busy => {
                self.look_after = (self.look_after * 2).min(LOOK_AT_MOST);
                http.deadline.set(self.look_after);
                self.late_request(http)
            }
        }
    }

    /// Reason to stop because the HTTP/1.1 request in flight has exceeded `timeouts.request`.
    fn late_request(&self, http: &Http) -> Option<Stop> {
        let limit = http.settings.timeouts.request.filter(|_| !self.multiplexed)?;
        let began = http.connection.flow.request_began()?;
        // The wheel's clock counts no pauses, but a request may begin after a pause that the clock has not passed over yet.
        let is_late = began.elapsed() >= limit && http.deadline.now().saturating_sub(self.latest.1) >= limit;
        // `Abort`: after `close_notify`, a body that ends with the connection would seem complete.
        is_late.then_some(Stop::Abort(End::RequestTimeout))
    }

    fn current(&self, http: &Http, channel: &impl Channel) -> Phase {
        if http.handshake().is_some() {
            return Phase::Handshake;
        }
        let (received, sent) = channel.bytes();
        if channel.is_blocked() {
            return Phase::Blocked(sent);
        }
        if http.connection.flow.in_flight() > 0 {
            if self.multiplexed {
                return Phase::Streams;
            }
            return http.connection.flow.held_answer().map_or(Phase::Busy, Phase::Held);
        }
        self.unanswered(http.connection.flow.requests(), received)
    }

    /// Phase of a connection without a request in flight. Compares request numbers, because a request may begin and end
    /// within a single turn.
    fn unanswered(&self, requests: u32, received: u64) -> Phase {
        let begun = !self.multiplexed
            && match self.phase {
                // The turn began because there is something to read.
                None => requests == self.requests_before,
                Some(Phase::Head(before)) => requests == before,
                Some(Phase::Idle(before)) => requests == before && received != self.received_when_idle,
                Some(_) => false,
            };
        if begun { Phase::Head(requests) } else { Phase::Idle(requests) }
    }

    fn enter(&mut self, phase: Phase, http: &Http, channel: &impl Channel) {
        self.phase = Some(phase);
        self.rounds.stays_blocked &= matches!(phase, Phase::Blocked(_) | Phase::Held(_));
        let timeouts = &http.settings.timeouts;
        match phase {
            Phase::Handshake => {
                let left = http.handshake().map_or(Duration::ZERO, Handshake::time_left);
                http.deadline.set(left);
            }
            Phase::Idle(_) => {
                self.received_when_idle = channel.bytes().0;
                // An HTTP/1.1 connection keeps its buffers for the next request; it rests soon otherwise.
                if self.multiplexed {
                    http.deadline.set_idle(http.connection.idle_time(timeouts.idle));
                    channel.rest();
                } else {
                    http.deadline.set(REST_AFTER.min(timeouts.idle));
                }
            }
            Phase::Head(_) => http.deadline.set(timeouts.head),
            Phase::Blocked(_) | Phase::Held(_) | Phase::Streams => self.rounds.begin(phase, http),
            Phase::Busy => {
                self.look_after = LOOK_FIRST;
                http.deadline.set(LOOK_FIRST);
            }
        }
    }
}

/// Whether a client that has closed its side is gone.
fn aborts_on_close(http: &Http) -> bool {
    match http.settings.abort_on_close {
        AbortOnClose::Never => false,
        AbortOnClose::AtLimit => http.connection.flow.is_at_limit(),
        AbortOnClose::Always => true,
    }
}

/// Whether the connection waits for memory for bodies of its requests.
fn is_full(http: &Http) -> bool {
    http.connection.multiplexed().is_some_and(|multiplexed| multiplexed.bodies.is_full())
}

/// Transport of a connection, as far as [`Turns::poll_end`] depends on it.
pub(super) trait Channel {
    /// Sends output as far as the client takes it.
    fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether output waits for the client.
    fn is_blocked(&self) -> bool;

    /// Number of bytes of output that wait for the client, unless they are counted elsewhere.
    fn unsent(&self) -> usize;

    /// Bytes received and sent so far.
    fn bytes(&self) -> (u64, u64);

    /// Releases the buffers of an idle connection.
    fn rest(&self);

    /// Whether the client is gone and cannot read the response. A half-closed connection counts only with `abort_on_close`,
    /// because the client may still read (RFC 9112 section 9.6).
    fn is_gone(&self, abort_on_close: bool) -> bool;
}

impl Channel for HttpIo {
    fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream_mut().poll_drain(cx)
    }

    fn is_blocked(&self) -> bool {
        self.stream().is_blocked()
    }

    fn unsent(&self) -> usize {
        self.stream().unsent()
    }

    fn bytes(&self) -> (u64, u64) {
        self.stream().bytes()
    }

    fn rest(&self) {
        self.stream_mut().rest();
    }

    fn is_gone(&self, abort_on_close: bool) -> bool {
        match Peer::of(self.stream().tcp()) {
            Ok(Peer::Gone) => true,
            Ok(Peer::HalfClosed) => abort_on_close,
            Ok(Peer::Open) | Err(_) => false,
        }
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
