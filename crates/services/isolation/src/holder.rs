//! The key process: reads key files and performs operations for the gateway that started it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_certs::FileWatch;
use brisk_keys::{Keystore, prepare_randomness};
use brisk_secrets::read_open;
use brisk_tls::gather;
use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::control::{Control, Figures, Order, Received, Report, Settings};
use crate::error::IsolationError;
use crate::rights::{self, REFUSED};
use crate::role::{Operations, Program, Role};

/// Time without further changes after which [`Report::Changed`] is sent; the same as in the gateway.
const QUIET: Duration = Duration::from_millis(500);

/// Interval at which files, counters and replaced keys are checked.
const BEAT: Duration = Duration::from_millis(250);

/// Time for which replaced keys are kept, longer than any handshake needs them.
const GRACE: Duration = Duration::from_secs(10);

/// Maximum number of files per [`Report::Loaded`], so that the gateway sees progress while files are read.
const AT_ONCE: usize = 16;

/// Maximum length of the result for a file in bytes. JSON escaping can multiply it by six, and [`AT_ONCE`] results
/// still fit into one packet of [`Control`].
const LONGEST: usize = 1024;

/// Maximum size of a key file in bytes, because all of it is read into locked memory.
const MOST_BYTES: u64 = 1024 * 1024;

/// Runs the key process until the gateway has closed its connection.
pub(crate) fn run(role: &Role, control: Control, program: &impl Program) -> Result<(), IsolationError> {
    // First of all: from here on, no process of this user can attach a debugger.
    rights::keep_memory_private();
    let locked = rights::lock_memory();
    if let Err(error) = rights::refuse_tracer().and_then(|()| rights::drop_to(role.user.as_deref())) {
        rights::say(format_args!("{error}"));
        exit(REFUSED);
    }
    // After `drop_to`: a change of the user also clears the signal that `end_with` requests (prctl(2)).
    rights::end_with(role.parent)?;
    // Repeated, since changing the user resets it.
    rights::keep_memory_private();
    let runtime = rights::outlive_signals()?;
    // After `drop_to`, because it starts a thread. The gateway waits for the keys, which need random numbers.
    prepare_randomness();
    let _log = program.open_log(&role.log).map_err(IsolationError::Program)?;
    if let Err(reason) = locked {
        tracing::warn!(
            reason,
            "the memory of the key process is not locked: keys could come to a swap device"
        );
    }
    control.wake_every(BEAT)?;
    control.send(&Report::Started { process: std::process::id() })?;
    let mut holder = Holder::new(control, runtime, program);
    loop {
        match holder.control.receive()? {
            Received::Packet(order, socket) => holder.follow(order, socket)?,
            Received::Nothing => {}
            Received::End => return Ok(()),
        }
        // After each order too: a gateway that sends many orders must not delay the end of replaced keys.
        holder.look_after(Instant::now())?;
    }
}

/// Keys of one configuration.
#[derive(Default)]
struct Set {
    number: u64,
    keys: Keystore,
    files: Vec<PathBuf>,
}

struct Holder<'p, P> {
    program: &'p P,
    control: Control,
    runtime: Runtime,
    in_force: Set,
    /// Keys of a configuration that [`Order::Settle`] may apply.
    next: Option<Set>,
    is_loaded: bool,
    settings: Option<Settings>,
    /// The engines, once there are `settings` and keys.
    operations: Option<Box<dyn Operations>>,
    /// Connections of [`Order::Connect`] that wait for `operations`.
    waiting: Vec<UnixStream>,
    held: usize,
    /// Replaced keys with the time of their end, [`GRACE`] after [`Order::Settle`].
    replaced: Vec<(Instant, Keystore)>,
    watch: Option<FileWatch>,
    reported: Figures,
}

impl<'p, P: Program> Holder<'p, P> {
    fn new(control: Control, runtime: Runtime, program: &'p P) -> Self {
        Self {
            program,
            control,
            runtime,
            in_force: Set::default(),
            next: None,
            is_loaded: false,
            settings: None,
            operations: None,
            waiting: Vec::new(),
            held: 0,
            replaced: Vec::new(),
            watch: None,
            reported: Figures::default(),
        }
    }

    fn follow(&mut self, order: Order, socket: Option<UnixStream>) -> io::Result<()> {
        match order {
            Order::Load { number, files, is_last } => self.load(number, files, is_last)?,
            Order::Settle { number, is_in_force } => self.settle(number, is_in_force),
            Order::Start(settings) => {
                self.settings = Some(settings);
                self.start()?;
            }
            Order::Connect => {
                let Some(socket) = socket else { return Ok(()) };
                match &mut self.operations {
                    Some(operations) => operations.serve(socket),
                    None => self.waiting.push(socket),
                }
            }
        }
        Ok(())
    }

    fn load(&mut self, number: u64, files: Vec<String>, is_last: bool) -> io::Result<()> {
        let mut next = self.next.take().filter(|next| next.number == number).unwrap_or_default();
        next.number = number;
        next.files.extend(files.into_iter().map(PathBuf::from));
        if !is_last {
            self.next = Some(next);
            return Ok(());
        }
        // Watched before the first file is read, so that no change is missed.
        self.watch_files(&next.files);
        let Set { files, keys, .. } = &mut next;
        let mut last = Vec::new();
        for (place, file) in files.iter().enumerate() {
            last.push(read(file, keys));
            // One report per group of files.
            if last.len() == AT_ONCE && place + 1 < files.len() {
                self.control.send(&Report::Loaded { number, found: mem::take(&mut last) })?;
            }
        }
        self.next = Some(next);
        self.is_loaded = true;
        self.hold();
        self.control.send(&Report::Loaded { number, found: last })?;
        // After the report, since the measurements of the engines take a while.
        self.start()
    }

    fn settle(&mut self, number: u64, is_in_force: bool) {
        let Some(next) = self.next.take_if(|next| next.number == number) else { return };
        if !is_in_force {
            // Operations with keys of a refused configuration cannot be in progress, so the keys are dropped at once.
            return self.hold();
        }
        // Handshakes in progress may still use replaced keys.
        let replaced = mem::replace(&mut self.in_force, next);
        self.replaced.push((Instant::now() + GRACE, replaced.keys));
    }

    /// Keys of `in_force`, of `next` and of `replaced`, so that handshakes with each configuration find theirs.
    fn all(&self) -> Arc<Keystore> {
        let mut keys = Keystore::new();
        keys.add_all(&self.in_force.keys);
        if let Some(next) = &self.next {
            keys.add_all(&next.keys);
        }
        self.replaced.iter().for_each(|(_, replaced)| keys.add_all(replaced));
        Arc::new(keys)
    }

    fn hold(&mut self) {
        let keys = self.all();
        self.held = keys.len();
        if let Some(operations) = &self.operations {
            operations.hold(&keys);
        }
    }

    fn watch_files(&mut self, next: &[PathBuf]) {
        let files: BTreeSet<_> = self.in_force.files.iter().chain(next).cloned().collect();
        self.watch = FileWatch::start(files, QUIET)
            .inspect_err(|error| tracing::warn!(%error, "changed keys are not noticed; SIGHUP still reloads"))
            .ok();
    }

    /// Starts `operations` if there are `settings` and keys, and serves the `waiting` connections.
    fn start(&mut self) -> io::Result<()> {
        let (None, Some(settings), true) = (&self.operations, &self.settings, self.is_loaded) else {
            return Ok(());
        };
        let keys = self.all();
        let mut operations = self.program.start(settings, &keys)?;
        // After the engines, since the driver of a GPU may start a program first, and before everything that reads data of peers.
        if settings.is_confined {
            rights::confine(settings.cuda);
        }
        self.waiting.drain(..).for_each(|socket| operations.serve(socket));
        self.operations = Some(operations);
        tracing::info!(
            keys = keys.len(),
            user = geteuid().as_raw(),
            "the keys are in a process of their own"
        );
        Ok(())
    }

    /// Drops replaced keys when due, and reports changed files and changed [`Figures`]. An `Err` ends the process: the gateway has
    /// closed its connection, or a thread of `operations` has ended.
    fn look_after(&mut self, now: Instant) -> io::Result<()> {
        if let Some(reason) = self.operations.as_deref().and_then(Operations::failure) {
            return Err(io::Error::other(reason));
        }
        let before = self.replaced.len();
        self.replaced.retain(|(end, _)| *end > now);
        if self.replaced.len() < before {
            self.hold();
        }
        if let Some(watch) = &mut self.watch {
            // Polls once: the only thread must return to `Control::receive`, where orders of the gateway wait.
            let changed = self.runtime.block_on(async { timeout(Duration::ZERO, watch.changed()).await });
            if matches!(changed, Ok(Some(_))) {
                self.control.send(&Report::Changed)?;
            }
        }
        let figures = self.figures();
        if figures != self.reported {
            self.control.send(&Report::Figures(figures.clone()))?;
            self.reported = figures;
        }
        Ok(())
    }

    fn figures(&self) -> Figures {
        let gathered = gather::figures();
        let operations = self.operations.as_deref();
        let faults = operations.map_or(0, Operations::faults);
        Figures {
            keys: operations.map_or(0, |_| self.held as u64),
            by_size: operations.map_or([0; 4], Operations::by_size),
            gathered: [gathered.signatures.in_lanes, gathered.signatures.alone],
            faults: faults + gathered.faults,
        }
    }
}

/// Reads the key in a file. Returns its id, or an `Err` that does not quote the content: the gateway logs it.
fn read(file: &Path, keys: &mut Keystore) -> Result<String, String> {
    let shown = file.display();
    let pem =
        contents(file).map_err(|error| shortened(format!("cannot read {shown}: {error}{}", who(&error))))?;
    let key = keys.add_pem(&pem).map_err(|error| shortened(format!("{shown}: {error}")))?;
    Ok(key.to_string())
}

/// Content of a key file, at most [`MOST_BYTES`].
fn contents(file: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    // `NONBLOCK`, so that opening a pipe does not wait for its other end.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(file, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > MOST_BYTES {
        return Err(io::Error::other("it is longer than 1 MiB, which no key is"));
    }
    read_open(&mut file, MOST_BYTES as usize)
}

/// Truncates a message to [`LONGEST`] bytes, however long file names are.
fn shortened(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(LONGEST));
    message
}

/// Suffix of a message with the user that needs read permission; empty unless `error` is `PermissionDenied`.
fn who(error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    format!(" (the key process is the user {})", geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::TestCa;

    use super::*;

    struct WithoutEngines;

    impl Program for WithoutEngines {
        type Log = ();

        fn open_log(&self, _: &str) -> Result<(), String> {
            Ok(())
        }

        fn start(&self, _: &Settings, _: &Arc<Keystore>) -> io::Result<Box<dyn Operations>> {
            Err(io::Error::other("there are no engines"))
        }
    }

    /// Operations whose only thread has ended.
    struct Ended;

    impl Operations for Ended {
        fn hold(&self, _: &Arc<Keystore>) {}

        fn serve(&mut self, _: UnixStream) {}

        fn failure(&self) -> Option<String> {
            Some("worker 0 has ended".to_owned())
        }

        fn by_size(&self) -> [u64; 4] {
            [0; 4]
        }

        fn faults(&self) -> u64 {
            0
        }
    }

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    /// The process seemed to run, and operations of the worker's connections timed out.
    #[test]
    fn the_process_ends_with_a_thread_of_its_operations() {
        let (control, _gateway) = Control::pair().expect("sockets");
        let mut holder = Holder::new(control, runtime(), &WithoutEngines);
        holder.look_after(Instant::now()).expect("a process without operations");
        holder.operations = Some(Box::new(Ended));
        let ended = holder.look_after(Instant::now()).expect_err("the end of the process");
        assert_eq!(ended.to_string(), "worker 0 has ended");
    }

    #[test]
    fn replaced_keys_stay_for_their_time_also_if_others_are_loaded_or_refused() {
        let (control, _gateway) = Control::pair().expect("sockets");
        let mut holder = Holder::new(control, runtime(), &WithoutEngines);
        let ca = TestCa::new();
        let leaves: Vec<_> = (0..4).map(|_| ca.server(&["a.test"]).issue()).collect();
        let load = |holder: &mut Holder<'_, WithoutEngines>, number: u64| {
            let file = leaves[number as usize].key.display().to_string();
            holder.load(number, vec![file], true).expect("a gateway");
        };
        // Before all replacements, however long they take.
        let begun = Instant::now();
        for number in [0, 1] {
            load(&mut holder, number);
            holder.settle(number, true);
        }
        load(&mut holder, 2);
        assert_eq!(holder.held, 3, "the replaced key, that in force and the next");
        holder.settle(2, false);
        assert_eq!(holder.held, 2, "the refused key is dropped at once");
        load(&mut holder, 3);
        holder.settle(3, true);
        holder.look_after(begun).expect("a gateway");
        assert_eq!(holder.held, 3);
        holder.look_after(Instant::now() + GRACE).expect("a gateway");
        assert_eq!(holder.held, 1);
    }
}
