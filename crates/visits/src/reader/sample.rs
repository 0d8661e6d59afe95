//! Visits of some time as rows, as many as can be looked at in one go.

use std::collections::HashMap;

use rusqlite::params;

use super::{Database, Query, Span};
use crate::error::VisitsError;
use crate::row::{self, Row};
use crate::store::{ALL_HOSTS, Kind, LEVEL_MINUTE, SAMPLE_HOUR};

/// Rows that are looked at.
const ROWS: usize = 100_000;

/// A random sample of visits.
#[derive(Debug, Default)]
pub(crate) struct Sample {
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
    pub(crate) row: Row,
}

impl Sample {
    /// The name with this number.
    pub(crate) fn name(&self, kind: Kind, number: u16) -> &str {
        self.names.get(&(kind as u8, number)).map_or("other", String::as_str)
    }
}

struct Portion {
    id: i64,
    host: u16,
    seen: u64,
    rows: usize,
}

impl Database {
    /// A sample of the visits that `query` asks for.
    pub(crate) fn sample(&self, query: &Query, now: i64) -> Result<Sample, VisitsError> {
        let mut sample = Sample::default();
        let Some(host) = self.host(query.host.as_deref())? else { return Ok(sample) };
        let portions = self.portions(query.span, host, now)?;
        let rows: usize = portions.iter().map(|portion| portion.rows).sum();
        let part = (ROWS as f64 / rows.max(1) as f64).min(1.0);
        let mut statement = self.connection.prepare("SELECT substr(rows, 1, ?) FROM sample WHERE id = ?")?;
        for portion in portions {
            // Rows are in random order: the first are as good as any.
            let wanted = (portion.rows as f64 * part).ceil() as usize;
            let bytes: Vec<u8> =
                statement.query_row(params![(wanted * row::LENGTH) as i64, portion.id], |row| row.get(0))?;
            let (rows, _) = bytes.as_chunks::<{ row::LENGTH }>();
            let weight = portion.seen as f64 / rows.len().max(1) as f64;
            sample.visits += portion.seen;
            let rows = rows.iter().map(|row| Sampled { weight, host: portion.host, row: Row::read(row) });
            sample.rows.extend(rows);
        }
        self.read_names(&mut sample)?;
        Ok(sample)
    }

    fn portions(&self, span: Span, host: i64, now: i64) -> Result<Vec<Portion>, VisitsError> {
        let level = if span == Span::Hour { LEVEL_MINUTE } else { SAMPLE_HOUR };
        let text =
            "SELECT id, host, seen, length(rows) FROM sample WHERE level IN (0, ?1) AND rolled IN (0, 1)
            AND (level = ?1 OR rolled = 0) AND start >= ?2 AND start <= ?3 AND (?4 = ?5 OR host = ?5)";
        let mut statement = self.connection.prepare(text)?;
        let found = statement.query_map(params![level, span.start(now), now, ALL_HOSTS, host], |row| {
            let (seen, bytes): (i64, i64) = (row.get(2)?, row.get(3)?);
            Ok(Portion {
                id: row.get(0)?,
                host: row.get(1)?,
                seen: seen as u64,
                rows: bytes as usize / row::LENGTH,
            })
        })?;
        Ok(found.collect::<Result<_, _>>()?)
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
