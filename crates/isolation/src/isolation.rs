//! The gateway's side: starts the key process, gives it orders, and knows which keys it holds.

use std::io;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use brisk_keyless::{KeyProcessConnector, RemoteEngine, RemoteSettings};
use tokio::sync::Notify;

use crate::control::{Control, Order, Received, Report, Settings, loads};
use crate::error::IsolationError;
use crate::keeper;
use crate::rights::{self, Left};
use crate::role::Role;
use crate::state::{Found, Keys, State};

/// Most bytes in the name of a file: those that Linux opens.
const LONGEST_NAME: usize = 4096;

/// How long the end of the gateway waits for that of the key process.
const CLOSING: Duration = Duration::from_secs(2);

/// The pause before a keeper is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// How long an operation may take in all. A key process that was ended is there again within a fraction of it.
const DEADLINE: Duration = Duration::from_secs(4);

/// The key process of a gateway, as the gateway sees it. The process is started again whenever it ends, until
/// [`end`](Self::end).
#[derive(Debug)]
pub struct Isolation {
    role: Role,
    left: Left,
    control: Mutex<Arc<Control>>,
    pub(crate) keeper: Mutex<Child>,
    state: Mutex<State>,
    /// There was a report, or the process has ended.
    pub(crate) changed: Condvar,
    /// Orders, in the sequence in which they were given: one thread sends them.
    orders: Sender<Order>,
    /// Where changed files are reported.
    reader: OnceLock<Arc<Notify>>,
    /// The engine with the keys of the process.
    engine: OnceLock<Arc<RemoteEngine>>,
    /// For the sockets of the engine.
    own: Weak<Self>,
}

/// The keys of one configuration, loaded by the key process beside those in force. Dropping this has the process give them up,
/// unless they were [put in force](Isolation::put_in_force).
#[derive(Debug)]
pub struct LoadedKeys {
    isolation: Arc<Isolation>,
    id: u64,
    found: Vec<Found>,
}

impl LoadedKeys {
    /// For each file the name of its key, or the reason why it has none.
    pub fn found(&self) -> &[Result<String, String>] {
        &self.found
    }

    /// Identifies the keys.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for LoadedKeys {
    fn drop(&mut self) {
        self.isolation.settle(&mut self.isolation.state(), Some(self.id), false);
    }
}

fn start_keeper(role: &Role) -> io::Result<(Control, Child)> {
    let (control, other) = Control::pair()?;
    let mut command = Command::new(keeper::PROGRAM);
    command.arg0("brisk").args(role.words());
    // A group of its own: signals of a terminal are for the gateway.
    let keeper = command.stdin(Stdio::from(other)).stdout(Stdio::null()).process_group(0).spawn()?;
    Ok((control, keeper))
}

/// The reason why a key process cannot run as this user, if there is one.
pub fn trouble_with_user(name: &str) -> Option<String> {
    rights::look_up(name).err().map(|error| error.to_string())
}

/// Sockets to the key process.
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
    /// Starts the key process, and gives up the gateway's own rights to read the files of keys. To be called while the gateway has one
    /// thread. The process holds keys as `user`, if one is named, and its log has the filter `log`.
    pub fn start(user: Option<String>, log: &str) -> Result<Arc<Self>, IsolationError> {
        let role = Role { holds_keys: false, parent: std::process::id(), user, log: log.to_owned() };
        let (control, keeper) = start_keeper(&role)?;
        let (orders, given) = channel();
        let left = rights::give_up()?;
        let isolation = Arc::new_cyclic(|own| Self {
            role,
            left,
            control: Mutex::new(Arc::new(control)),
            keeper: Mutex::new(keeper),
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
        Ok(isolation)
    }

    /// Logs which files the gateway may still read.
    pub fn log_rights(&self) {
        if self.left == Left::Root && self.role.user.is_none() {
            tracing::warn!(
                "the key process is the user 65534, as other services may be, which could end it: name one by isolate_user"
            );
        }
        match self.left {
            Left::Root => tracing::warn!(
                "keys are in a process of their own, but this one is root and could read their files: give it a user of its own"
            ),
            Left::GaveUp => tracing::info!("the gateway gave up its rights to read files of others"),
            Left::SameUser => tracing::info!(
                "keys are in a process of the same user: their files are readable for the gateway, their memory is not"
            ),
        }
    }

    /// The engine whose keys are in the process. The first call determines the number of its connections, and of operations at a
    /// time.
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

    /// Why the key process performs no operations now, if so.
    pub fn trouble(&self) -> Option<String> {
        self.engine.get()?.trouble().or_else(|| self.state().trouble())
    }

    /// Reports changed files of keys here, including changes before the call.
    pub fn report_changes(&self, reader: Arc<Notify>) {
        let state = self.state();
        if self.reader.set(reader).is_ok() && state.has_changed {
            self.report_change();
        }
    }

    /// Has the process read these files beside those in force. The error is that the process does not answer.
    pub fn load(self: &Arc<Self>, files: &[PathBuf]) -> Result<LoadedKeys, String> {
        // Names come from TOML, which is UTF-8.
        let files: Vec<_> = files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
        let (id, found) = self.load_files(files)?;
        Ok(LoadedKeys { isolation: Arc::clone(self), id, found })
    }

    /// The [loaded keys](LoadedKeys) with this ID are in force from now on, and no others. Does nothing if others were loaded
    /// since.
    pub fn put_in_force(&self, id: u64) {
        self.settle(&mut self.state(), Some(id), true);
    }

    /// Has the process perform operations by these settings.
    pub fn begin(&self, settings: Settings) {
        let mut state = self.state();
        state.settings = Some(settings.clone());
        if state.process.is_some() {
            self.give([Order::Start(settings)]);
        }
    }

    /// Ends the key process, before `deadline`: the gateway has drained.
    pub fn end(&self, deadline: Instant) {
        self.state().is_over = true;
        self.control().close();
        let limit = deadline.min(Instant::now() + CLOSING);
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        while matches!(keeper.try_wait(), Ok(None)) && Instant::now() < limit {
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Queues orders behind the earlier ones. To be called with the state locked that they are derived from.
    fn give(&self, orders: impl IntoIterator<Item = Order>) {
        // The thread that takes them does not end.
        orders.into_iter().for_each(|order| drop(self.orders.send(order)));
    }

    /// Sends orders: a sender waits until the other side has room, and no other thread is to wait for that. An order that does not
    /// arrive is repeated when the next process begins.
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
        // The result of this process is not needed any more, and the next process does not get the files.
        self.settle(&mut state, None, false);
        self.kill(&state);
        Err("the key process does not answer; it is started again".to_owned())
    }

    /// Puts the keys that were loaded last in force, or gives them up, if they are those with `id`; `None` is any.
    fn settle(&self, state: &mut State, id: Option<u64>, is_in_force: bool) {
        let is_meant = |next: &mut Keys| id.is_none_or(|id| id == next.id);
        let Some(next) = state.next.take_if(is_meant) else { return };
        self.give([Order::Settle { number: next.number, is_in_force }]);
        if is_in_force {
            state.in_force = next;
        }
    }

    /// Reads reports until the gateway ends. Starts the keeper again if it is gone.
    fn follow(&self) {
        loop {
            match self.control().receive::<Report>() {
                Ok(Received::Packet(report, _)) => self.take(report),
                Ok(Received::Nothing) => {}
                Ok(Received::End) | Err(_) => {
                    if !self.start_again() {
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

    /// A key process has begun, which has no keys yet.
    fn begun(&self, state: &mut State, process: u32) {
        state.starts += 1;
        state.process = Some(process);
        if state.starts > 1 {
            tracing::warn!(starts = state.starts, "the key process was started again");
            let number = state.another_number();
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

    /// The keeper is gone; whether there is another.
    fn start_again(&self) -> bool {
        let mut state = self.state();
        state.process = None;
        if state.is_over {
            return false;
        }
        drop(state);
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        // The keeper may still run, after a report that could not be read. A keeper that has ended keeps its status.
        let _ = keeper.kill();
        let status = keeper.wait();
        drop(keeper);
        if status.is_ok_and(|status| status.code() == Some(rights::REFUSED)) {
            self.state().is_over = true;
            self.changed.notify_all();
            return false;
        }
        loop {
            thread::sleep(PAUSE);
            match start_keeper(&self.role) {
                Ok((control, keeper)) => {
                    *self.control.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(control);
                    *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = keeper;
                    return true;
                }
                Err(error) => tracing::error!(%error, "the key process cannot be started"),
            }
        }
    }
}
