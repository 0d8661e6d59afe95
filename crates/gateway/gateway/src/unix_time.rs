//! Times as numbers of seconds, for pages and metrics.

use std::time::{Duration, SystemTime};

/// Seconds from the Unix epoch to `time`; a time before the epoch is 0.
pub(crate) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
