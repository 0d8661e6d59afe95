//! Visits of some time as rows, as many as can be looked at in one go.

use std::collections::HashMap;

use rusqlite::params;

use super::{Database, Query, Span};
use crate::error::VisitsError;
use crate::random::Random;
use crate::row::{self, Row};
use crate::store::{ALL_HOSTS, DAY, HOUR, Kind, LEVEL_MINUTE, SAMPLE_HOUR};

/// Rows that are looked at, and one of each portion.
const ROWS: usize = 100_000;
/// Portions that are looked at.
const PORTIONS: usize = 20_000;

/// A random sample of visits.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// From when on, in Unix seconds.
    pub(crate) start: i64,
    /// Seconds of a period.
    pub(crate) step: i64,
    /// Visits that there were.
    pub(crate) visits: u64,
    /// Some of them.
    pub(crate) rows: Vec<Sampled>,
    /// Names by kind and number.
    pub(crate) names: HashMap<(u8, u16), String>,
    /// Experiments by number: their name and arms.
    pub(crate) experiments: HashMap<u16, (String, Vec<String>)>,
}

/// A visit of a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampled {
    /// The number of visits that it stands for.
    pub(crate) weight: f64,
    /// The number of its host.
    pub(crate) host: u16,
    /// The hour or the day, counted from the first.
    pub(crate) period: u16,
    pub(crate) row: Row,
}

impl Sample {
    /// The name with this number.
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

/// The date of a day that is counted from 1970.
fn date(day: i64) -> String {
    // Years of 400 begin with March, so that their last day is the one that comes and goes.
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

struct Portion {
    id: i64,
    start: i64,
    host: u16,
    /// Visits that it stands for: its own, and those of portions that are not looked at.
    seen: f64,
    rows: usize,
}

impl Database {
    /// A sample of the visits that `query` asks for.
    pub(crate) fn sample(&self, query: &Query, now: i64) -> Result<Sample, VisitsError> {
        let (start, step) = (query.span.start(now), query.span.period());
        let mut sample = Sample { start, step, ..Sample::default() };
        let Some(host) = self.host(query.host.as_deref())? else { return Ok(sample) };
        let (visits, portions) = self.portions(query.span, host, now)?;
        sample.visits = visits;
        let rows: usize = portions.iter().map(|portion| portion.rows).sum();
        let part = (ROWS as f64 / rows.max(1) as f64).min(1.0);
        let mut statement = self.connection.prepare("SELECT substr(rows, 1, ?) FROM sample WHERE id = ?")?;
        for portion in portions {
            // Rows are in random order: the first are as good as any.
            let wanted = (portion.rows as f64 * part).ceil() as usize;
            let bytes: Vec<u8> =
                statement.query_row(params![(wanted * row::LENGTH) as i64, portion.id], |row| row.get(0))?;
            let (rows, _) = bytes.as_chunks::<{ row::LENGTH }>();
            let (weight, host) = (portion.seen / rows.len().max(1) as f64, portion.host);
            let period = (portion.start.div_euclid(step) - start.div_euclid(step)) as u16;
            sample.rows.extend(rows.iter().map(|row| Sampled { weight, host, period, row: Row::read(row) }));
        }
        self.read_names(&mut sample)?;
        Ok(sample)
    }

    /// The number of visits, and what has them. Of too many portions some are drawn, each with a probability in proportion to its
    /// visits.
    fn portions(&self, span: Span, host: i64, now: i64) -> Result<(u64, Vec<Portion>), VisitsError> {
        let level = if span == Span::Hour { LEVEL_MINUTE } else { SAMPLE_HOUR };
        let of = "FROM sample WHERE level IN (0, ?1) AND rolled IN (0, 1)
            AND (level = ?1 OR rolled = 0) AND start >= ?2 AND start <= ?3 AND (?4 = ?5 OR host = ?5)";
        let values = params![level, span.start(now), now, ALL_HOSTS, host];
        let text = format!("SELECT count(*), coalesce(sum(seen), 0) {of}");
        let (count, visits) = self
            .connection
            .query_row(&text, values, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        // Of one visit.
        let chance = if count as usize <= PORTIONS { f64::INFINITY } else { PORTIONS as f64 / visits as f64 };
        let mut statement =
            self.connection.prepare(&format!("SELECT id, start, host, seen, length(rows) {of}"))?;
        let mut found = statement.query(values)?;
        let (mut portions, mut sum) = (Vec::new(), Random::new().unit());
        while let Some(row) = found.next()? {
            let seen = row.get::<_, i64>(3)? as f64;
            let chance = (seen * chance).min(1.0);
            let before = sum;
            sum += chance;
            if chance < 1.0 && sum.floor() <= before.floor() {
                continue;
            }
            let rows = row.get::<_, i64>(4)? as usize / row::LENGTH;
            let (id, start, host) = (row.get(0)?, row.get(1)?, row.get(2)?);
            portions.push(Portion { id, start, host, seen: seen / chance, rows });
        }
        Ok((visits as u64, portions))
    }

    fn read_names(&self, sample: &mut Sample) -> Result<(), VisitsError> {
        let mut statement = self.connection.prepare("SELECT kind, number, text FROM name")?;
        let names = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
        sample.names = names.collect::<Result<_, _>>()?;
        let mut statement = self.connection.prepare("SELECT id, name, arms FROM experiment")?;
        let experiments = statement.query_map([], |row| {
            let arms: String = row.get(2)?;
            Ok((row.get(0)?, (row.get(1)?, arms.lines().map(str::to_owned).collect())))
        })?;
        sample.experiments = experiments.collect::<Result<_, _>>()?;
        Ok(())
    }
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
