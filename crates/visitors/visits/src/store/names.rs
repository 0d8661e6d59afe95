//! Numbers of names: hosts, routes, networks, pages, experiments. Each kind has a limit; names beyond it share number 0.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rusqlite::{OptionalExtension, Transaction, params};

use super::DAY;
use crate::error::VisitsError;
use crate::experiment::{Definitions, Experiment, ExperimentId, MOST_ARMS};
use crate::pages::MOST;

/// Maximum length of a stored name in bytes.
const LONGEST: usize = 255;

/// Kind of a name; its number is stored in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Host = 0,
    Route = 1,
    Network = 2,
    Page = 3,
}

/// Maximum number of experiments.
const MOST_EXPERIMENTS: i64 = 10_000;

/// Cache of the names in the database.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Numbers, each with the day of the last note in the database that the name is in use.
    numbers: HashMap<(Kind, Arc<str>), (u16, i64)>,
    experiments: HashMap<ExperimentId, u16>,
    /// Kinds that have reached their limit, with the day on which this was detected.
    full: HashMap<Kind, i64>,
}

impl Names {
    /// Clears the cache after a transaction was rolled back: numbers in the cache may not be in the database.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The number of a name, starting at 1; `0` if there are [`MOST`] of its kind.
    pub(super) fn number(
        &mut self,
        transaction: &Transaction<'_>,
        kind: Kind,
        text: &Arc<str>,
        now: i64,
    ) -> Result<u16, VisitsError> {
        let day = now / DAY;
        let key = (kind, Arc::clone(text));
        if let Some((number, used)) = self.numbers.get(&key)
            && *used == day
        {
            return Ok(*number);
        }
        let name = &text[..text.floor_char_boundary(LONGEST)];
        let number = match find(transaction, kind, name, day)? {
            Some(number) => number,
            // Tried again once a day: the search for a free number reads all names of the kind.
            None if self.full.get(&kind) == Some(&day) => 0,
            None => make(transaction, kind, name, day)?,
        };
        if number == 0 {
            self.full.insert(kind, day);
        }
        if self.numbers.len() > 4 * usize::from(MOST) {
            self.numbers.clear();
        }
        self.numbers.insert(key, (number, day));
        Ok(number)
    }

    /// The number of an experiment, starting at 1; `0` if it is not configured or there are [`MOST_EXPERIMENTS`].
    pub(super) fn experiment(
        &mut self,
        transaction: &Transaction<'_>,
        id: ExperimentId,
        definitions: &Definitions,
        now: i64,
    ) -> Result<u16, VisitsError> {
        // A removed experiment gets no more visits.
        let Some(experiment) = definitions.get(id).filter(|_| definitions.is_current(id)) else {
            return Ok(0);
        };
        if let Some(number) = self.experiments.get(&id) {
            return Ok(*number);
        }
        let number = experiment_number(transaction, &experiment, now)?;
        self.experiments.insert(id, number);
        Ok(number)
    }

    /// The number of a configured experiment whose row was ended by another process with a different configuration.
    /// The row is reopened unless a newer one exists.
    pub(super) fn go_on(
        &mut self,
        transaction: &Transaction<'_>,
        id: ExperimentId,
        definitions: &Definitions,
        now: i64,
    ) -> Result<u16, VisitsError> {
        let number = self.experiment(transaction, id, definitions, now)?;
        let text = "SELECT ended IS NOT NULL FROM experiment WHERE id = ?";
        let ended = transaction.prepare_cached(text)?.query_row([number], |row| row.get(0)).optional()?;
        if ended != Some(true) {
            return Ok(number);
        }
        // A unique index permits one running row of a definition, so the update is ignored if there is a
        // newer one.
        let text = "UPDATE OR IGNORE experiment SET ended = NULL WHERE id = ?";
        if transaction.prepare_cached(text)?.execute([number])? > 0 {
            return Ok(number);
        }
        self.experiments.remove(&id);
        self.experiment(transaction, id, definitions, now)
    }

    /// Ends the experiments that are no longer configured. Those of this process are ended first, so that an
    /// experiment which was removed and added again is a new one.
    pub(super) fn end_experiments(
        &mut self,
        transaction: &Transaction<'_>,
        definitions: &Definitions,
        now: i64,
    ) -> Result<(), VisitsError> {
        let end = "UPDATE experiment SET ended = ? WHERE id = ? AND ended IS NULL";
        for (_, number) in self.experiments.iter().filter(|(id, _)| !definitions.is_current(**id)) {
            transaction.prepare_cached(end)?.execute(params![now, number])?;
        }
        let mut current = HashSet::new();
        for id in definitions.ids() {
            current.insert(i64::from(self.experiment(transaction, id, definitions, now)?));
        }
        let mut statement = transaction.prepare_cached("SELECT id FROM experiment WHERE ended IS NULL")?;
        let running = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
        for number in running.into_iter().filter(|number| !current.contains(number)) {
            transaction.prepare_cached(end)?.execute(params![now, number])?;
        }
        Ok(())
    }
}

fn find(transaction: &Transaction<'_>, kind: Kind, name: &str, day: i64) -> Result<Option<u16>, VisitsError> {
    // One statement notes the use and returns the number. `max`, because a clock that was set back must not
    // make a name seem unused.
    let text = "UPDATE name SET used = max(used, ?) WHERE kind = ? AND text = ? RETURNING number";
    let mut statement = transaction.prepare_cached(text)?;
    Ok(statement.query_row(params![day, kind as u8, name], |row| row.get(0)).optional()?)
}

/// Assigns a name the next number, or a free one.
fn make(transaction: &Transaction<'_>, kind: Kind, name: &str, day: i64) -> Result<u16, VisitsError> {
    let text = "SELECT coalesce(max(number), 0) + 1 FROM name WHERE kind = ?";
    let mut number: u16 = transaction.query_row(text, [kind as u8], |row| row.get(0))?;
    if number > MOST {
        let text = "SELECT min(number) + 1 FROM (SELECT 0 AS number UNION ALL SELECT number FROM name WHERE kind = ?1)
            WHERE number < ?2 AND number + 1 NOT IN (SELECT number FROM name WHERE kind = ?1)";
        let free: Option<u16> = transaction.query_row(text, params![kind as u8, MOST], |row| row.get(0))?;
        let Some(free) = free else { return Ok(0) };
        number = free;
    }
    let text = "INSERT INTO name (kind, number, text, used) VALUES (?, ?, ?, ?)";
    transaction.prepare_cached(text)?.execute(params![kind as u8, number, name, day])?;
    Ok(number)
}

fn experiment_number(
    transaction: &Transaction<'_>,
    experiment: &Experiment,
    now: i64,
) -> Result<u16, VisitsError> {
    let arms: Vec<_> = experiment.arms.iter().take(MOST_ARMS).map(|arm| line(arm)).collect();
    let (name, arms, metric) = (line(&experiment.name), arms.join("\n"), experiment.metric as u8);
    let text = "SELECT id FROM experiment WHERE name = ? AND metric = ? AND margin = ? AND arms = ?
        AND ended IS NULL";
    let values = params![name, metric, experiment.margin, arms];
    if let Some(number) = transaction.query_row(text, values, |row| row.get(0)).optional()? {
        return Ok(number);
    }
    let last: i64 =
        transaction.query_row("SELECT coalesce(max(id), 0) FROM experiment", [], |row| row.get(0))?;
    if last >= MOST_EXPERIMENTS {
        tracing::warn!(experiment = name, "not compared: the database has {MOST_EXPERIMENTS} experiments");
        return Ok(0);
    }
    let text = "INSERT INTO experiment (id, name, metric, margin, arms, since) VALUES (?, ?, ?, ?, ?, ?)";
    let values = params![last + 1, name, metric, experiment.margin, arms, now];
    transaction.execute(text, values)?;
    Ok(last as u16 + 1)
}

/// The name truncated to [`LONGEST`] and in one line.
fn line(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST)].replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn database() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("schema-1.sql")).unwrap();
        connection.execute_batch(include_str!("schema-2.sql")).unwrap();
        connection
    }

    #[test]
    fn a_name_keeps_its_number() {
        let mut connection = database();
        let transaction = connection.transaction().unwrap();
        let mut names = Names::default();
        let number = |names: &mut Names, kind, text: &str, day| {
            names.number(&transaction, kind, &text.into(), day * DAY).unwrap()
        };
        assert_eq!(number(&mut names, Kind::Host, "a", 1), 1);
        assert_eq!(number(&mut names, Kind::Host, "b", 1), 2);
        assert_eq!(number(&mut names, Kind::Route, "b", 1), 1);
        assert_eq!(number(&mut names, Kind::Host, "b", 3), 2);
        names.forget();
        assert_eq!(number(&mut names, Kind::Host, "b", 2), 2);
        let long = "é".repeat(200);
        assert_eq!(number(&mut names, Kind::Host, &long, 2), 3);
        let used: i64 = transaction
            .query_row("SELECT used FROM name WHERE text = 'b' AND kind = 0", [], |row| row.get(0))
            .unwrap();
        assert_eq!(used, 3);
        let length: i64 =
            transaction.query_row("SELECT max(length(text)) FROM name", [], |row| row.get(0)).unwrap();
        assert_eq!(length, 127);
    }

    #[test]
    fn too_many_names_are_one_until_some_are_removed() {
        let mut connection = database();
        let transaction = connection.transaction().unwrap();
        let mut names = Names::default();
        let mut number =
            |text: String, day| names.number(&transaction, Kind::Host, &text.into(), day * DAY).unwrap();
        for index in 1..=MOST {
            assert_eq!(number(format!("host {index}"), 1), index);
        }
        assert_eq!(number("one more".to_owned(), 1), 0);
        transaction.execute("DELETE FROM name WHERE number IN (1, 17)", []).unwrap();
        assert_eq!(number("on the same day".to_owned(), 1), 0);
        assert_eq!(["new", "newer"].map(|name| number(name.to_owned(), 2)), [1, 17]);
        assert_eq!(number("newest".to_owned(), 2), 0);
    }
}
