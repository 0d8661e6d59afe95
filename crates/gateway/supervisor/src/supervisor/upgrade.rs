//! Starts of generations: for an upgrade, or after a crash. The generation before serves until the new one is ready.

use std::fmt;
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use brisk_defects::Defect;
use rustix::process::{Pid, Signal};
use tokio::time::Instant;

use super::Supervisor;
use crate::control::Operator;
use crate::generation::Generation;
use crate::store::{MOST, Store};
use crate::succession::Order;

/// Name of descriptors that were stored without one, as in systemd.
const UNNAMED: &str = "stored";

/// Maximum number of generations that drain, so that upgrades in succession need bounded memory.
pub(super) const MOST_DRAINING: usize = 8;

/// A generation that is not ready yet.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) generation: Generation,
    purpose: Purpose,
    /// Time at which it is killed.
    pub(super) deadline: Instant,
    /// Whether a `SIGHUP` is due when it is ready.
    pub(super) reloads: bool,
    /// Whether a `SIGUSR1` is due when it is ready: before, it would end the process.
    pub(super) reopens: bool,
    /// The descriptors that it has stored. They replace the [`Store`] when it is ready, and are closed if it fails. `None` after
    /// one was lost.
    stored: Option<Store>,
    /// The reason for which the supervisor has killed it.
    killed: Option<String>,
}

/// Reason for a start.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The first start, whose failure ends the supervisor.
    First,
    /// The generation before has ended.
    Restart,
    /// An upgrade, and the operator who waits for its outcome; none after `SIGUSR2`.
    Upgrade(Option<Operator>),
}

impl Starting {
    pub(super) fn new(generation: Generation, purpose: Purpose, limit: Duration) -> Self {
        let deadline = generation.since + limit;
        Self {
            generation,
            purpose,
            deadline,
            reloads: false,
            reopens: false,
            stored: Some(Store::default()),
            killed: None,
        }
    }

    /// Keeps descriptors of a message (`FDSTORE=1`) for later generations. If one was lost, or there are too many, the former
    /// [`Store`] stays: with a part of the sockets, connections to the others would be lost.
    pub(super) fn keep(&mut self, name: Option<&str>, descriptors: Vec<OwnedFd>) {
        let Some(stored) = &mut self.stored else { return };
        let name = name.unwrap_or(UNNAMED);
        let are_stored = !descriptors.is_empty() && descriptors.into_iter().all(|own| stored.add(name, own));
        if !are_stored {
            tracing::error!(
                "the sockets stay the former ones: one of the gateway was lost, or is beyond {MOST}"
            );
            self.stored = None;
        }
    }

    /// Whether the generation can take the place of the one before: not if it has been killed, or has ended since its report.
    pub(super) fn can_serve(&self) -> bool {
        self.killed.is_none() && !self.generation.has_ended()
    }

    /// Kills the generation if it is not ready within `limit`.
    pub(super) fn end_if_late(&mut self, now: Instant, limit: Duration) {
        if now < self.deadline {
            return;
        }
        if self.killed.is_none() {
            self.killed = Some(format!("it was not ready within {} s", limit.as_secs_f64()));
            self.generation.signal(Signal::KILL);
        }
        // The end of the process is noticed by `SIGCHLD`. Until then, a time in the past would wake the supervisor without a pause.
        self.deadline = now + limit.max(Duration::from_secs(1));
    }
}

impl Supervisor<'_> {
    /// Starts the program that is at its path now, beside the serving generation. The operator gets the outcome.
    pub(super) fn upgrade(&mut self, operator: Option<Operator>) {
        let serving = match (&self.serving, &self.starting) {
            _ if self.is_stopping => return refuse(operator, "the supervisor is stopping"),
            (_, Some(Starting { purpose: Purpose::Upgrade(_), .. })) => {
                return refuse(operator, "an upgrade is under way");
            }
            (_, Some(_)) | (None, None) => return refuse(operator, "the gateway is starting"),
            (Some(serving), None) => serving,
        };
        // An answer to a former successor would otherwise remain in the queue.
        serving.discard_answers();
        match Generation::start(&self.line(), &self.store, Some(serving)) {
            Ok(generation) => {
                tracing::info!(process = %generation.id(), "upgrade: a new gateway starts beside the old one");
                let purpose = Purpose::Upgrade(operator);
                self.starting = Some(Starting::new(generation, purpose, self.settings.ready_timeout));
            }
            Err(error) => {
                let program = self.settings.program.display();
                refuse(operator, format_args!("cannot start {program}: {error}"));
            }
        }
    }

    /// Starts a generation after the end of the one before.
    pub(super) fn restart(&mut self) {
        match Generation::start(&self.line(), &self.store, None) {
            Ok(generation) => {
                tracing::info!(process = %generation.id(), "a new gateway starts");
                self.starting =
                    Some(Starting::new(generation, Purpose::Restart, self.settings.ready_timeout));
            }
            Err(error) => {
                let program = self.settings.program.display();
                tracing::error!("cannot start {program}: {error}; it is tried again, and connections wait");
                self.restart_after(Duration::ZERO);
            }
        }
    }

    /// The generation that was starting is ready: it serves from now on, and the one before drains.
    pub(super) fn ready(&mut self) {
        let Some(starting) = self.starting.take() else { return };
        let Starting { mut generation, purpose, reloads, reopens, stored, .. } = starting;
        // A program that stores nothing, such as one of another version, keeps the sockets at least for its successor.
        if let Some(stored) = stored.filter(|stored| !stored.is_empty()) {
            self.store = stored;
        }
        let id = generation.id();
        if let Some(file) = &mut self.pid_file {
            file.publish();
        }
        tracing::info!(process = %id, descriptors = self.store.len(), "the gateway serves");
        (generation.since, generation.beat) = (Instant::now(), Instant::now());
        if reopens {
            generation.signal(Signal::USR1);
        }
        let before = self.serving.replace(generation);
        if self.is_stopping {
            // Both have received the signal already, and a second one would cut their connections.
            self.draining.extend(before);
            return answer(purpose, Err("the supervisor is stopping"));
        }
        if before.is_some() {
            self.end_drains(MOST_DRAINING - 1);
        }
        // Also to those that another process has stopped: they leave the admin socket to this generation. Before the signal, which
        // the generation understands by this order.
        self.draining.iter().chain(&before).for_each(|generation| generation.order(Order::Replaced));
        if let Some(mut before) = before {
            if brisk_defects::strikes(Defect::LeakedDescriptor) {
                mem::forget(UnixDatagram::unbound());
            }
            before.stop(Signal::TERM, self.settings.ready_timeout);
            self.draining.push(before);
        }
        if let Some(serving) = self.serving.as_ref().filter(|_| reloads) {
            serving.signal(Signal::HUP);
        }
        if let Err(error) = self.manager.ready_as_main("serves") {
            tracing::warn!(%error, "the service manager does not learn that the gateway serves");
        }
        answer(purpose, Ok(id));
    }

    /// Cuts the connections of the generations that have drained longest, except for `kept`. With datagram sockets, none may be
    /// left: those of a group are for two generations (`brisk_net::datagram`), of which one serves or starts and one drains.
    pub(super) fn end_drains(&mut self, kept: usize) {
        let kept = if self.store.has_datagrams() { 0 } else { kept };
        let ended = self.draining.len().saturating_sub(kept);
        for generation in &mut self.draining[..ended] {
            if generation.cut(Signal::TERM) {
                let process = generation.id();
                tracing::warn!(%process, "the drain of an earlier gateway is cut, since another one begins");
            }
        }
    }

    /// A generation has ended before it was ready. The one before serves on, if there is one.
    pub(super) fn abandon(&mut self, starting: Starting, ended: &str) {
        let Starting { purpose, killed, .. } = starting;
        let reason = killed.unwrap_or_else(|| format!("it ended with {ended}; its log has the reason"));
        if let Some(serving) = &self.serving {
            serving.discard_answers();
            serving.order(Order::Abandoned);
        }
        match purpose {
            // As with `brisk serve`: a mistake of the operator is not tried again.
            Purpose::First => {
                self.has_failed = true;
                if !self.is_stopping {
                    tracing::error!("the gateway did not become ready: {reason}");
                }
            }
            Purpose::Restart => {
                tracing::error!(
                    "the gateway did not become ready: {reason}; it is tried again, and connections wait"
                );
                self.restart_after(Duration::ZERO);
            }
            Purpose::Upgrade(operator) => {
                refuse(operator, format_args!("the new gateway did not become ready: {reason}"));
                // The old one may have ended meanwhile.
                self.restart_after(Duration::ZERO);
            }
        }
    }
}

/// Reports the outcome of an upgrade to the operator who waits for it.
fn answer(purpose: Purpose, outcome: Result<Pid, &str>) {
    if let Purpose::Upgrade(Some(operator)) = purpose {
        match outcome {
            Ok(process) => operator.done(process),
            Err(reason) => operator.refuse(reason),
        }
    }
}

/// Reports to the log, and to the operator, that nothing has changed.
fn refuse(operator: Option<Operator>, reason: impl fmt::Display) {
    tracing::error!("not upgraded, the old gateway serves: {reason}");
    if let Some(operator) = operator {
        operator.refuse(reason);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::generation::tests::{end, generation};

    #[tokio::test]
    async fn a_store_of_which_a_descriptor_was_lost_does_not_replace_the_former_one() {
        let mut starting = Starting::new(generation("sleep 0"), Purpose::Restart, Duration::from_secs(5));
        let descriptor = || vec![OwnedFd::from(File::open("/dev/null").expect("a file"))];
        starting.keep(Some("https"), descriptor());
        assert_eq!(starting.stored.as_ref().map(Store::len), Some(1));
        starting.keep(Some("https"), Vec::new());
        starting.keep(Some("https"), descriptor());
        assert!(starting.stored.is_none());
    }

    #[tokio::test]
    async fn a_generation_that_does_not_become_ready_is_killed_once_and_looked_at_in_intervals() {
        let limit = Duration::from_secs(5);
        let mut starting = Starting::new(generation("sleep 600"), Purpose::Restart, limit);
        let first = starting.deadline;
        starting.end_if_late(first - Duration::from_millis(1), limit);
        assert!(starting.can_serve() && starting.deadline == first);
        // A process in an uninterruptible wait ends later than it is killed.
        for count in 0..3 {
            let now = first + count * limit;
            starting.end_if_late(now, limit);
            assert_eq!(starting.deadline, now + limit);
            assert!(!starting.can_serve());
        }
        end(&mut starting.generation);
    }
}
