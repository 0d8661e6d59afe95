//! The end of each turn of a connection: sends what was written and watches the time.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use brisk_http_connection::connection::Multiplexed;
use brisk_http_connection::end::End;
use brisk_http_connection::handshake::Handshake;
use brisk_http_connection::streams::{Round, StreamLimits};
use brisk_net::Peer;

use super::driver::{Driver, Http, Stop};

/// An idle HTTP/1.1 connection gives up its HTTP machinery after this time; the next byte brings it back. Short, so that
/// many clients with a request each do not add up; a client that is at work asks again sooner.
const REST_AFTER: Duration = Duration::from_millis(100);

/// A client that waits for its answer over HTTP/1.1 is not read from, so that its end would go unseen. It is looked for
/// after this time, and then after twice as long each time, up to [`LOOK_AT_MOST`].
const LOOK_FIRST: Duration = Duration::from_millis(500);
const LOOK_AT_MOST: Duration = Duration::from_secs(4);

/// A client that takes less within a round while memory is short is not worth waiting for.
const LITTLE: u64 = 64 << 10;

/// While a client has answers to take, its connection is looked at this often, or four times within the least time limit.
const ROUND: Duration = Duration::from_secs(2);

/// What the client is expected to do; its time limit runs while the phase stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To complete its handshake, whatever else goes on; there was early data.
    Handshake,
    /// To begin a request. Holds the number of requests so far.
    Idle(u32),
    /// To finish the head of a request. Holds the number of requests before it.
    Head(u32),
    /// To read what was sent. Holds the bytes sent so far.
    Blocked(u64),
    /// To take more of an answer. Holds the bytes of all answers taken so far.
    Held(u64),
    /// To wait: the server has to answer.
    Busy,
    /// To go on with its streams, each of which has a limit of its own.
    Streams,
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
    rounds: Rounds,
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
            rounds: Rounds::default(),
        }
    }

    /// Whether the connection is to take no further requests, from this turn on.
    pub(super) fn begins_to_drain(&mut self, driver: &Driver<'_>) -> bool {
        let http = driver.http;
        let begins = !self.draining && (http.drain.started() || http.connection.is_used_up());
        self.draining |= begins;
        begins
    }

    /// Ends a turn. Pending registers for everything that may begin the next.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>, driver: &Driver<'_>) -> Poll<Stop> {
        let Driver { io, http } = driver;
        if let Poll::Ready(Err(_)) = io.stream_mut().poll_drain(cx) {
            match driver.handshake() {
                None => return Poll::Ready(Stop::Abort(End::ClientGone)),
                Some(handshake) => handshake.fail(End::ClientGone),
            }
        }
        http.connection.set_blocked(io.stream().is_blocked());
        http.connection.end_turn();
        if let Some(stop) = driver.failed_handshake() {
            return Poll::Ready(stop);
        }
        let phase = self.current(driver);
        if self.phase != Some(phase) {
            self.enter(phase, driver);
        }
        loop {
            if http.deadline.poll_expired(cx).is_pending() {
                return Poll::Pending;
            }
            if let Some(stop) = self.expired(phase, driver) {
                return Poll::Ready(stop);
            }
        }
    }

    /// How to stop when the time of `phase` is over; `None` after setting a new deadline.
    fn expired(&mut self, phase: Phase, driver: &Driver<'_>) -> Option<Stop> {
        match phase {
            Phase::Handshake => Some(driver.late_handshake()),
            Phase::Idle(_) if self.multiplexed => Some(Stop::Close(driver.end_of_idle())),
            Phase::Idle(_) => Some(Stop::Rest),
            Phase::Head(_) => Some(Stop::Close(End::HeadTimeout)),
            Phase::Blocked(_) | Phase::Held(_) | Phase::Streams => self.rounds.turn(phase, driver.http),
            Phase::Busy if driver.is_gone() => Some(Stop::Abort(End::ClientGone)),
            Phase::Busy if is_overdue(driver.http) => Some(Stop::Close(End::RequestTimeout)),
            Phase::Busy => {
                self.look_after = (self.look_after * 2).min(LOOK_AT_MOST);
                driver.http.deadline.set(self.look_after);
                None
            }
        }
    }

    fn current(&self, driver: &Driver<'_>) -> Phase {
        let Driver { io, http } = driver;
        if driver.handshake().is_some() {
            return Phase::Handshake;
        }
        let stream = io.stream();
        let (received, sent) = stream.bytes();
        if stream.is_blocked() {
            return Phase::Blocked(sent);
        }
        if http.connection.in_flight() > 0 {
            if self.multiplexed {
                return Phase::Streams;
            }
            return http.connection.held_answer().map_or(Phase::Busy, Phase::Held);
        }
        self.unanswered(http.connection.requests(), received)
    }

    /// The phase of a connection without a request in flight: whether the next has begun. A request may begin and end
    /// within one turn, so their number decides.
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

    fn enter(&mut self, phase: Phase, driver: &Driver<'_>) {
        let Driver { io, http } = driver;
        self.phase = Some(phase);
        let timeouts = &http.settings.timeouts;
        match phase {
            Phase::Handshake => {
                let left = driver.handshake().map_or(Duration::ZERO, Handshake::time_left);
                http.deadline.set(left);
            }
            Phase::Idle(_) => {
                self.received_when_idle = io.stream().bytes().0;
                // Over HTTP/1.1 the next request may use the memory, or the connection rests soon.
                if self.multiplexed {
                    http.deadline.set_idle(http.connection.idle(timeouts.idle));
                    io.stream_mut().rest();
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

/// Checks the progress of a connection whose client has answers to take.
#[derive(Debug, Default)]
struct Rounds {
    /// Since when the client has taken nothing, by the clock of the wheel.
    still_since: Duration,
    /// Bytes of answers given back by then.
    released: u64,
    /// When the next round is due, if one is.
    next: Option<Duration>,
    /// The client did not take everything since the last round.
    blocked: bool,
}

impl Rounds {
    /// A phase begins, perhaps in the middle of a round.
    fn begin(&mut self, phase: Phase, http: &Http) {
        let now = http.deadline.now();
        match phase {
            // Something was taken.
            Phase::Blocked(_) | Phase::Held(_) => self.still_since = now,
            _ => {}
        }
        self.blocked |= matches!(phase, Phase::Blocked(_));
        let next = *self.next.get_or_insert_with(|| now + Self::length(http));
        http.deadline.set(next.saturating_sub(now));
    }

    fn length(http: &Http) -> Duration {
        let timeouts = &http.settings.timeouts;
        ROUND.min(timeouts.write / 4).min(timeouts.request.unwrap_or(ROUND) / 4)
    }

    fn turn(&mut self, phase: Phase, http: &Http) -> Option<Stop> {
        let (now, length) = (http.deadline.now(), Self::length(http));
        let (connection, timeouts) = (&http.connection, &http.settings.timeouts);
        let progress = connection.answers.released() - self.released;
        self.released += progress;
        if progress > 0 && phase == Phase::Streams {
            self.still_since = now;
        }
        // A stream that waits for memory has no time limit: those that hold it are to give it back.
        let is_stuck = phase != Phase::Streams || connection.answers.is_full();
        if is_stuck && now.saturating_sub(self.still_since) >= timeouts.write {
            return Some(Stop::Abort(End::WriteTimeout));
        }
        if connection.is_overloaded() && connection.answers.exceed_share() && progress < LITTLE {
            http.service.current().telemetry().metrics.connection_shed();
            return Some(Stop::Abort(End::Shed));
        }
        connection.offer_room();
        if let Some(Multiplexed { streams, .. }) = connection.multiplexed() {
            let limits = StreamLimits { write: timeouts.write, request: timeouts.request };
            let round = Round { now: Instant::now(), released: self.released, blocked: self.blocked };
            streams.end_overdue(round, limits);
            self.blocked = matches!(phase, Phase::Blocked(_));
        } else if is_overdue(http) {
            return Some(Stop::Abort(End::RequestTimeout));
        }
        self.next = Some(now + length);
        http.deadline.set(length);
        None
    }
}

/// Whether the request in flight over HTTP/1.1 has taken too long.
fn is_overdue(http: &Http) -> bool {
    let (started, limit) = (http.connection.request_began(), http.settings.timeouts.request);
    started.zip(limit).is_some_and(|(started, limit)| started.elapsed() >= limit)
}

impl Driver<'_> {
    /// Whether the client is gone and cannot take the answer. The end of what the client sends counts only where the
    /// settings say so: it may still read (RFC 9112 section 9.6).
    fn is_gone(&self) -> bool {
        match Peer::of(self.io.stream().tcp()) {
            Ok(Peer::Gone) => true,
            Ok(Peer::HalfClosed) => self.http.settings.abort_on_close,
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
