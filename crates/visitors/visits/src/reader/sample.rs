//! Reads samples of visits from the database.

use rusqlite::params;

use super::{Database, Query, Span};
use crate::error::VisitsError;
use crate::random::Random;
use crate::row::{self, Row};
use crate::sample::{Sample, Sampled};
use crate::store::{ALL_HOSTS, Kind, LEVEL_MINUTE, SAMPLE_HOUR};

/// Maximum number of rows read, beyond one per portion.
const ROWS: usize = 100_000;
/// Maximum number of portions read.
const PORTIONS: usize = 20_000;

struct Portion {
    id: i64,
    start: i64,
    host: u16,
    /// Number of visits represented: those of this portion and of portions that are not read.
    seen: f64,
    rows: usize,
}

impl Database {
    /// Reads a sample of the visits that `query` selects.
    pub(crate) fn sample(&self, query: &Query, now: i64) -> Result<Sample, VisitsError> {
        let (start, step) = (query.span.start(now), query.span.period());
        let mut sample = Sample { start, step, ..Sample::default() };
        let Some(host) = self.host(query.host.as_deref())? else { return Ok(sample) };
        let (visits, portions) = self.portions(query.span, host, now)?;
        sample.visits = visits;
        let rows: usize = portions.iter().map(|portion| portion.rows).sum();
        let part = (ROWS as f64 / rows.max(1) as f64).min(1.0);
        // Rows have a fixed length, so that the beginning of a portion is cut without decoding it.
        let mut statement = self.connection.prepare("SELECT substr(rows, 1, ?) FROM sample WHERE id = ?")?;
        for portion in portions {
            // Rows are in random order, so the first ones are a random sample.
            let wanted = (portion.rows as f64 * part).ceil() as usize;
            let bytes: Vec<u8> =
                statement.query_row(params![(wanted * row::LENGTH) as i64, portion.id], |row| row.get(0))?;
            let (rows, _) = bytes.as_chunks::<{ row::LENGTH }>();
            let (weight, host) = (portion.seen / rows.len().max(1) as f64, portion.host);
            let period = (portion.start.div_euclid(step) - start.div_euclid(step)) as u16;
            let at = portion.start;
            sample.rows.extend(rows.iter().map(|row| Sampled {
                weight,
                host,
                period,
                at,
                row: Row::read(row),
            }));
        }
        if let Some(page) = &query.page {
            let number = self.number(Kind::Page, page)?;
            sample.rows.retain(|visit| number == Some(visit.row.page.into()));
            sample.visits = sample.rows.iter().map(|visit| visit.weight).sum::<f64>().round() as u64;
        }
        self.read_names(&mut sample)?;
        Ok(sample)
    }

    /// The number of visits, and the portions to read. If there are more than [`PORTIONS`], some are drawn with a
    /// probability proportional to their visits.
    fn portions(&self, span: Span, host: i64, now: i64) -> Result<(u64, Vec<Portion>), VisitsError> {
        let level = if span == Span::Hour { LEVEL_MINUTE } else { SAMPLE_HOUR };
        // `rolled IN (0, 1)` restricts nothing, but lets `SQLite` use the index, whose second column is
        // `rolled`.
        let of = "FROM sample WHERE level IN (0, ?1) AND rolled IN (0, 1)
            AND (level = ?1 OR rolled = 0) AND start >= ?2 AND start <= ?3 AND (?4 = ?5 OR host = ?5)";
        let values = params![level, span.start(now), now, ALL_HOSTS, host];
        let text = format!("SELECT count(*), coalesce(sum(seen), 0) {of}");
        let (count, visits) = self
            .connection
            .query_row(&text, values, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        // Probability per visit.
        let chance = if count as usize <= PORTIONS { f64::INFINITY } else { PORTIONS as f64 / visits as f64 };
        let mut statement =
            self.connection.prepare(&format!("SELECT id, start, host, seen, length(rows) {of}"))?;
        let mut found = statement.query(values)?;
        let (mut portions, mut sum) = (Vec::new(), Random::new().unit());
        while let Some(row) = found.next()? {
            let seen = row.get::<_, i64>(3)? as f64;
            // Systematic sampling: a portion is read when the sum of the chances passes a whole number.
            let chance = (seen * chance).min(1.0);
            let before = sum;
            sum += chance;
            if chance < 1.0 && sum.floor() <= before.floor() {
                continue;
            }
            let rows = row.get::<_, i64>(4)? as usize / row::LENGTH;
            let (id, start, host) = (row.get(0)?, row.get(1)?, row.get(2)?);
            // Divided by its chance, so that it also represents portions that are not read.
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
