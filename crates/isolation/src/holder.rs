//! The key process itself: reads the files of keys, and performs operations for the gateway that started it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_certs::FileWatch;
use brisk_keys::Keystore;
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

/// Time without further changes after which changed files are reported, as in the gateway.
const QUIET: Duration = Duration::from_millis(500);

/// How often files, figures and keys of before are looked after.
const BEAT: Duration = Duration::from_millis(250);

/// After this time nothing asks for keys of the configuration before.
const GRACE: Duration = Duration::from_secs(10);

/// Files of which one packet says what was found.
const AT_ONCE: usize = 16;

/// Most bytes of what is said of a file. Six times as many in JSON, at worst.
const LONGEST: usize = 1024;

/// Most bytes of the file of a key.
const MOST_BYTES: u64 = 1024 * 1024;

/// Holds keys until the gateway is gone.
pub(crate) fn run(role: &Role, control: Control, program: &impl Program) -> Result<(), IsolationError> {
    // Before anything else: no process of this user may begin to trace this one from here on.
    rights::keep_memory_private();
    let locked = rights::lock_memory();
    if let Err(error) = rights::refuse_tracer().and_then(|()| rights::drop_to(role.user.as_deref())) {
        rights::say(format_args!("{error}"));
        exit(REFUSED);
    }
    rights::end_with(role.parent)?;
    // Once more: another user may have changed it.
    rights::keep_memory_private();
    let runtime = rights::outlive_signals()?;
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
        holder.look_after(Instant::now())?;
    }
}

/// The keys of one configuration.
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
    /// The keys of a configuration that may come into force.
    next: Option<Set>,
    is_loaded: bool,
    settings: Option<Settings>,
    /// What performs operations, once there are settings and keys.
    operations: Option<Box<dyn Operations>>,
    /// Connections that wait for it.
    waiting: Vec<UnixStream>,
    held: usize,
    /// When the keys of before are given up.
    given_up: Option<Instant>,
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
            given_up: None,
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
        // All of them from before the first is read, so that no change is missed.
        self.watch_files(&next.files);
        let Set { files, keys, .. } = &mut next;
        let mut last = Vec::new();
        for (place, file) in files.iter().enumerate() {
            last.push(read(file, keys));
            // What is said of these is one packet.
            if last.len() == AT_ONCE && place + 1 < files.len() {
                self.control.send(&Report::Loaded { number, found: mem::take(&mut last) })?;
            }
        }
        self.next = Some(next);
        self.is_loaded = true;
        self.given_up = None;
        self.hold();
        self.control.send(&Report::Loaded { number, found: last })?;
        // Behind the report, since to measure takes a while.
        self.start()
    }

    fn settle(&mut self, number: u64, is_in_force: bool) {
        let Some(next) = self.next.take_if(|next| next.number == number) else { return };
        if !is_in_force {
            // Nothing has asked for keys of a configuration that was refused.
            return self.hold();
        }
        self.in_force = next;
        // Handshakes that have begun may still ask for a key of before.
        self.given_up = Some(Instant::now() + GRACE);
    }

    /// The keys in force, and those that may come into force: handshakes of either configuration find theirs.
    fn both(&self) -> Arc<Keystore> {
        let mut keys = Keystore::new();
        keys.add_all(&self.in_force.keys);
        if let Some(next) = &self.next {
            keys.add_all(&next.keys);
        }
        Arc::new(keys)
    }

    fn hold(&mut self) {
        let keys = self.both();
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

    /// Begins to perform operations, if there are settings and keys.
    fn start(&mut self) -> io::Result<()> {
        let (None, Some(settings), true) = (&self.operations, &self.settings, self.is_loaded) else {
            return Ok(());
        };
        let keys = self.both();
        let mut operations = self.program.start(settings, &keys)?;
        self.waiting.drain(..).for_each(|socket| operations.serve(socket));
        self.operations = Some(operations);
        tracing::info!(
            keys = keys.len(),
            user = geteuid().as_raw(),
            "the keys are in a process of their own"
        );
        Ok(())
    }

    /// Gives up keys of before, and reports what has changed.
    fn look_after(&mut self, now: Instant) -> io::Result<()> {
        if self.given_up.take_if(|at| *at <= now).is_some() && self.next.is_none() {
            self.hold();
        }
        if let Some(watch) = &mut self.watch {
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

/// Reads the key in a file. What was found is its name, or what is wrong, in words that do not quote the file.
fn read(file: &Path, keys: &mut Keystore) -> Result<String, String> {
    let shown = file.display();
    let pem =
        contents(file).map_err(|error| shortened(format!("cannot read {shown}: {error}{}", who(&error))))?;
    let key = keys.add_pem(&pem).map_err(|error| shortened(format!("{shown}: {error}")))?;
    Ok(key.to_string())
}

/// What is in the file of a key: memory is locked, so it takes no other file for one.
fn contents(file: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    // Nothing is waited for, as the other end of a pipe would be.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(file, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > MOST_BYTES {
        return Err(io::Error::other("it is longer than 1 MiB, which no key is"));
    }
    // Room for all of it from the start: no copies are left behind.
    let mut contents = Zeroizing::new(Vec::with_capacity(MOST_BYTES.min(metadata.len() + 1) as usize));
    file.take(MOST_BYTES).read_to_end(&mut contents)?;
    Ok(contents)
}

/// A message that fits into a packet with others, however long the names of files are.
fn shortened(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(LONGEST));
    message
}

/// Whom a file has to be readable for.
fn who(error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    format!(" (the key process is the user {})", geteuid().as_raw())
}
