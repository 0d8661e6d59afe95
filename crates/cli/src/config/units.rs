//! Sizes and durations as an operator writes them: `"64KiB"`, `"1h30m"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::values::Written;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// A number of bytes, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeLimit(pub(crate) Option<u64>);

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Period(pub(crate) Duration);

const SIZE_UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

const PERIOD_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

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
        while !rest.is_empty() || text.is_empty() {
            let (number, unit, after) = leading(rest).ok_or_else(wrong)?;
            let scale = scale(unit, &PERIOD_UNITS).ok_or_else(wrong)?;
            total = total.zip(number.checked_mul(scale)).and_then(|(sum, part)| sum.checked_add(part));
            rest = after;
        }
        let period = total.map(Duration::from_millis).filter(|period| *period <= LONGEST);
        period.map(Self).ok_or_else(|| format!("{text:?} is more than a hundred years"))
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
        let milliseconds = self.0.as_millis() as u64;
        let fits = |scale: u64| milliseconds >= scale && milliseconds.is_multiple_of(scale);
        let (name, scale) =
            PERIOD_UNITS.iter().rev().find(|(_, scale)| fits(*scale)).unwrap_or(&PERIOD_UNITS[0]);
        write!(f, "{}{name}", milliseconds / scale)
    }
}

impl Written for Size {
    const EXPECTED: &'static str = "a size in quotes, as \"64KiB\"";
}

impl Written for SizeLimit {
    const EXPECTED: &'static str = "a size in quotes, as \"10MiB\", or \"none\"";
}

impl Written for Period {
    const EXPECTED: &'static str = "a duration in quotes, as \"10s\"";
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
            [("10s", 10), ("1h30m", 5400), ("180d", 180 * 86_400), ("0s", 0), ("1000ms", 1)]
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
    fn values_are_shown_as_they_would_be_written() {
        assert_eq!(Size(65_536).to_string(), "64KiB");
        assert_eq!(Size(1_000).to_string(), "1000B");
        assert_eq!(Period(Duration::from_hours(1)).to_string(), "1h");
        assert_eq!(Period(Duration::from_secs(90)).to_string(), "90s");
        assert_eq!(Period(Duration::ZERO).to_string(), "0ms");
    }
}
