//! The gateway's side of the keepers: [`KeyProcess`], started before the gateway gives up its privileges, and [`Keepers`].

use std::io;
use std::process::Child;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use crate::control::{Control, Received, Task};
use crate::error::IsolationError;
use crate::isolation::Isolation;
use crate::keeper;
use crate::rights;
use crate::role::Role;

/// Pause before another keeper replaces one that has ended.
const PAUSE: Duration = Duration::from_secs(1);

/// Pause before a keeper that could not be requested is requested again.
const RETRY: Duration = Duration::from_secs(10);

/// A key process that was started and is not used yet: see [`Isolation::start`](crate::Isolation::start).
#[derive(Debug)]
pub struct KeyProcess {
    pub(crate) role: Role,
    /// Socket for each [`Order`](crate::control::Order) to the process.
    pub(crate) control: Control,
    pub(crate) keepers: Keepers,
    /// Whether this process could read the files of others when it started the keepers.
    pub(crate) had_rights: bool,
}

impl KeyProcess {
    /// Starts the key process with its keepers. To be called before this process changes its user, gives up capabilities, or
    /// enters a sandbox, because the keepers keep the rights of this moment. The process runs as `user`, if given; `log` is the
    /// filter of its log. Returns [`IsolationError::System`] if the system refuses a process.
    pub fn start(user: Option<String>, log: &str) -> Result<Self, IsolationError> {
        let role = Role { holds_keys: false, parent: std::process::id(), user, log: log.to_owned() };
        let had_rights = rights::reads_files_of_others()?;
        let ((active, first), (standby, second)) = (start(&role)?, start(&role)?);
        let control = hold(&active)?;
        let (active, standby) = (Arc::new(active), Some(Arc::new(standby)));
        let keepers = Keepers { active, standby, started: vec![first, second] };
        Ok(Self { role, control, keepers, had_rights })
    }
}

/// Starts a keeper and returns the socket for each [`Task`], with whose close the keeper ends.
fn start(role: &Role) -> io::Result<(Control, Child)> {
    let (tasks, other) = Control::pair()?;
    Ok((tasks, keeper::spawn(role, other)?))
}

/// Sends [`Task::Keep`] to `keeper`, and returns the socket for orders to the key process.
fn hold(keeper: &Control) -> io::Result<Control> {
    let (control, other) = Control::pair()?;
    keeper.send_with(&Task::Keep, &other)?;
    Ok(control)
}

/// The keepers of a gateway, by the sockets for their tasks.
#[derive(Debug)]
pub(crate) struct Keepers {
    /// The keeper with the key process.
    active: Arc<Control>,
    /// The keeper that waits; `None` while none can be requested.
    standby: Option<Arc<Control>>,
    /// The first two keepers. Later ones are children of keepers.
    started: Vec<Child>,
}

/// A keeper that waits, from [`Keepers::standby`].
pub(crate) struct Standby(Arc<Control>);

impl Standby {
    /// Blocks until the keeper has ended.
    pub(crate) fn wait(&self) {
        // A keeper sends nothing: any other result is its end.
        while let Ok(Received::Packet((), _) | Received::Nothing) = self.0.receive() {}
    }
}

impl Keepers {
    /// The keeper that waits.
    pub(crate) fn standby(&self) -> Option<Standby> {
        self.standby.clone().map(Standby)
    }

    /// Makes `standby` the `active` keeper, with a new key process, and has it start another `standby`. Returns the
    /// socket for orders to the key process. `NotConnected` without a `standby`.
    pub(crate) fn change(&mut self) -> io::Result<Control> {
        // The keeper may still run after an unreadable report; with its end, its key process ends.
        self.active.close();
        let standby = self.standby.clone().ok_or(io::ErrorKind::NotConnected)?;
        let control = hold(&standby).inspect_err(|error| {
            if has_ended(error) {
                self.standby = None;
            }
        })?;
        self.active = standby;
        self.request_standby();
        Ok(control)
    }

    /// Requests a keeper in place of `ended`, or of none, unless another one waits by now. Returns `false` then.
    pub(crate) fn replace(&mut self, ended: Option<&Standby>) -> bool {
        let is_own = match (&self.standby, ended) {
            (Some(standby), Some(ended)) => Arc::ptr_eq(standby, &ended.0),
            (None, None) => true,
            _ => false,
        };
        if is_own {
            self.request_standby();
        }
        is_own
    }

    fn request_standby(&mut self) {
        let another = self.another().inspect_err(|error| {
            tracing::error!(%error, "no second keeper of the key process can be requested: it is tried again");
        });
        self.standby = another.ok();
    }

    fn another(&self) -> io::Result<Arc<Control>> {
        let (tasks, other) = Control::pair()?;
        self.active.send_with(&Task::Standby, &other)?;
        Ok(Arc::new(tasks))
    }

    /// Whether no keeper is left that could start a process.
    pub(crate) fn are_gone(&self) -> bool {
        self.standby.is_none()
    }

    /// Ends the key process, which does not answer, by [`Task::Renew`]; the keeper starts another.
    pub(crate) fn renew(&self) {
        // An error means that the keeper has ended, and the key process with it.
        let _ = self.active.send(&Task::Renew);
    }

    /// Ends the keepers after their key process.
    pub(crate) fn close(&self) {
        self.active.close();
        self.standby.iter().for_each(|standby| standby.close());
    }

    /// Whether a keeper is running that this process has started. The status of its other children is left to the code that started them.
    pub(crate) fn are_running(&mut self) -> bool {
        self.started.iter_mut().any(|keeper| matches!(keeper.try_wait(), Ok(None)))
    }
}

/// Whether `error` of a send shows that the keeper has ended, as `EPIPE` does.
fn has_ended(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected
    )
}

impl Isolation {
    /// Changes to the keeper that waits, after the end of the one before. Returns `false` if the gateway ends, after
    /// [`Report::Refused`](crate::control::Report::Refused), and if no keeper is left.
    pub(crate) fn change_keeper(&self) -> bool {
        loop {
            let mut state = self.state();
            state.process = None;
            if state.is_over {
                return false;
            }
            drop(state);
            thread::sleep(PAUSE);
            let mut keepers = self.keepers();
            match keepers.change() {
                Ok(control) => {
                    *self.control.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(control);
                    self.watch_standby(&keepers);
                    return true;
                }
                Err(error) => tracing::error!(%error, "the key process cannot be started"),
            }
            if keepers.are_gone() {
                drop(keepers);
                // Handshakes with sessions go on. `/readyz` has the reason, by which a supervisor may act.
                tracing::error!("both keepers of the key process have ended: start brisk again");
                self.state().is_over = true;
                self.changed.notify_all();
                return false;
            }
        }
    }

    /// Starts a thread that replaces the keeper that waits when it ends, and requests one while there is none.
    pub(crate) fn watch_standby(&self, keepers: &Keepers) {
        let Some(own) = self.own.upgrade() else { return };
        let mut standby = keepers.standby();
        let watch = move || loop {
            if let Some(standby) = &standby {
                standby.wait();
            }
            // A keeper that ends at once must not be replaced without end.
            thread::sleep(if standby.is_some() { PAUSE } else { RETRY });
            if own.state().is_over {
                return;
            }
            let mut keepers = own.keepers();
            if !keepers.replace(standby.as_ref()) {
                return;
            }
            standby = keepers.standby();
            if standby.is_some() {
                tracing::warn!("a keeper of the key process has ended: another one waits in its place");
            }
        };
        if let Err(error) = thread::Builder::new().name("key-keeper".to_owned()).spawn(watch) {
            tracing::warn!(%error, "a keeper of the key process that ends is not replaced");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The socket for the tasks of a keeper, and the end of the keeper.
    fn keeper() -> (Arc<Control>, Control) {
        let (tasks, other) = Control::pair().expect("sockets");
        (Arc::new(tasks), Control::new(other).expect("a socket"))
    }

    #[test]
    fn a_keeper_that_cannot_be_requested_is_requested_again() {
        let ((active, keeper_end), (waiting, _)) = (keeper(), keeper());
        let mut keepers = Keepers { active, standby: Some(waiting), started: Vec::new() };
        let ended = keepers.standby();
        // The request fails while the keeper with the key process ends too.
        drop(keeper_end);
        assert!(keepers.replace(ended.as_ref()) && keepers.are_gone(), "it is tried again");
        let (active, keeper_end) = keeper();
        keepers.active = active;
        assert!(keepers.replace(None) && !keepers.are_gone());
        let request = keeper_end.receive::<Task>().expect("a packet");
        assert!(matches!(request, Received::Packet(Task::Standby, Some(_))), "{request:?}");
        assert!(!keepers.replace(None) && !keepers.replace(ended.as_ref()), "another one waits");
    }

    #[test]
    fn the_end_of_the_keepers_leaves_other_children_alone() {
        let child = || Command::new("/bin/true").spawn().expect("a process");
        let ((active, _), mut other) = (keeper(), child());
        let mut keepers = Keepers { active, standby: None, started: vec![child(), child()] };
        while keepers.are_running() {
            thread::yield_now();
        }
        assert!(other.wait().expect("a child that was not waited for").success());
    }
}
