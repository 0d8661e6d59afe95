//! The drain: the last work of the main thread.

use std::time::Duration;

use brisk_net::drain::DrainTrigger;
use brisk_supervisor::succession::Order;

use crate::control::{Control, Outside};
use crate::signals::{SignalAction, Signals};

/// Drains within `limit`, or until a further [`SignalAction::Stop`], and then cuts connections that are left.
pub(crate) async fn drain(
    trigger: &DrainTrigger,
    limit: Duration,
    (signals, outside): (&mut Signals, &mut Outside),
    control: &mut impl Control,
) {
    trigger.start();
    tracing::info!(?limit, open = trigger.open(), "draining: no new connections, running requests finish");
    tokio::select! {
        left = trigger.finished(limit) => match left {
            0 => return tracing::info!("drained"),
            left => tracing::warn!(left, "the drain took too long: connections are cut"),
        },
        () = stopped(signals, outside, control) => {
            tracing::warn!(left = trigger.open(), "second signal to stop: connections are cut");
        }
    }
    trigger.cut();
}

/// Waits for [`SignalAction::Stop`]. Logs are reopened meanwhile, since a drain may take longer than their rotation, and a
/// successor gets the admin socket, and the state if its question has arrived after the drain began.
async fn stopped(signals: &mut Signals, outside: &mut Outside, control: &mut impl Control) {
    loop {
        tokio::select! {
            order = outside.successors.next() => match order {
                Order::Export(number) => outside.successors.answer(number, &control.export()),
                Order::Replaced => outside.give_way(),
                Order::Abandoned => {}
            },
            action = signals.next() => match action {
                SignalAction::Stop => {
                    if !outside.successors.has_lost_supervisor().await {
                        return;
                    }
                    // The kernel has sent it for the supervisor, not an operator who wants to cut connections.
                    tracing::warn!("the supervisor has ended: the drain goes on");
                }
                SignalAction::ReopenLogs => control.reopen_logs(),
                SignalAction::Reload | SignalAction::Ignore(_) => {}
            }
        }
    }
}
