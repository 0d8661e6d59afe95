//! Upstream groups across reloads: a group with unchanged settings keeps its connections, health and checks.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use brisk_net::DeadlineWheel;
use brisk_telemetry::metrics::Metrics;
use brisk_upstream::Group;
use brisk_upstream_group::settings::GroupSettings;
use brisk_upstream_group::{GroupState, checks, resolution};
use tokio::task::JoinSet;

use crate::GatewayError;

/// The state of each group of `settings`: that of `before` where the group has stayed the same, its files included.
/// Reads these files.
pub(crate) fn group_states(
    settings: &[GroupSettings],
    before: &[Arc<GroupState>],
    metrics: &Metrics,
) -> Result<Vec<Arc<GroupState>>, GatewayError> {
    let state = |group: &GroupSettings| {
        if let Some(state) = before.iter().find(|state| state.is_made_of(group)) {
            return Ok(Arc::clone(state));
        }
        let state = GroupState::new(group.clone(), metrics)?;
        if let Some(earlier) = before.iter().find(|earlier| earlier.settings().name == group.name) {
            state.inherit(earlier);
        }
        Ok(state)
    };
    settings.iter().map(state).collect()
}

/// The upstream groups of one worker.
pub(crate) struct WorkerGroups {
    wheel: DeadlineWheel,
    present: RefCell<Vec<Rc<Group>>>,
}

impl WorkerGroups {
    pub(crate) fn new(wheel: &DeadlineWheel) -> Self {
        Self { wheel: wheel.clone(), present: RefCell::default() }
    }

    /// The [`Group`] of `state`. A connection that began before a reload of the worker gets a group of its own.
    pub(crate) fn of(&self, state: &Arc<GroupState>) -> Rc<Group> {
        let present = self.present.borrow();
        let known = present.iter().find(|group| Arc::ptr_eq(group.state(), state));
        known.cloned().unwrap_or_else(|| Group::new(Arc::clone(state), &self.wheel))
    }

    /// The [`Group`]s of `states` by name, made where there are none yet. Others are [retired](Group::retire).
    pub(crate) fn follow(&self, states: &[Arc<GroupState>]) -> HashMap<String, Rc<Group>> {
        let before = self.present.take();
        let is_kept = |group: &&Rc<Group>| states.iter().any(|state| Arc::ptr_eq(group.state(), state));
        // Retired groups close their idle connections; requests in progress finish.
        before.iter().filter(|group| !is_kept(group)).for_each(|group| group.retire());
        let group = |state: &Arc<GroupState>| {
            let kept = before.iter().find(|group| Arc::ptr_eq(group.state(), state));
            kept.cloned().unwrap_or_else(|| Group::new(Arc::clone(state), &self.wheel))
        };
        let groups: Vec<_> = states.iter().map(group).collect();
        self.present.replace(groups.clone());
        groups.into_iter().map(|group| (group.state().settings().name.clone(), group)).collect()
    }
}

/// The active health checks of the process, and its questions to DNS; dropping them ends them.
#[derive(Default)]
pub(crate) struct HealthChecks(Vec<Checked>);

struct Checked {
    group: Arc<GroupState>,
    _tasks: JoinSet<()>,
}

impl HealthChecks {
    /// Checks the health of `groups`. Checks of unchanged groups continue on schedule, those of other groups end.
    /// Must be called inside the runtime of the main thread.
    pub(crate) fn follow(&mut self, groups: Vec<Arc<GroupState>>) {
        // Dropping a `JoinSet` aborts its tasks.
        self.0.retain(|checked| groups.iter().any(|group| Arc::ptr_eq(group, &checked.group)));
        for group in groups {
            // Checks of a group that stays are not started again: frequent reloads would put off
            // its next check each time.
            if !self.0.iter().any(|checked| Arc::ptr_eq(&group, &checked.group)) {
                let mut tasks = JoinSet::new();
                tasks.spawn(checks::run_checks(Arc::clone(&group)));
                tasks.spawn(resolution::run_resolution(Arc::clone(&group)));
                self.0.push(Checked { group, _tasks: tasks });
            }
        }
    }
}
