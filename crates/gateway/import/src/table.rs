//! Tables of the output, with the places of the input in comments.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::report::one_line;
use crate::toml::{self, Keys};

/// A table of the output, with the place of the input that it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// As written, with its brackets.
    pub(crate) header: String,
    pub(crate) keys: Keys,
    pub(crate) comment: String,
}

impl Table {
    /// Appends the table to a configuration.
    pub(crate) fn write(&self, text: &mut String) {
        text.push('\n');
        if !self.comment.is_empty() {
            let _ = writeln!(text, "# {}", one_line(&self.comment).trim());
        }
        let _ = writeln!(text, "{}", self.header);
        for (key, value) in &self.keys.0 {
            let _ = writeln!(text, "{} = {value}", toml::bare(key));
        }
    }
}

/// Tables of the output in their order.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    all: Vec<Table>,
    /// Positions by header.
    places: BTreeMap<String, usize>,
    /// Names by kind, base of the name, and content.
    names: BTreeMap<(String, String), String>,
    /// Number of the last name for each kind and base.
    numbers: BTreeMap<String, usize>,
}

impl Tables {
    /// Adds a table.
    pub(crate) fn push(&mut self, table: Table) {
        self.places.insert(table.header.clone(), self.all.len());
        self.all.push(table);
    }

    /// The table with this header.
    pub(crate) fn get(&self, header: &str) -> Option<&Table> {
        self.places.get(header).map(|place| &self.all[*place])
    }

    /// All tables.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Table> {
        self.all.iter()
    }

    /// The name of the table of this kind with these keys, which is added if there is none. A second `app` is `app-2`.
    pub(crate) fn named(&mut self, kind: &str, name: &str, keys: &Keys, comment: String) -> String {
        let content = (format!("{kind}.{name}"), keys.inline());
        if let Some(known) = self.names.get(&content) {
            return known.clone();
        }
        // Another table may have the candidate already, as one with the name `app-2`.
        let (candidate, header) = loop {
            let number = self.numbers.entry(content.0.clone()).or_insert(0);
            *number += 1;
            let candidate = if *number == 1 { name.to_owned() } else { format!("{name}-{number}") };
            let header = format!("[{kind}.{candidate}]");
            if self.get(&header).is_none() {
                break (candidate, header);
            }
        };
        self.push(Table { header, keys: keys.clone(), comment });
        self.names.insert(content, candidate.clone());
        candidate
    }
}
