//! Settings of a run.

use std::time::Duration;

use crate::subject::{Algorithm, Subject};

/// Maximum number of rounds; more would hardly improve the medians.
const ROUNDS: u128 = 20;

/// Minimum number of rounds, because two values have no meaningful median.
const FEWEST_ROUNDS: u128 = 3;

/// Minimum time of an operation in one round, unless [`Settings::time`] is too short for [`FEWEST_ROUNDS`].
const SLICE: Duration = Duration::from_millis(10);

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Subjects to measure; empty for all. [`Subject::Handshakes`] includes [`Algorithm::Rsa2048`], which the forecast
    /// of batches needs.
    pub subjects: Vec<Subject>,
    /// Time for each operation and each kind of handshake. Default: one second.
    pub time: Duration,
    /// Number of the core. Default: `None`, the current one of the thread that calls [`run`](crate::run).
    pub core: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { subjects: Vec::new(), time: Duration::from_secs(1), core: None }
    }
}

/// Division of [`Settings::time`] into rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) rounds: u32,
    /// Time of each operation in each round.
    pub(crate) slice: Duration,
}

impl Settings {
    pub(crate) fn measures(&self, algorithm: Algorithm) -> bool {
        // The derived forecast of RSA in batches is computed from the signatures of RSA-2048.
        self.names(Subject::Algorithm(algorithm)) || (algorithm == Algorithm::Rsa2048 && self.forecasts())
    }

    pub(crate) fn forecasts(&self) -> bool {
        self.names(Subject::Handshakes)
    }

    fn names(&self, subject: Subject) -> bool {
        self.subjects.is_empty() || self.subjects.contains(&subject)
    }

    pub(crate) fn pace(&self) -> Pace {
        let rounds = self.time.as_nanos() / SLICE.as_nanos();
        let rounds = rounds.clamp(FEWEST_ROUNDS, ROUNDS) as u32;
        Pace { rounds, slice: self.time / rounds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_time_is_more_rounds_and_then_longer_ones() {
        let pace = |milliseconds| {
            Settings { time: Duration::from_millis(milliseconds), ..Settings::default() }.pace()
        };
        assert_eq!(pace(1), Pace { rounds: 3, slice: Duration::from_millis(1) / 3 });
        assert_eq!(pace(50), Pace { rounds: 5, slice: SLICE });
        assert_eq!(pace(1000), Pace { rounds: 20, slice: Duration::from_millis(50) });
    }

    #[test]
    fn handshakes_need_rsa_2048() {
        let only = |subject| Settings { subjects: vec![subject], ..Settings::default() };
        let handshakes = only(Subject::Handshakes);
        assert!(handshakes.forecasts() && handshakes.measures(Algorithm::Rsa2048));
        assert!(!handshakes.measures(Algorithm::Rsa3072));
        let p256 = only(Subject::Algorithm(Algorithm::P256));
        assert!(p256.measures(Algorithm::P256) && !p256.measures(Algorithm::Rsa2048) && !p256.forecasts());
        assert!(Algorithm::ALL.into_iter().all(|algorithm| Settings::default().measures(algorithm)));
    }
}
