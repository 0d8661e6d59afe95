//! Sizes, durations and rates in the operator's notation: `"64KiB"`, `"1h30m"`, `"20/s"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use brisk_net::rates;

use crate::text::Written;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A number of bytes, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimit(pub Option<u64>);

/// A length of time, written as `"500ms"` or `"1h30m"`; at most a hundred years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

/// A length of time, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodLimit(pub Option<Period>);

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub rates::Rate);

/// The most events of a rate, and the most at once.
const MOST_EVENTS: u32 = 1_000_000;

const RATE_UNITS: [(&str, u64); 3] = [("s", 1), ("m", 60), ("h", 3600)];

// `Display` writes sizes with the first four, the units of 1024, and needs them in rising order.
const SIZE_UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

// Rising, because `Display` takes the last unit that divides a period. The second one is for zero, which none
// divides.
const PERIOD_UNITS: [(&str, u64); 6] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

/// Durations beyond this are slips: a hundred years.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a size: write a whole number and a unit, as \"64KiB\" or \"10MB\"");
        let (number, unit, rest) = leading(text).ok_or_else(wrong)?;
        let scale = scale(unit, &SIZE_UNITS).filter(|_| rest.is_empty()).ok_or_else(wrong)?;
        number.checked_mul(scale).map(Self).ok_or_else(|| format!("{text:?} is more than any machine has"))
    }
}

impl FromStr for SizeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let wrong = format!("{text:?} is not a size: write one as \"10MiB\", or \"none\" for no limit");
        text.parse::<Size>().map(|size| Self(Some(size.0))).map_err(|_| wrong)
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a duration: write a whole number and a unit, as \"500ms\", \"10s\" or \"180d\""
            )
        };
        let mut total = Some(0_u64);
        let mut rest = text;
        // An empty text has one turn too, which reports it: otherwise it would be a period of zero.
        while !rest.is_empty() || text.is_empty() {
            let (number, unit, after) = leading(rest).ok_or_else(wrong)?;
            let scale = scale(unit, &PERIOD_UNITS).ok_or_else(wrong)?;
            // Too long a period is noted and not reported here: a text that is no duration at all has another
            // message.
            total = total.zip(number.checked_mul(scale)).and_then(|(sum, part)| sum.checked_add(part));
            rest = after;
        }
        let period = total.map(Duration::from_micros).filter(|period| *period <= LONGEST);
        period.map(Self).ok_or_else(|| format!("{text:?} is more than a hundred years"))
    }
}

impl FromStr for Rate {
    type Err = String;

    /// `20/s`, or `20/s burst 100`: without a burst as many at once as there may be in the unit.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a rate: write a number from 1 to {MOST_EVENTS} for a second, a minute or an hour, \
                 as \"20/s\", \"600/m\" or \"20/s burst 100\""
            )
        };
        let events = |number: &str| {
            number.parse::<u32>().ok().filter(|number| (1..=MOST_EVENTS).contains(number)).ok_or_else(wrong)
        };
        let (rate, burst) =
            text.split_once(" burst ").map_or((text, None), |(rate, burst)| (rate, Some(burst)));
        let (number, unit) = rate.split_once('/').ok_or_else(wrong)?;
        let (number, seconds) = (events(number)?, scale(unit, &RATE_UNITS).ok_or_else(wrong)?);
        let interval = Duration::from_secs(seconds) / number;
        let burst = burst.map_or(Ok(number), events)?;
        Ok(Self(rates::Rate { interval, burst }))
    }
}

impl FromStr for PeriodLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let wrong = format!("{text:?} is not a duration: write one as \"30s\", or \"none\"");
        text.parse::<Period>().map(|period| Self(Some(period))).map_err(|_| wrong)
    }
}

/// Splits `"1h30m"` into 1, `"h"` and `"30m"`.
fn leading(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, rest) = text.split_at(digits);
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    Some((number.parse().ok()?, unit, rest))
}

fn scale(unit: &str, units: &[(&str, u64)]) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale)
}

impl fmt::Display for Size {
    /// The largest unit of 1024 that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |scale: u64| self.0 >= scale && self.0.is_multiple_of(scale);
        let (name, scale) =
            SIZE_UNITS[..4].iter().rev().find(|(_, scale)| fits(*scale)).unwrap_or(&SIZE_UNITS[0]);
        write!(f, "{}{name}", self.0 / scale)
    }
}

impl fmt::Display for Period {
    /// The largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let microseconds = self.0.as_micros() as u64;
        let fits = |scale: u64| microseconds >= scale && microseconds.is_multiple_of(scale);
        let (name, scale) =
            PERIOD_UNITS.iter().rev().find(|(_, scale)| fits(*scale)).unwrap_or(&PERIOD_UNITS[1]);
        write!(f, "{}{name}", microseconds / scale)
    }
}

impl Written for Size {
    const EXPECTED: &'static str = "a size in quotes, as \"64KiB\"";
}

impl Written for SizeLimit {
    const EXPECTED: &'static str = "a size in quotes, as \"10MiB\", or \"none\"";
}

impl Written for Rate {
    const EXPECTED: &'static str = "a rate in quotes, as \"20/s\"";
}

impl Written for Period {
    const EXPECTED: &'static str = "a duration in quotes, as \"10s\"";
}

impl Written for PeriodLimit {
    const EXPECTED: &'static str = "a duration in quotes, as \"30s\", or \"none\"";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024_and_1000() {
        for (text, bytes) in
            [("0B", 0), ("1KiB", 1024), ("64KiB", 65_536), ("10MB", 10_000_000), ("2GiB", 2 << 30)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "64", "KiB", "64 KiB", "64kib", "1KiB2B", "-1B", "1.5MB", "99999999999999999999B"] {
            let message = text.parse::<Size>().expect_err(text);
            assert!(message.contains("is not a size: write a whole number and a unit"), "{message}");
        }
        assert_eq!(
            "99999999999GiB".parse::<Size>(),
            Err("\"99999999999GiB\" is more than any machine has".to_owned())
        );
    }

    #[test]
    fn durations_are_sums() {
        for (text, seconds) in
            [("10s", 10), ("1h30m", 5400), ("180d", 180 * 86_400), ("0s", 0), ("1000ms", 1), ("1000000us", 1)]
        {
            assert_eq!(text.parse(), Ok(Period(Duration::from_secs(seconds))), "{text}");
        }
        for text in ["", "10", "s", "10 s", "10x", "1h30", "-1s", "1.5h"] {
            let message = text.parse::<Period>().expect_err(text);
            assert!(message.contains("is not a duration: write a whole number and a unit"), "{message}");
        }
        assert_eq!("36501d".parse::<Period>(), Err("\"36501d\" is more than a hundred years".to_owned()));
    }

    #[test]
    fn rates_have_a_unit_of_time_and_may_have_a_burst() {
        let rate = |interval, burst| Ok(Rate(rates::Rate { interval, burst }));
        assert_eq!("20/s".parse(), rate(Duration::from_millis(50), 20));
        assert_eq!("600/m".parse(), rate(Duration::from_millis(100), 600));
        assert_eq!("1/h burst 5".parse(), rate(Duration::from_hours(1), 5));
        for text in ["", "20", "0/s", "20/d", "20 / s", "20/s burst", "20/s burst 0", "x/s", "1000001/s"] {
            let message = text.parse::<Rate>().expect_err(text);
            assert!(
                message.contains("is not a rate: write a number from 1 to 1000000 for a second"),
                "{message}"
            );
        }
    }

    #[test]
    fn values_are_shown_as_they_would_be_written() {
        assert_eq!(Size(65_536).to_string(), "64KiB");
        assert_eq!(Size(1_000).to_string(), "1000B");
        assert_eq!(Period(Duration::from_hours(1)).to_string(), "1h");
        assert_eq!(Period(Duration::from_secs(90)).to_string(), "90s");
        assert_eq!(Period(Duration::from_micros(1500)).to_string(), "1500us");
        assert_eq!(Period(Duration::ZERO).to_string(), "0ms");
    }
}
