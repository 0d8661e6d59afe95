//! [`Rounds`], the checks of a client that has responses to take.

use std::mem;
use std::time::{Duration, Instant};

use brisk_http_connection::connection::Multiplexed;
use brisk_http_connection::end::End;
use brisk_http_connection::pace::{ReadPace, ReadRate};
use brisk_http_connection::streams::{Round, StreamLimits};

use super::Phase;
use crate::driver::{Http, Stop};

/// Minimum progress, in bytes per [`ROUND`], of a client that keeps its connection while memory is short.
const LITTLE: u64 = 64 << 10;

/// Interval between checks of a client with responses to take; at most a quarter of the shortest timeout.
const ROUND: Duration = Duration::from_secs(2);

/// Progress check of a connection whose client has responses to take.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Start of the time without progress, by the wheel's clock.
    still_since: Duration,
    /// Response bytes released by the last check.
    released: u64,
    /// Time of the next check, if one is due.
    next: Option<Duration>,
    /// Whether output was blocked ([`Phase::Blocked`]) since the last check.
    blocked: bool,
    /// Whether output has been blocked at all times since the last check.
    pub(super) stays_blocked: bool,
    /// Time of the last check, and the bytes sent until then.
    checked: Duration,
    sent: u64,
    pace: ReadPace,
    /// [`Deadline::paused`](brisk_net::Deadline::paused) until the last check.
    paused: Duration,
}

impl Rounds {
    /// Starts a phase, possibly between two checks.
    pub(super) fn begin(&mut self, phase: Phase, http: &Http) {
        let now = http.deadline.now();
        // A new value in the phase means progress.
        if matches!(phase, Phase::Blocked(_) | Phase::Held(_)) {
            self.still_since = now;
        }
        self.blocked |= matches!(phase, Phase::Blocked(_));
        if self.next.is_none() {
            self.paused = http.deadline.paused();
        }
        let next = *self.next.get_or_insert_with(|| now + Self::length(http));
        http.deadline.set(next.saturating_sub(now));
    }

    fn length(http: &Http) -> Duration {
        let timeouts = &http.settings.timeouts;
        ROUND.min(timeouts.write / 4).min(timeouts.request.unwrap_or(ROUND) / 4)
    }

    pub(super) fn turn(&mut self, phase: Phase, sent: u64, http: &Http) -> Option<Stop> {
        let (now, length) = (http.deadline.now(), Self::length(http));
        let (connection, timeouts) = (&http.connection, &http.settings.timeouts);
        if self.is_too_slow(phase, sent, http) {
            return Some(Stop::Abort(End::WriteTimeout));
        }
        let progress = connection.answers.released() - self.released;
        self.released += progress;
        if progress > 0 && phase == Phase::Streams {
            self.still_since = now;
        }
        // A stream that waits for memory has no timeout of its own: the streams that hold the memory have to release it.
        let is_stuck = phase != Phase::Streams || connection.answers.is_full();
        if is_stuck && now.saturating_sub(self.still_since) >= timeouts.write {
            return Some(Stop::Abort(End::WriteTimeout));
        }
        let is_overloaded = connection.is_overloaded() && connection.answers.exceed_share();
        if progress < LITTLE {
            connection.stop_gathering();
        }
        let bodies = connection.multiplexed().map_or(0, |multiplexed| multiplexed.bodies.take_released());
        let progress = progress + bodies;
        if progress < LITTLE && (is_overloaded || connection.must_yield()) {
            http.service.current().telemetry().metrics.connection_shed();
            return Some(Stop::Abort(End::Shed));
        }
        connection.offer_room();
        if let Some(Multiplexed { streams, .. }) = connection.multiplexed() {
            let (write, request, read_rate) = (timeouts.write, timeouts.request, http.settings.read_rate);
            let total = http.deadline.paused();
            let paused = total.saturating_sub(mem::replace(&mut self.paused, total));
            let round = Round { now: Instant::now(), paused, released: self.released, blocked: self.blocked };
            streams.end_overdue(round, StreamLimits { write, read_rate, request });
            self.blocked = matches!(phase, Phase::Blocked(_));
        }
        self.next = Some(now + length);
        http.deadline.set(length);
        None
    }

    /// Accounts the time since the last check, and whether the client reads the connection below the minimum rate. Only time
    /// counts in which output waits for the client, or responses wait for the window of the connection.
    fn is_too_slow(&mut self, phase: Phase, sent: u64, http: &Http) -> bool {
        let now = http.deadline.now();
        // An idle connection is not checked.
        let elapsed = now.saturating_sub(mem::replace(&mut self.checked, now)).min(2 * Self::length(http));
        let sent = sent.saturating_sub(mem::replace(&mut self.sent, sent));
        let stayed_blocked = mem::replace(&mut self.stays_blocked, phase != Phase::Streams);
        let progress = http.connection.multiplexed().map(|multiplexed| multiplexed.streams.take_progress());
        let bytes = match progress {
            _ if stayed_blocked => sent,
            // Data only: in small frames, heads of frames and records would be most of the bytes.
            Some((true, bytes)) => bytes,
            _ => {
                self.pace.reset();
                return false;
            }
        };
        let rate = ReadRate { bytes: http.settings.read_rate, pause: http.settings.timeouts.write };
        self.pace.is_too_slow(elapsed, bytes, rate)
    }
}
