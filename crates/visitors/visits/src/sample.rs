//! A random sample of visits, limited to the number that can be analysed at once.

use std::collections::HashMap;

use crate::row::Row;
use crate::store::{DAY, HOUR, Kind};

/// A random sample of visits.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Start of the span, in Unix seconds.
    pub(crate) start: i64,
    /// Length of a period in seconds.
    pub(crate) step: i64,
    /// Total number of visits.
    pub(crate) visits: u64,
    /// Visits of the sample.
    pub(crate) rows: Vec<Sampled>,
    /// Names by kind and number.
    pub(crate) names: HashMap<(u8, u16), String>,
    /// Experiments by number, with name and arms.
    pub(crate) experiments: HashMap<u16, (String, Vec<String>)>,
}

/// A visit of a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampled {
    /// Number of visits that this one represents.
    pub(crate) weight: f64,
    /// The number of the visit's host.
    pub(crate) host: u16,
    /// Index of the hour or day, counted from the first.
    pub(crate) period: u16,
    /// Start of the visit's minute or hour, in Unix seconds.
    pub(crate) at: i64,
    pub(crate) row: Row,
}

impl Sample {
    /// The name with this `number` among those of `kind`.
    pub(crate) fn name(&self, kind: Kind, number: u16) -> &str {
        self.names.get(&(kind as u8, number)).map_or("other", String::as_str)
    }

    /// The name of the period with this number.
    pub(crate) fn period(&self, number: u16) -> String {
        let first = self.start.div_euclid(self.step.max(1));
        let seconds = (first + i64::from(number)) * self.step;
        let day = date(seconds.div_euclid(DAY));
        if self.step < DAY { format!("{day} {:02}:00 UTC", seconds.rem_euclid(DAY) / HOUR) } else { day }
    }
}

/// Date of a day counted from 1970-01-01.
fn date(day: i64) -> String {
    // In years that start in March, the leap day is the last day.
    let day = day + 719_468;
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// A sample with a visit for each value of LCP. Each represents three visits, and their times alternate by a second.
#[cfg(test)]
pub(crate) fn of_paints(values: impl IntoIterator<Item = f64>) -> Sample {
    use crate::row::Numbers;
    let rows = values.into_iter().enumerate().map(|(number, ms)| {
        let mut visit = crate::Visit::new("a.test".into(), "/".into());
        assert!(visit.measures.set(crate::Metric::LargestPaint, ms));
        let at = 600 + number as i64 % 2;
        Sampled { weight: 3.0, host: 1, period: 0, at, row: Row::new(&visit, Numbers::default()) }
    });
    Sample { rows: rows.collect(), ..Sample::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        for (day, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_780, "2026-11-23"),
        ] {
            assert_eq!(date(day), expected);
        }
        let sample = Sample { start: 20_780 * DAY + 5 * HOUR, step: HOUR, ..Sample::default() };
        assert_eq!(sample.period(9), "2026-11-23 14:00 UTC");
        assert_eq!(Sample { step: DAY, ..sample }.period(1), "2026-11-24");
    }
}
