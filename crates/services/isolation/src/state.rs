//! The gateway's view of its key process: expected and confirmed keys.

use crate::control::{Figures, Settings};

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Last number given by [`another_number`](Self::another_number).
    pub(crate) number: u64,
    /// Files of the current keys.
    pub(crate) in_force: Keys,
    pub(crate) next: Option<Keys>,
    pub(crate) settings: Option<Settings>,
    /// Number of key processes that have started.
    pub(crate) starts: u64,
    /// Id of the running process.
    pub(crate) process: Option<u32>,
    /// Total number of reports, by which a wait notices progress.
    pub(crate) reports: u64,
    pub(crate) figures: Figures,
    /// Whether a key file has changed.
    pub(crate) has_changed: bool,
    /// Whether the process is not restarted any more, because the gateway ends or a restart cannot succeed.
    pub(crate) is_over: bool,
}

/// Result for a key file: the id of its key, or an error.
pub(crate) type Found = Result<String, String>;

/// The keys of one configuration.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// Identifier in the gateway, independent of the processes that load the keys.
    pub(crate) id: u64,
    /// Number in orders and reports; new for each process, so that reports of an ended one match nothing.
    pub(crate) number: u64,
    pub(crate) files: Vec<String>,
    /// Results that the running process has reported so far.
    pub(crate) found: Vec<Found>,
    /// Results when the configuration was read, to compare with `found` after a restart.
    pub(crate) expected: Vec<Found>,
}

impl Keys {
    pub(crate) fn is_complete(&self) -> bool {
        self.found.len() >= self.files.len()
    }

    /// Stores `found` as `expected` and returns it: the results by which the configuration is judged.
    pub(crate) fn expect(&mut self) -> Vec<Found> {
        // A faulty process may report more results than files; the surplus is ignored.
        self.expected = self.found[..self.files.len()].to_vec();
        self.expected.clone()
    }

    /// Files whose key differs from the configuration's, with reasons: they may have changed before a restart of the
    /// process.
    pub(crate) fn missing(&self) -> Vec<String> {
        if !self.is_complete() {
            return Vec::new();
        }
        let all = self.files.iter().zip(&self.expected).zip(&self.found);
        all.filter_map(|((file, expected), found)| {
            let key = expected.as_ref().ok()?;
            // The key may have been moved to another file.
            if self.found.contains(expected) {
                return None;
            }
            Some(match found {
                Ok(other) => format!("{key}: {file} has another one now, {other}"),
                Err(error) => format!("{key}: {error}"),
            })
        })
        .collect()
    }
}

impl State {
    /// Stores results for the keys with this `number`; others are ignored. Returns whether they complete `in_force` for
    /// the first time in this process.
    pub(crate) fn found(&mut self, number: u64, found: Vec<Found>) -> bool {
        if let Some(next) = self.next.as_mut().filter(|next| next.number == number) {
            next.found.extend(found);
            return false;
        }
        if self.in_force.number != number || self.in_force.is_complete() {
            return false;
        }
        self.in_force.found.extend(found);
        self.in_force.is_complete()
    }

    /// Reason for which handshakes fail although a process runs: the first of [`Keys::missing`].
    pub(crate) fn trouble(&self) -> Option<String> {
        let missing = self.in_force.missing();
        let first = missing.first()?;
        Some(format!("the key process lacks {} of the keys in force, as {first}", missing.len()))
    }

    /// A number that no order has used.
    pub(crate) fn another_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "one of two kinds")]
    fn ok(name: &str) -> Found {
        Ok(name.to_owned())
    }

    #[test]
    fn a_process_that_was_started_again_has_to_have_the_keys_in_force() {
        let files = vec!["a.key".to_owned(), "b.key".to_owned()];
        let mut state =
            State { next: Some(Keys { number: 1, files, ..Keys::default() }), ..State::default() };
        assert!(!state.found(1, vec![ok("A")]));
        assert!(!state.next.as_ref().expect("a configuration").is_complete());
        assert!(!state.found(1, vec![ok("B")]));
        state.in_force = state.next.take().expect("a configuration");
        assert_eq!(state.in_force.expect(), [ok("A"), ok("B")]);
        assert_eq!(state.trouble(), None);
        // Of another process, in two packets; what was said of other numbers counts for nothing.
        (state.in_force.number, state.in_force.found) = (2, Vec::new());
        assert!(!state.found(1, vec![ok("A"), ok("B")]));
        assert!(!state.found(2, vec![ok("C")]));
        assert_eq!(state.trouble(), None);
        assert!(state.found(2, vec![Err("b.key: gone".to_owned())]));
        let missing = state.in_force.missing();
        assert_eq!(missing, ["A: a.key has another one now, C", "B: b.key: gone"]);
        assert!(state.trouble().expect("trouble").contains("lacks 2 of the keys in force"));
        (state.in_force.number, state.in_force.found) = (3, Vec::new());
        assert!(
            state.found(3, vec![ok("B"), ok("A")]),
            "keys are known by what they are, not by their files"
        );
        assert_eq!(state.trouble(), None);
    }
}
