//! The task of a group on one worker: [`tend`].

use std::pin::pin;
use std::rc::Weak;
use std::sync::Arc;
use std::time::Duration;

use brisk_upstream_group::{GroupState, Member as _};
use tokio::time::{MissedTickBehavior, interval};

use super::Group;

/// Interval between calls of [`Group::sweep`].
const SWEEP: Duration = Duration::from_secs(1);

/// Checks idle connections once a second and when other requests need their permits, sends waiting requests of excluded servers
/// elsewhere, and follows DNS.
pub(super) async fn tend(group: Weak<Group>, state: Arc<GroupState>) {
    let (wanted, mut changes) = (Arc::clone(state.attention()), state.changes());
    // The group must end when the configuration no longer has it.
    drop(state);
    let mut ticks = interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked = pin!(wanted.notified());
    // The members may have changed since the group was created.
    changes.mark_changed();
    loop {
        let event = tokio::select! {
            _ = ticks.tick() => Event::Tick,
            () = asked.as_mut() => Event::Attention,
            // An error means that the group has ended.
            _ = changes.changed() => Event::Members,
        };
        let Some(group) = group.upgrade() else {
            return;
        };
        match event {
            Event::Tick => group.sweep(),
            Event::Attention => asked.set(wanted.notified()),
            Event::Members => group.follow(),
        }
        for server in &*group.servers() {
            server.yield_idle();
            let is_excluded = !server.is_available();
            let is_new = server.was_excluded.replace(is_excluded) != is_excluded;
            // Every second too, when the budget may permit more requests to leave.
            if is_excluded && (is_new || event == Event::Tick) {
                server.exclusions.notify_waiters();
            }
        }
    }
}

/// Reason for a turn of the loop of [`tend`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Tick,
    Attention,
    Members,
}
