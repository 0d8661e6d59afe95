//! Terms of overload: [`Level`], its [`Source`]s, and the [`Work`] that is refused.

use brisk_telemetry::named;

named! {
    /// Degree of overload. Each level includes the effects of the levels below it.
    Level {
        /// No overload.
        Normal = "normal",
        /// Idle connections close sooner, if resources that connections hold are short.
        Elevated = "elevated",
        /// Requests of low priority are refused.
        High = "high",
        /// Full handshakes are refused. Connections close after a response, if resources that they hold are short.
        Severe = "severe",
        /// Requests of normal priority are refused, and then connections.
        Critical = "critical",
    }
}

named! {
    /// Measured quantity that causes overload. A value is a share, and 1 stands for the limit of the quantity.
    Source {
        /// Delay of the event loops of workers by their own work, in seconds.
        LoopDelay = "loop-delay",
        /// Key operations in the queue of the engine.
        KeyQueue = "key-queue",
        /// Connections that the kernel has completed and no worker has accepted.
        AcceptQueue = "accept-queue",
        /// Connections of clients, or file descriptors.
        Descriptors = "descriptors",
        /// Memory reserved for clients.
        Budgets = "budgets",
        /// Memory of the control group, without the page cache.
        Memory = "memory",
        /// Time in which all tasks of the control group waited for memory (PSI).
        Stalls = "stalls",
    }
}

named! {
    /// Work that is refused in an overload, in the order of refusal.
    Work {
        /// Requests of low priority.
        Low = "low",
        /// Full handshakes.
        FullHandshake = "full-handshake",
        /// Requests of normal priority.
        Normal = "normal",
        /// Connections.
        Connection = "connection",
    }
}

/// Treatment of an overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Work is refused.
    #[default]
    Shed,
    /// Sources are measured, and no work is refused.
    Observe,
}

/// Number of [`Source`]s.
pub(crate) const SOURCES: usize = Source::ALL.len();

impl Level {
    /// The level with a [`number`](Self::number); the highest one for larger numbers.
    pub(crate) fn of(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Critical)
    }

    /// 0 for [`Self::Normal`] to 4 for [`Self::Critical`].
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Whether the overload has at least this degree.
    pub const fn is_at_least(self, other: Self) -> bool {
        self.number() >= other.number()
    }
}

/// No value reaches this threshold.
const NEVER: f64 = f64::INFINITY;

impl Source {
    /// The values from which the source causes [`Level::Elevated`], and so on up to [`Level::Critical`].
    pub(crate) const fn thresholds(self) -> [f64; 4] {
        match self {
            Self::LoopDelay => [0.05, 0.1, 0.2, 0.3],
            // Full handshakes are refused from the second one on, and nothing else: requests need no key.
            Self::KeyQueue => [0.5, 0.75, NEVER, NEVER],
            Self::AcceptQueue => [0.1, 0.25, 0.5, 0.75],
            // Both have a limit of their own with a share for each client: small clients stay served.
            Self::Descriptors | Self::Budgets => [0.8, 0.9, NEVER, NEVER],
            Self::Memory => [0.85, 0.9, 0.94, 0.97],
            Self::Stalls => [0.1, 0.2, 0.4, 0.6],
        }
    }

    /// Whether the source refuses requests: all except for [`Self::KeyQueue`], because requests need no key.
    pub(crate) const fn concerns_requests(self) -> bool {
        !matches!(self, Self::KeyQueue)
    }

    /// Whether the source is [`Self::KeyQueue`].
    pub(crate) const fn concerns_keys(self) -> bool {
        matches!(self, Self::KeyQueue)
    }

    /// Whether the source is a resource that open connections hold, which their end frees.
    pub(crate) const fn is_held_by_connections(self) -> bool {
        matches!(self, Self::Descriptors | Self::Budgets | Self::Memory | Self::Stalls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_numbers_name_them() {
        for (number, level) in (0..).zip(Level::ALL) {
            assert_eq!((level.number(), Level::of(number)), (number, *level));
        }
        assert_eq!(Level::of(9), Level::Critical);
        assert!(Level::High.is_at_least(Level::High) && !Level::Elevated.is_at_least(Level::High));
    }

    #[test]
    fn thresholds_ascend() {
        for source in Source::ALL {
            assert!(source.thresholds().is_sorted(), "{source}");
        }
    }
}
