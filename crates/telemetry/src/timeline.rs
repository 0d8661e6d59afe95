//! The steps of a connection and when each was reached.

use std::fmt;
use std::time::{Duration, Instant};

/// A step of a connection. One vocabulary for everything that times connections, so that the tools can check one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Milestone {
    /// The connection was accepted. A timeline starts here.
    TcpEstablished,
    /// The `ClientHello` was there as a whole.
    ClientHello,
    /// It was decided which certificate to show.
    CertificateChosen,
    /// A private-key operation was handed to its engine; not reached when the session was resumed.
    KeyOperationStarted,
    /// The engine answered.
    KeyOperationFinished,
    /// The client's `Finished` was verified.
    HandshakeFinished,
}

impl Milestone {
    /// Every milestone, in the order in which a connection reaches them.
    pub const ALL: [Self; 6] = [
        Self::TcpEstablished,
        Self::ClientHello,
        Self::CertificateChosen,
        Self::KeyOperationStarted,
        Self::KeyOperationFinished,
        Self::HandshakeFinished,
    ];

    /// Its name in logs and tables: `client-hello`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TcpEstablished => "tcp-established",
            Self::ClientHello => "client-hello",
            Self::CertificateChosen => "certificate-chosen",
            Self::KeyOperationStarted => "key-operation-started",
            Self::KeyOperationFinished => "key-operation-finished",
            Self::HandshakeFinished => "handshake-finished",
        }
    }
}

impl fmt::Display for Milestone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

const NOT_REACHED: u32 = u32::MAX;

/// When a connection reached its milestones, in whole microseconds from its start; a milestone later than 71 minutes
/// counts as reached at that time. 40 bytes; marking allocates nothing and costs one reading of the clock.
#[derive(Clone, PartialEq, Eq)]
pub struct Timeline {
    start: Instant,
    offsets: [u32; Milestone::ALL.len()],
}

impl Timeline {
    /// Starts now, with [`Milestone::TcpEstablished`] reached.
    pub fn start() -> Self {
        Self::start_at(Instant::now())
    }

    /// Starts at `start`, with [`Milestone::TcpEstablished`] reached.
    pub fn start_at(start: Instant) -> Self {
        let mut offsets = [NOT_REACHED; Milestone::ALL.len()];
        offsets[Milestone::TcpEstablished as usize] = 0;
        Self { start, offsets }
    }

    /// When the connection started.
    pub fn started(&self) -> Instant {
        self.start
    }

    /// Marks `milestone` as reached now, unless it was reached before: the first time counts.
    pub fn mark(&mut self, milestone: Milestone) {
        if self.offsets[milestone as usize] == NOT_REACHED {
            self.mark_at(milestone, Instant::now());
        }
    }

    /// Marks `milestone` as reached at `time`, unless it was reached before. A time before the start counts as the start.
    pub fn mark_at(&mut self, milestone: Milestone, time: Instant) {
        let slot = &mut self.offsets[milestone as usize];
        if *slot == NOT_REACHED {
            let micros = time.saturating_duration_since(self.start).as_micros();
            *slot = u32::try_from(micros).unwrap_or(NOT_REACHED).min(NOT_REACHED - 1);
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

    fn after(timeline: &Timeline, micros: u64) -> Instant {
        timeline.started() + Duration::from_micros(micros)
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
        timeline.mark_at(Milestone::ClientHello, after(&timeline, 300));
        timeline.mark_at(Milestone::HandshakeFinished, after(&timeline, 1500));
        let took = timeline.between(Milestone::ClientHello, Milestone::HandshakeFinished);
        assert_eq!(took, Some(Duration::from_micros(1200)));
        assert_eq!(timeline.between(Milestone::HandshakeFinished, Milestone::ClientHello), None);
        assert_eq!(timeline.between(Milestone::ClientHello, Milestone::KeyOperationStarted), None);
    }

    #[test]
    fn the_first_mark_counts() {
        let mut timeline = Timeline::start();
        timeline.mark_at(Milestone::ClientHello, after(&timeline, 10));
        timeline.mark_at(Milestone::ClientHello, after(&timeline, 20));
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
