//! Times of packets.

use std::time::Duration;

use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Nanoseconds since 1970 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time of a pcapng packet: `units` and `offset` seconds. `resolution` is the value of `if_tsresol`: units per second as an
    /// exponent of 10, or of 2 if the highest bit is set. Saturates.
    pub(crate) fn from_units(units: u64, resolution: u8, offset: i64) -> Self {
        // The product has up to 94 bits.
        let nanos = u128::from(units) * 1_000_000_000;
        let nanos = match resolution {
            0x80.. => nanos >> (resolution & 0x7f),
            // Units of more than 10^38 per second are shorter than a nanosecond in any number.
            _ => 10_u128.checked_pow(resolution.into()).map_or(0, |per_second| nanos / per_second),
        };
        let nanos =
            i128::try_from(nanos).unwrap_or(i128::MAX).saturating_add(i128::from(offset) * 1_000_000_000);
        Self(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// Time since `earlier`; zero if the clock of the recording went backwards.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Later time; saturates.
    pub(crate) fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(time)))
    }

    /// Earlier time; saturates.
    pub(crate) fn minus(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(nanoseconds(time)))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Serialize for Nanos {
    /// Writes RFC 3339 in UTC.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0)).ok();
        time.and_then(|time| time.format(&Rfc3339).ok()).serialize(serializer)
    }
}

/// Milliseconds, rounded to microseconds.
pub(crate) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Whole microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A duration for readers: `85 µs`, `1.25 ms`, `260 ms`, `1.20 s`.
pub(crate) fn text(time: Duration) -> String {
    brisk_report::figures::duration(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_all_resolutions_are_nanoseconds() {
        assert_eq!(Nanos::from_units(1_500_000, 6, 0), Nanos(1_500_000_000));
        assert_eq!(Nanos::from_units(3, 0x81, 1), Nanos(2_500_000_000));
        assert_eq!(Nanos::from_units(1, 0, -5), Nanos(0));
        assert_eq!(Nanos::from_units(u64::MAX, 0, i64::MAX), Nanos(u64::MAX));
        assert_eq!(Nanos::from_units(5 << 20, 0x94, 0), Nanos(5_000_000_000));
        assert_eq!(Nanos::from_units(u64::MAX, 0x80 | 63, 0), Nanos(1_999_999_999));
        assert_eq!(Nanos::from_units(u64::MAX, 19, 0), Nanos(1_844_674_407));
        assert_eq!(Nanos::from_units(u64::MAX, 20, 0), Nanos(184_467_440));
        assert_eq!(
            [0x7f, 0xff, 39].map(|resolution| Nanos::from_units(u64::MAX, resolution, 7)),
            [Nanos(7_000_000_000); 3]
        );
        assert_eq!(Nanos(5).since(Nanos(7)), Duration::ZERO);
    }
}
