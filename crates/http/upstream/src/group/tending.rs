//! The task of a group on one worker: [`tend`].

use std::pin::pin;
use std::rc::Weak;
use std::sync::Arc;
use std::time::Duration;

use brisk_upstream_group::GroupState;
use tokio::time::{MissedTickBehavior, interval};

/// Interval between calls of [`Tended::sweep`].
const SWEEP: Duration = Duration::from_secs(1);

/// A group that [`tend`] looks after.
pub(super) trait Tended {
    /// Closes idle connections that are too old.
    fn sweep(&self);

    /// Replaces the servers by those that DNS has named.
    fn follow(&self);

    /// Closes idle connections whose permits are needed, and sends waiting requests of excluded servers elsewhere. `is_tick`: not
    /// only because of a signal.
    fn look(&self, is_tick: bool);
}

/// Checks idle connections once a second and when other requests need their permits, sends waiting requests of excluded servers
/// elsewhere, and follows DNS.
pub(super) async fn tend(group: Weak<impl Tended>, state: Arc<GroupState>) {
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
        group.look(event == Event::Tick);
    }
}

/// Reason for a turn of the loop of [`tend`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Tick,
    Attention,
    Members,
}
