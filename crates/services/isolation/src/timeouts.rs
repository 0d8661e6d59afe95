//! Timeouts of the key process.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use crate::isolation::Isolation;
use crate::state::{Keys, State};

/// Timeout for the start of a key process.
const LIMIT: Duration = Duration::from_secs(20);

/// Maximum silence of a process that reads files, which sends a [`Report`](crate::control::Report) every few of them.
const SILENCE: Duration = Duration::from_secs(10);

impl Isolation {
    /// Waits until a process has read the files of [`State::next`], as long as there is progress within [`SILENCE`].
    pub(crate) fn wait_for_keys<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        loop {
            let is_read = state.next.as_ref().is_none_or(Keys::is_complete);
            if state.is_over || (is_read && state.process.is_some()) {
                return state;
            }
            let before = (state.process, state.reports);
            let limit = if state.process.is_some() { SILENCE } else { LIMIT };
            let stands = |state: &mut State| !state.is_over && (state.process, state.reports) == before;
            let waited = self.changed.wait_timeout_while(state, limit, stands);
            let (after, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = after;
            if waited.timed_out() {
                return state;
            }
        }
    }
}
