//! Collector of errors and warnings of the resolution, so that one run reports all of them.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::document::Document;
use crate::error::{KeyPath, Located, MAX_LISTED, Problem, Segment};

/// The problems found so far.
pub struct Findings<'d> {
    document: &'d Document<'d>,
    /// Values that could not be deserialized and are therefore missing.
    unread: Vec<Located>,
    found: Vec<Located>,
    warnings: Vec<String>,
}

impl<'d> Findings<'d> {
    /// Starts with the values that could not be read.
    pub fn new(document: &'d Document<'d>, unread: Vec<Located>) -> Self {
        Self { document, unread, found: Vec::new(), warnings: Vec::new() }
    }

    /// The value at `path` is wrong.
    pub fn wrong(&mut self, path: &KeyPath, message: impl Into<String>) {
        // Values of one table are checked against one another, so an unread one beside this may be the true
        // cause.
        self.add(path, path.parent(), Problem::Wrong(message.into()));
    }

    /// The value at `path` is none of `known`.
    pub fn unknown(&mut self, path: &KeyPath, value: &str, known: Vec<String>) {
        self.add(path, path.parent(), Problem::UnknownValue { value: value.to_owned(), known });
    }

    /// The table at `path` lacks something or has too much of it.
    pub fn incomplete(&mut self, path: &KeyPath, message: impl Into<String>) {
        // Here an unread value inside of the table may be the missing one. Values beside the table are no
        // cause.
        self.add(path, &path.0, Problem::Wrong(message.into()));
    }

    /// Returns `value`, or `default` if it is missing; reports a value outside `range`.
    pub fn within<T>(&mut self, path: &KeyPath, value: Option<T>, default: T, range: &RangeInclusive<T>) -> T
    where
        T: PartialOrd + Copy + Display,
    {
        match value {
            Some(value) if !range.contains(&value) => {
                let message = format!("{value} is out of range: write {} to {}", range.start(), range.end());
                self.wrong(path, message);
                // The default instead of an error: later checks go on, and one run reports all problems.
                default
            }
            value => value.unwrap_or(default),
        }
    }

    /// Something an operator should know although it is served as written. Repetitions are skipped: several settings may
    /// have one file in common.
    pub fn warn(&mut self, warning: impl Into<String>) {
        let warning = warning.into();
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// All texts of the file, with their paths.
    pub fn texts(&self) -> Vec<(KeyPath, &'d str)> {
        self.document.texts()
    }

    /// Whether something was written at `path`, right or wrong.
    pub fn written(&self, path: &KeyPath) -> bool {
        self.document.contains(path)
    }

    /// Adds the `reasons` for errors so far, of the configuration as a whole. Without errors, they are not determined.
    pub fn explain(&mut self, reasons: impl FnOnce() -> Vec<String>) {
        if self.found.is_empty() {
            return;
        }
        let located =
            |reason| Located { place: None, path: KeyPath::default(), problem: Problem::Wrong(reason) };
        self.found.extend(reasons().into_iter().map(located));
    }

    /// Returns the warnings if there are no errors, otherwise all errors. With more unread values than are listed, the reader
    /// has given up, and errors of the resolution may concern values that are written.
    pub fn conclude(mut self) -> Result<Vec<String>, Vec<Located>> {
        if self.unread.len() > MAX_LISTED {
            return Err(self.unread);
        }
        self.unread.append(&mut self.found);
        if self.unread.is_empty() { Ok(self.warnings) } else { Err(self.unread) }
    }

    /// Adds a problem unless a value within `scope` could not be read: then it may be the echo of that.
    fn add(&mut self, path: &KeyPath, scope: &[Segment], problem: Problem) {
        // All unread values are in the root: with it as the scope, one of them would hide every problem of
        // top-level keys.
        let echo = self.unread.iter().any(|unread| unread.path.0.starts_with(scope) && !scope.is_empty());
        if !echo {
            self.found.push(self.document.locate(path.clone(), problem));
        }
    }
}
