//! Timeouts of the key process, and the handling of one that does not answer.

use std::fs;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

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

    /// Kills a process that does not answer; the keeper starts another. No effect without the privilege to signal the
    /// user of the process, or if [`State::process`] is no longer a child of the keeper.
    pub(crate) fn kill(&self, state: &State) {
        let Some(process) = state.process else { return };
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).id();
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        // The id may have been reused by another process.
        if parent.and_then(|parent| parent.trim().parse().ok()) != Some(keeper) {
            return;
        }
        if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
            tracing::error!("the key process does not answer: it is ended");
            let _ = kill_process(process, Signal::KILL);
        }
    }
}
