//! [`Milestone`]s of a connection and their times, in a [`Timeline`].

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A step of a connection. One vocabulary for everything that times connections, so that the tools can check one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Milestone {
    /// The connection was accepted. A timeline starts here.
    TcpEstablished,
    /// The `ClientHello` was there as a whole.
    ClientHello,
    /// The certificate was chosen.
    CertificateChosen,
    /// A private-key operation was handed to its engine; not reached when the session was resumed.
    KeyOperationStarted,
    /// The engine answered.
    KeyOperationFinished,
    /// The client's `Finished` was verified.
    HandshakeFinished,
    /// The head of the first request was there. Of early data it may come before the handshake is finished.
    FirstRequest,
    /// The head of the first response was handed over to be written.
    FirstResponse,
}

impl Milestone {
    /// Every milestone, in the order in which a connection reaches them.
    pub const ALL: [Self; 8] = [
        Self::TcpEstablished,
        Self::ClientHello,
        Self::CertificateChosen,
        Self::KeyOperationStarted,
        Self::KeyOperationFinished,
        Self::HandshakeFinished,
        Self::FirstRequest,
        Self::FirstResponse,
    ];

    /// Name of the milestone in logs and tables, for example `client-hello`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TcpEstablished => "tcp-established",
            Self::ClientHello => "client-hello",
            Self::CertificateChosen => "certificate-chosen",
            Self::KeyOperationStarted => "key-operation-started",
            Self::KeyOperationFinished => "key-operation-finished",
            Self::HandshakeFinished => "handshake-finished",
            Self::FirstRequest => "first-request",
            Self::FirstResponse => "first-response",
        }
    }
}

impl fmt::Display for Milestone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

const NOT_REACHED: u32 = u32::MAX;

/// Times of each [`Milestone`] of a connection: the time of day of its start, and for each milestone the offset in whole
/// microseconds, at most 71 minutes. Takes 56 bytes; marking allocates nothing and reads the clock once.
#[derive(Clone, PartialEq, Eq)]
pub struct Timeline {
    // Both clocks: durations must not jump when the clock of the system is corrected.
    start: Instant,
    /// Microseconds since 1970.
    time_of_day: u64,
    offsets: [u32; Milestone::ALL.len()],
}

impl Timeline {
    /// Starts now, with [`Milestone::TcpEstablished`] reached.
    pub fn start() -> Self {
        Self::start_at(Instant::now(), SystemTime::now())
    }

    /// Starts at `start`, which was at `time` of day, with [`Milestone::TcpEstablished`] reached.
    pub fn start_at(start: Instant, time: SystemTime) -> Self {
        let mut offsets = [NOT_REACHED; Milestone::ALL.len()];
        offsets[Milestone::TcpEstablished as usize] = 0;
        // A clock before 1970 is a wrong clock, and no reason to refuse a connection.
        let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start, time_of_day: u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX), offsets }
    }

    /// Start of the connection.
    pub fn started(&self) -> Instant {
        self.start
    }

    /// The time of day when the connection started, to the microsecond.
    pub fn time_of_day(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.time_of_day)
    }

    /// Marks `milestone` as reached now, unless it was reached before: the first time counts.
    pub fn mark(&mut self, milestone: Milestone) {
        // Checked here too, so that a repeated mark does not read the clock.
        if self.offsets[milestone as usize] == NOT_REACHED {
            self.mark_at(milestone, Instant::now());
        }
    }

    /// Whether `milestone` was reached.
    pub fn is_reached(&self, milestone: Milestone) -> bool {
        self.offsets[milestone as usize] != NOT_REACHED
    }

    /// Marks `milestone` as reached at `time`, unless it was reached before. A time before the start counts as the start.
    pub fn mark_at(&mut self, milestone: Milestone, time: Instant) {
        self.mark_after(milestone, time.saturating_duration_since(self.start));
    }

    /// Marks `milestone` as reached at this offset from the start, unless it was reached before.
    pub fn mark_after(&mut self, milestone: Milestone, offset: Duration) {
        let slot = &mut self.offsets[milestone as usize];
        if *slot == NOT_REACHED {
            // Clamped below `NOT_REACHED`, which would otherwise mark the milestone as not reached.
            *slot = u32::try_from(offset.as_micros()).unwrap_or(NOT_REACHED).min(NOT_REACHED - 1);
        }
    }

    /// The time from the start to `milestone`; `None` if it was not reached.
    pub fn offset(&self, milestone: Milestone) -> Option<Duration> {
        match self.offsets[milestone as usize] {
            NOT_REACHED => None,
            micros => Some(Duration::from_micros(micros.into())),
        }
    }

    /// The time from `earlier` to `later`; `None` if one was not reached or they came the other way round.
    pub fn between(&self, earlier: Milestone, later: Milestone) -> Option<Duration> {
        self.offset(later)?.checked_sub(self.offset(earlier)?)
    }

    /// Time from the first request to its response, without the part before the end of the handshake, for which the
    /// client waited anyway. Zero if early data was answered within the handshake.
    pub fn first_byte(&self) -> Option<Duration> {
        let (request, response) =
            (self.offset(Milestone::FirstRequest)?, self.offset(Milestone::FirstResponse)?);
        let handshake = self.offset(Milestone::HandshakeFinished).unwrap_or_default();
        Some(response.saturating_sub(request.max(handshake)))
    }

    /// The milestones that were reached, in their order, each with its offset from the start.
    pub fn reached(&self) -> impl Iterator<Item = (Milestone, Duration)> + '_ {
        Milestone::ALL.into_iter().filter_map(|milestone| Some((milestone, self.offset(milestone)?)))
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.reached()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn a_timeline_knows_the_time_of_day_of_its_start() {
        let time = UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
        let timeline = Timeline::start_at(Instant::now(), time);
        assert_eq!(timeline.time_of_day(), UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_000));
    }

    #[test]
    fn milestones_stand_at_their_own_index() {
        for (index, milestone) in Milestone::ALL.into_iter().enumerate() {
            assert_eq!(milestone as usize, index, "{milestone}");
        }
    }

    #[test]
    fn a_timeline_starts_with_the_connection_established() {
        let timeline = Timeline::start();
        let reached: Vec<_> = timeline.reached().collect();
        assert_eq!(reached, [(Milestone::TcpEstablished, Duration::ZERO)]);
        assert_eq!(timeline.offset(Milestone::KeyOperationStarted), None);
    }

    #[test]
    fn between_is_the_time_from_one_milestone_to_another() {
        let mut timeline = Timeline::start();
        timeline.mark_after(Milestone::ClientHello, micros(300));
        timeline.mark_after(Milestone::HandshakeFinished, micros(1500));
        let took = timeline.between(Milestone::ClientHello, Milestone::HandshakeFinished);
        assert_eq!(took, Some(Duration::from_micros(1200)));
        assert_eq!(timeline.between(Milestone::HandshakeFinished, Milestone::ClientHello), None);
        assert_eq!(timeline.between(Milestone::ClientHello, Milestone::KeyOperationStarted), None);
    }

    #[test]
    fn the_first_mark_counts() {
        let mut timeline = Timeline::start();
        timeline.mark_after(Milestone::ClientHello, micros(10));
        timeline.mark_after(Milestone::ClientHello, micros(20));
        timeline.mark(Milestone::ClientHello);
        assert_eq!(timeline.offset(Milestone::ClientHello), Some(Duration::from_micros(10)));
    }

    #[test]
    fn a_milestone_after_hours_still_counts_as_reached() {
        let mut timeline = Timeline::start();
        timeline.mark_at(Milestone::HandshakeFinished, timeline.started() + Duration::from_hours(24));
        assert!(
            timeline
                .offset(Milestone::HandshakeFinished)
                .is_some_and(|offset| offset > Duration::from_mins(70))
        );
    }
}
