//! The gateway's side: starts the key process, sends orders, and tracks its keys.

use std::io;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use brisk_keyless::{KeyProcessConnector, RemoteEngine, RemoteSettings};
use tokio::sync::Notify;

use crate::control::{Control, Order, Received, Report, Settings, loads};
use crate::error::IsolationError;
use crate::keepers::{Keepers, KeyProcess};
use crate::rights::{self, Left};
use crate::role::Role;
use crate::state::{Found, Keys, State};

/// Maximum length of a file name in bytes: `PATH_MAX` of Linux.
const LONGEST_NAME: usize = 4096;

/// Maximum time for which [`Isolation::end`] waits for the key process to end.
const CLOSING: Duration = Duration::from_secs(2);

/// Timeout of an operation. A key process that was killed is replaced within a fraction of it.
const DEADLINE: Duration = Duration::from_secs(4);

/// The key process of a gateway, as seen from the gateway. The process is restarted whenever it ends, until
/// [`end`](Self::end), except after a failure that a restart cannot correct, such as an unknown user.
#[derive(Debug)]
pub struct Isolation {
    role: Role,
    left: Left,
    pub(crate) control: Mutex<Arc<Control>>,
    keepers: Mutex<Keepers>,
    state: Mutex<State>,
    /// Signals a report or the end of the process.
    pub(crate) changed: Condvar,
    /// Queue of [`Order`]s, which the thread `key-orders` sends in sequence.
    orders: Sender<Order>,
    /// Receiver of notifications after [`Report::Changed`].
    reader: OnceLock<Arc<Notify>>,
    /// Engine with the keys of the process.
    engine: OnceLock<Arc<RemoteEngine>>,
    /// Reference for [`Sockets`], which opens the connections of `engine`.
    pub(crate) own: Weak<Self>,
}

/// Keys of one configuration, loaded by the key process beside the current ones. Dropping a `LoadedKeys` makes the
/// process discard them unless they were [applied](Isolation::put_in_force).
#[derive(Debug)]
pub struct LoadedKeys {
    isolation: Arc<Isolation>,
    id: u64,
    found: Vec<Found>,
}

impl LoadedKeys {
    /// For each file given to [`Isolation::load`], in that sequence: the id of its key, or an `Err` with one line.
    pub fn found(&self) -> &[Result<String, String>] {
        &self.found
    }

    /// Identifier of these keys for [`Isolation::put_in_force`].
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for LoadedKeys {
    fn drop(&mut self) {
        self.isolation.settle(&mut self.isolation.state(), Some(self.id), false);
    }
}

/// Opens sockets to the key process for [`RemoteEngine`]: one end stays here, [`Order::Connect`] carries the other.
#[derive(Debug)]
struct Sockets(Weak<Isolation>);

impl KeyProcessConnector for Sockets {
    fn open(&self) -> io::Result<UnixStream> {
        let isolation = self.0.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        let (own, other) = UnixStream::pair()?;
        isolation.control().send_with(&Order::Connect, &other)?;
        Ok(own)
    }
}

impl Isolation {
    /// Takes over a key process, and drops the gateway's own privileges to read key files. Must be called while the gateway has one
    /// thread, since Linux keeps capabilities per thread. Returns [`IsolationError::System`] if the system refuses a thread or a
    /// change of privileges.
    pub fn start(process: KeyProcess) -> Result<Arc<Self>, IsolationError> {
        let KeyProcess { role, control, keepers, had_rights } = process;
        let (orders, given) = channel();
        let left = rights::give_up(had_rights)?;
        let isolation = Arc::new_cyclic(|own| Self {
            role,
            left,
            control: Mutex::new(Arc::new(control)),
            keepers: Mutex::new(keepers),
            state: Mutex::default(),
            changed: Condvar::new(),
            orders,
            reader: OnceLock::new(),
            engine: OnceLock::new(),
            own: Weak::clone(own),
        });
        let (following, sending) = (Arc::clone(&isolation), Arc::clone(&isolation));
        thread::Builder::new().name("key-process".to_owned()).spawn(move || following.follow())?;
        thread::Builder::new().name("key-orders".to_owned()).spawn(move || sending.send_all(&given))?;
        isolation.watch_standby(&isolation.keepers());
        Ok(isolation)
    }

    /// Logs the remaining privileges of the gateway to read key files: a warning for root, otherwise a notice. Apart
    /// from [`start`](Self::start), because the log opens later.
    pub fn log_rights(&self) {
        if self.left == Left::Root && self.role.user.is_none() {
            tracing::warn!(
                "the key process is the user 65534, as other services may be, which could end it: name one by isolate_user"
            );
        }
        match self.left {
            Left::Root => tracing::warn!(
                "keys are in a process of their own, but this one is root and could read their files: give it a user of its own by server.user"
            ),
            Left::GaveUp => tracing::info!("the gateway gave up its rights to read files of others"),
            Left::SameUser => tracing::info!(
                "keys are in a process of the same user: their files are readable for the gateway, their memory is not"
            ),
        }
    }

    /// The engine whose keys are in the process. The first call sets the number of `connections` and of concurrent
    /// operations (`queue`); later calls return the same [`RemoteEngine`] and ignore both arguments.
    pub fn engine(&self, connections: NonZeroUsize, queue: NonZeroUsize) -> Arc<RemoteEngine> {
        let make = || {
            let mut settings = RemoteSettings::local("isolate", Arc::new(Sockets(Weak::clone(&self.own))));
            settings.connections = connections;
            settings.queue = queue;
            settings.deadline = DEADLINE;
            settings.hedge = DEADLINE / 4;
            Arc::new(RemoteEngine::new(settings))
        };
        Arc::clone(self.engine.get_or_init(make))
    }

    /// Reason for which the key process performs no operations now, or lacks keys in force; `None` while all is well
    /// and before the first call of [`engine`](Self::engine).
    pub fn trouble(&self) -> Option<String> {
        self.engine.get()?.trouble().or_else(|| self.state().trouble())
    }

    /// Sets the receiver of notifications about changed key files; earlier changes are reported at once. Only the first
    /// `reader` is used.
    pub fn report_changes(&self, reader: Arc<Notify>) {
        let state = self.state();
        if self.reader.set(reader).is_ok() && state.has_changed {
            self.report_change();
        }
    }

    /// Makes the process read these files in addition to the current ones. Blocks. `Err` if a name is too long, if no key
    /// process can be started, or if the process reports nothing for ten seconds (20 s if none runs). The keeper kills a silent
    /// process and starts another.
    pub fn load(self: &Arc<Self>, files: &[PathBuf]) -> Result<LoadedKeys, String> {
        // Lossless: the names come from TOML, which is UTF-8.
        let files: Vec<_> = files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
        let (id, found) = self.load_files(files)?;
        Ok(LoadedKeys { isolation: Arc::clone(self), id, found })
    }

    /// Makes the [loaded keys](LoadedKeys) with this id the current ones. Does nothing if others were loaded since.
    pub fn put_in_force(&self, id: u64) {
        self.settle(&mut self.state(), Some(id), true);
    }

    /// Makes the process perform operations with these [`Settings`], also after a restart.
    pub fn begin(&self, settings: Settings) {
        let mut state = self.state();
        state.settings = Some(settings.clone());
        if state.process.is_some() {
            self.give([Order::Start(settings)]);
        }
    }

    /// Ends the key process after the gateway has drained. Blocks until the keepers have ended, at most two seconds and at
    /// most until `deadline`.
    pub fn end(&self, deadline: Instant) {
        // Before the close, which the thread `key-process` would otherwise take for a crash and meet with a
        // restart.
        self.state().is_over = true;
        self.control().close();
        self.keepers().close();
        let limit = deadline.min(Instant::now() + CLOSING);
        while Instant::now() < limit && self.keepers().are_running() {
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keepers(&self) -> MutexGuard<'_, Keepers> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Queues [`Order`]s. Must be called with the [`State`] that they are derived from locked, to keep their sequence.
    fn give(&self, orders: impl IntoIterator<Item = Order>) {
        // The send cannot fail: the receiving thread runs until the end.
        orders.into_iter().for_each(|order| drop(self.orders.send(order)));
    }

    /// Sends queued orders on a thread of its own, since [`Control::send`] blocks while the peer's buffer is full. An
    /// order that is lost is repeated by [`begun`](Self::begun) when the next process starts.
    fn send_all(&self, given: &Receiver<Order>) {
        for order in given {
            if let Err(error) = self.control().send(&order)
                && !self.state().is_over
            {
                tracing::warn!(%error, "the key process takes no orders");
            }
        }
    }

    fn load_files(&self, files: Vec<String>) -> Result<(u64, Vec<Found>), String> {
        if files.iter().any(|file| file.len() > LONGEST_NAME) {
            return Err(format!("the name of a file has more than {LONGEST_NAME} bytes"));
        }
        let mut state = self.state();
        // Keys of a configuration that was loaded and never settled are given up first: there is one `next`
        // at a time.
        self.settle(&mut state, None, false);
        let number = state.another_number();
        if state.process.is_some() {
            self.give(loads(number, &files));
        }
        state.next = Some(Keys { id: number, number, files, ..Keys::default() });
        let mut state = self.wait_for_keys(state);
        let is_started = state.process.is_some();
        if let Some(next) = state.next.as_mut().filter(|next| is_started && next.is_complete()) {
            return Ok((next.id, next.expect()));
        }
        if state.is_over {
            return Err("the key process cannot be started; the lines above say why".to_owned());
        }
        // The result of this process is discarded, and the next process does not get the files.
        self.settle(&mut state, None, false);
        if state.process.is_some() {
            tracing::error!("the key process does not answer: it is ended");
            self.keepers().renew();
        }
        Err("the key process does not answer; it is started again".to_owned())
    }

    /// Applies or discards [`State::next`] if it has this `id`; `None` matches any.
    fn settle(&self, state: &mut State, id: Option<u64>, is_in_force: bool) {
        let is_meant = |next: &mut Keys| id.is_none_or(|id| id == next.id);
        let Some(next) = state.next.take_if(is_meant) else { return };
        self.give([Order::Settle { number: next.number, is_in_force }]);
        if is_in_force {
            state.in_force = next;
        }
    }

    /// Processes [`Report`]s until the gateway ends. Changes to the other keeper after [`Received::End`] or an error.
    fn follow(&self) {
        loop {
            match self.control().receive::<Report>() {
                Ok(Received::Packet(report, _)) => self.take(report),
                Ok(Received::Nothing) => {}
                Ok(Received::End) | Err(_) => {
                    if !self.change_keeper() {
                        return;
                    }
                }
            }
        }
    }

    fn take(&self, report: Report) {
        let mut state = self.state();
        match report {
            Report::Started { process } => self.begun(&mut state, process),
            Report::Loaded { number, found } => {
                if state.found(number, found) {
                    state.in_force.missing().iter().for_each(|missing| {
                        tracing::error!("a key in force is missing in the key process: {missing}");
                    });
                }
            }
            Report::Changed => {
                state.has_changed = true;
                self.report_change();
            }
            Report::Figures(figures) => state.figures = figures,
            Report::Refused => state.is_over = true,
        }
        state.reports += 1;
        self.changed.notify_all();
    }

    fn report_change(&self) {
        if let Some(reader) = self.reader.get() {
            tracing::info!("the file of a key has changed");
            reader.notify_one();
        }
    }

    /// Handles [`Report::Started`]: a new key process holds no keys and has no [`Settings`] yet.
    fn begun(&self, state: &mut State, process: u32) {
        state.starts += 1;
        state.process = Some(process);
        if state.starts > 1 {
            tracing::warn!(starts = state.starts, "the key process was started again");
            let number = state.another_number();
            // A new number, so that a late report of the former process does not count for this one.
            (state.in_force.number, state.in_force.found) = (number, Vec::new());
            self.give(loads(number, &state.in_force.files));
            self.give([Order::Settle { number, is_in_force: true }]);
        }
        self.give(state.settings.clone().map(Order::Start));
        let number = state.another_number();
        if let Some(next) = &mut state.next {
            (next.number, next.found) = (number, Vec::new());
            self.give(loads(number, &next.files));
        }
    }
}
