//! Roll-up of figures: minutes become hours.

use std::collections::BTreeMap;

use rusqlite::{Transaction, TransactionBehavior, params};

use super::Store;
use crate::error::VisitsError;
use crate::gather::fair_share;
use crate::histogram::TimeHistogram;
use crate::random::Random;
use crate::row;
use crate::settings::Settings;

/// Level of samples per hour.
pub(crate) const SAMPLE_HOUR: i64 = 1;
/// Levels of histograms: per ten minutes and per hour.
pub(crate) const SERIES_TEN_MINUTES: i64 = 1;
pub(crate) const SERIES_HOUR: i64 = 2;

pub(crate) const HOUR: i64 = 3_600;
pub(crate) const DAY: i64 = 24 * HOUR;

/// Delay in seconds before a past hour is rolled up, so that visits queued at its end are included.
const GRACE: i64 = 120;
/// Maximum number of visits in the sample of an hour, of all hosts.
const KEPT_OF_AN_HOUR: u64 = 6_000;
/// Share of the database for samples.
const SAMPLES_PART: f64 = 0.45;

/// Maximum number of hours per roll-up; more than two exist only after an outage of the database.
const HOURS_AT_ONCE: i64 = 8;

impl Store {
    /// Rolls up the hours that had ended at `now`. Each host is a separate transaction: interrupted work is repeated,
    /// and nothing is counted twice.
    pub(crate) fn roll_up(&mut self, now: i64, settings: &Settings) -> Result<(), VisitsError> {
        let over = (now - GRACE).div_euclid(HOUR) * HOUR;
        let text =
            "SELECT DISTINCT start / 3600 FROM sample WHERE level = 0 AND rolled = 0 AND start < ? LIMIT ?";
        let hours = self
            .connection
            .prepare_cached(text)?
            .query_map([over, HOURS_AT_ONCE], |row| row.get(0))?
            .collect::<Result<Vec<i64>, _>>()?;
        let mut random = Random::new();
        for hour in hours {
            self.roll_up_hour(hour * HOUR, kept_of_an_hour(settings), &mut random)?;
        }
        Ok(())
    }

    fn roll_up_hour(&mut self, hour: i64, most: usize, random: &mut Random) -> Result<(), VisitsError> {
        // -1 is `ALL_HOSTS`, which has series but no samples.
        let text = "SELECT host, sum(length(rows)) FROM sample
            WHERE level = 0 AND rolled = 0 AND start >= ?1 AND start < ?1 + 3600 GROUP BY host
            UNION ALL SELECT -1, 0";
        let hosts = self
            .connection
            .prepare_cached(text)?
            .query_map([hour], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as usize / row::LENGTH)))?
            .collect::<Result<Vec<(i64, usize)>, _>>()?;
        let kept = fair_share(hosts.iter().map(|(_, rows)| *rows), most);
        for (host, _) in hosts {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            roll_up_sample(&transaction, hour, host, kept, random)?;
            roll_up_series(&transaction, hour, host)?;
            transaction.commit()?;
        }
        Ok(())
    }
}

/// Number of visits in the sample of an hour, of all hosts.
fn kept_of_an_hour(settings: &Settings) -> usize {
    let hours = (settings.keep.as_secs() / HOUR as u64).max(1);
    let room = settings.max_bytes as f64 * SAMPLES_PART / (hours as usize * row::LENGTH) as f64;
    KEPT_OF_AN_HOUR.min(room as u64).max(64) as usize
}

/// Merges the samples of the minutes of an hour. Their rows represent different numbers of visits, but rows of a
/// portion must represent the same number, so the hour gets one portion per class of weights.
fn roll_up_sample(
    transaction: &Transaction<'_>,
    hour: i64,
    host: i64,
    kept: usize,
    random: &mut Random,
) -> Result<(), VisitsError> {
    let text = "SELECT seen, rows FROM sample
        WHERE level = 0 AND rolled = 0 AND start >= ?1 AND start < ?1 + 3600 AND host = ?2";
    let mut statement = transaction.prepare_cached(text)?;
    let mut found = statement.query([hour, host])?;
    let mut classes = BTreeMap::<i32, Class>::new();
    while let Some(minute) = found.next()? {
        let (seen, rows): (i64, Vec<u8>) = (minute.get(0)?, minute.get(1)?);
        let (rows, _) = rows.as_chunks::<{ row::LENGTH }>();
        if seen <= 0 || rows.is_empty() {
            continue;
        }
        let weight = seen as f64 / rows.len() as f64;
        let class = classes.entry(weight.log2().floor() as i32).or_default();
        class.seen += seen;
        class.greatest = class.greatest.max(weight);
        class.rows.extend(rows.iter().map(|row| (*row, weight)));
    }
    let classes: Vec<_> = classes.into_values().collect();
    let sizes = sizes(&classes, kept);
    for (class, size) in classes.into_iter().zip(sizes) {
        let seen = class.seen;
        let rows = class.draw(size, random);
        let text = "INSERT INTO sample (level, rolled, start, host, seen, rows) VALUES (?, 1, ?, ?, ?, ?)";
        transaction.prepare_cached(text)?.execute(params![SAMPLE_HOUR, hour, host, seen, rows.concat()])?;
    }
    let text = "UPDATE sample SET rolled = 1
        WHERE level = 0 AND rolled = 0 AND start >= ?1 AND start < ?1 + 3600 AND host = ?2";
    transaction.prepare_cached(text)?.execute([hour, host])?;
    Ok(())
}

/// Rows whose weights differ by less than a factor of `2`.
#[derive(Debug, Default)]
struct Class {
    /// Number of visits that the rows represent.
    seen: i64,
    /// The greatest weight.
    greatest: f64,
    /// Rows with their weights.
    rows: Vec<([u8; row::LENGTH], f64)>,
}

impl Class {
    /// Number of rows that can be drawn so that all have the same weight afterwards.
    fn most(&self) -> usize {
        let most = self.seen as f64 / self.greatest;
        // All of them if the weights are equal, despite rounding errors.
        if (most - self.rows.len() as f64).abs() < 1e-6 { self.rows.len() } else { (most as usize).max(1) }
    }

    /// Draws `size` rows, at most [`most`](Self::most), each with a probability proportional to its weight
    /// (systematic sampling in random order).
    fn draw(mut self, size: usize, random: &mut Random) -> Vec<[u8; row::LENGTH]> {
        // Shuffled, because the reader takes the first rows of a portion as a random sample.
        random.shuffle(&mut self.rows);
        if size >= self.rows.len() {
            return self.rows.into_iter().map(|(row, _)| row).collect();
        }
        let step = self.rows.iter().map(|(_, weight)| weight).sum::<f64>() / size as f64;
        let (mut below, begin) = (0.0, 1.0 - random.unit());
        let mut drawn = Vec::with_capacity(size);
        for (row, weight) in &self.rows {
            below += weight;
            if drawn.len() < size && (drawn.len() as f64 + begin) * step < below {
                drawn.push(*row);
            }
        }
        drawn
    }
}

/// The number of rows to keep of each class, about `most` in total: as proportional to their visits as possible, and
/// at least one.
fn sizes(classes: &[Class], most: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..classes.len()).collect();
    // Classes that cannot provide their share come first and leave the rest to the others.
    let room = |place: &usize| classes[*place].most() as f64 / classes[*place].seen as f64;
    order.sort_by(|a, b| room(a).total_cmp(&room(b)));
    let mut seen: i64 = classes.iter().map(|class| class.seen).sum();
    let (mut left, mut sizes) = (most.min(u32::MAX as usize), vec![0; classes.len()]);
    for place in order {
        let class = &classes[place];
        let share = (left as f64 * class.seen as f64 / seen as f64).round() as usize;
        sizes[place] = share.clamp(1, class.most());
        left = left.saturating_sub(sizes[place]);
        seen -= class.seen;
    }
    sizes
}

/// Merges each [`TimeHistogram`] of the minutes of an hour.
fn roll_up_series(transaction: &Transaction<'_>, hour: i64, host: i64) -> Result<(), VisitsError> {
    let text = "SELECT metric, start, histogram FROM series
        WHERE level = 0 AND rolled = 0 AND start >= ?1 AND start < ?1 + 3600 AND host = ?2";
    let mut statement = transaction.prepare_cached(text)?;
    let mut found = statement.query([hour, host])?;
    let mut sums = BTreeMap::<(i64, u8, i64), TimeHistogram>::new();
    while let Some(minute) = found.next()? {
        // Skips invalid metric numbers.
        let Ok(metric) = minute.get::<_, u8>(0) else { continue };
        let (start, histogram): (i64, Vec<u8>) = (minute.get(1)?, minute.get(2)?);
        for (level, start) in [(SERIES_TEN_MINUTES, start - start.rem_euclid(600)), (SERIES_HOUR, hour)] {
            sums.entry((level, metric, start)).or_default().merge(&histogram);
        }
    }
    for ((level, metric, start), histogram) in sums {
        let text =
            "INSERT INTO series (level, rolled, start, host, metric, histogram) VALUES (?, 1, ?, ?, ?, ?)";
        let values = params![level, start, host, metric, histogram.encode()];
        transaction.prepare_cached(text)?.execute(values)?;
    }
    let text = "UPDATE series SET rolled = 1
        WHERE level = 0 AND rolled = 0 AND start >= ?1 AND start < ?1 + 3600 AND host = ?2";
    transaction.prepare_cached(text)?.execute([hour, host])?;
    Ok(())
}

#[cfg(test)]
mod tests;
