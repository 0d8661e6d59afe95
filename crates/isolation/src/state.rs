//! What the gateway knows of its key process: the keys that have to be there, and those that are.

use crate::control::{Figures, Settings};

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The number of the last configuration.
    pub(crate) number: u64,
    /// The files of the keys in force.
    pub(crate) in_force: Keys,
    pub(crate) next: Option<Keys>,
    pub(crate) settings: Option<Settings>,
    /// Key processes that have begun.
    pub(crate) starts: u64,
    /// The one that runs.
    pub(crate) process: Option<u32>,
    /// What it has said, in all.
    pub(crate) reports: u64,
    pub(crate) figures: Figures,
    /// The file of a key has changed.
    pub(crate) has_changed: bool,
    /// It will not be started again: by the will of the gateway, or since it cannot be.
    pub(crate) is_over: bool,
}

/// What was found in the file of a key: its name, or what is wrong.
pub(crate) type Found = Result<String, String>;

/// The keys of one configuration.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// Identifies the keys in the gateway, however many processes load them.
    pub(crate) id: u64,
    /// By which orders and reports name it.
    pub(crate) number: u64,
    pub(crate) files: Vec<String>,
    /// What the process that runs has found in them, as far as it has said.
    pub(crate) found: Vec<Found>,
    /// What was found when the configuration was read.
    pub(crate) expected: Vec<Found>,
}

impl Keys {
    pub(crate) fn is_complete(&self) -> bool {
        self.found.len() >= self.files.len()
    }

    /// What the configuration is judged by.
    pub(crate) fn expect(&mut self) -> Vec<Found> {
        self.expected = self.found[..self.files.len()].to_vec();
        self.expected.clone()
    }

    /// Files whose key is not the one of the configuration, and why: they may have changed before the process was started again.
    pub(crate) fn missing(&self) -> Vec<String> {
        if !self.is_complete() {
            return Vec::new();
        }
        let all = self.files.iter().zip(&self.expected).zip(&self.found);
        all.filter_map(|((file, expected), found)| {
            let key = expected.as_ref().ok()?;
            // It may be in another file by now.
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
    /// Notes what was found. Whether that says it of all keys in force, for the first time in this process.
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

    /// Why handshakes fail although there is a process.
    pub(crate) fn trouble(&self) -> Option<String> {
        let missing = self.in_force.missing();
        let first = missing.first()?;
        Some(format!("the key process lacks {} of the keys in force, as {first}", missing.len()))
    }

    /// Another number, which no order had before.
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
