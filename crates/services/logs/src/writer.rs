//! Collects the lines of an output from workers without blocking them, and writes them from one thread.
//!
//! Each logging thread appends to its own buffer; the writer thread swaps the buffers. The lock of a buffer is held
//! while a line is formatted or two pointers are swapped, never during a write. While a receiver is down, lines wait in
//! these buffers, whose size is limited.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::error::AccessLogError;
use crate::otlp::Connect;
use crate::receiver::Receiver as LineReceiver;
use crate::settings::AccessLogTarget;

/// Capacity of a thread's buffer in bytes; further lines are dropped and counted by [`Writer::dropped`].
const FULL: usize = 1 << 20;
/// Length of a buffer at which the writer thread is woken ahead of schedule, in bytes.
const MUCH: usize = 64 << 10;
/// Interval between writes under load, and so the maximum delay of a line.
const GATHER: Duration = Duration::from_millis(50);

type Slot = Mutex<Vec<u8>>;

thread_local! {
    /// This thread's buffers, with the numbers of their outputs. A handful: those of outputs that have ended are removed.
    static SLOTS: RefCell<Vec<(u64, Arc<Slot>)>> = const { RefCell::new(Vec::new()) };
}

/// The end of an output where lines go in.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    thread: Thread,
    /// Disconnected when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

#[derive(Debug)]
struct Shared {
    number: u64,
    slots: Mutex<Vec<Arc<Slot>>>,
    asleep: AtomicBool,
    stop: AtomicBool,
    reopen: AtomicBool,
    dropped: Arc<AtomicU64>,
}

impl Writer {
    /// Opens `target`, which logs and metrics call `name`, and starts the thread.
    pub(crate) fn start(
        target: &AccessLogTarget,
        name: &str,
        connect: Connect,
    ) -> Result<Self, AccessLogError> {
        let mut sink = Sink::open(target, name, connect)?;
        let shared = Arc::new(Shared::new());
        let (alive, ended) = mpsc::channel();
        let for_thread = Arc::clone(&shared);
        let run = move || {
            for_thread.run(&mut sink);
            drop(alive);
        };
        let thread = thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(run)
            .map_err(AccessLogError::Thread)?;
        Ok(Self { shared, thread: thread.thread().clone(), ended: Mutex::new(ended) })
    }

    /// Appends the output of `format` to this thread's buffer, or drops it if the buffer is full.
    pub(crate) fn append(&self, format: impl FnOnce(&mut Vec<u8>)) {
        // A buffer of the thread and not a shared queue: workers never wait for each other.
        let much = SLOTS.with_borrow_mut(|slots| self.shared.append(slots, format));
        if much || self.shared.wakes() {
            self.thread.unpark();
        }
    }

    /// Opens the file anew before the next line.
    pub(crate) fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Counter of lost lines.
    pub(crate) fn dropped(&self) -> &Arc<AtomicU64> {
        &self.shared.dropped
    }

    /// Ends the thread after the remaining lines.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Waits for the end of the thread until `limit`.
    pub(crate) fn wait(&self, limit: Instant) {
        let ended = lock(&self.ended);
        // The channel carries no message: the wait ends when the thread ends, or at the timeout.
        let _ = ended.recv_timeout(limit.saturating_duration_since(Instant::now()));
    }
}

/// Calls [`Writer::stop`] and never waits: after a reload, the last user of a log may be a worker.
impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            slots: Mutex::default(),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
            dropped: Arc::default(),
        }
    }

    /// Whether the buffer is full enough to wake the writing thread early.
    fn append(&self, slots: &mut Vec<(u64, Arc<Slot>)>, format: impl FnOnce(&mut Vec<u8>)) -> bool {
        let own = slots.iter().position(|(number, _)| *number == self.number).unwrap_or_else(|| {
            // The threads of outputs that have ended hold their buffers no longer.
            slots.retain(|(_, slot)| Arc::strong_count(slot) > 1);
            slots.push((self.number, self.add_slot()));
            slots.len() - 1
        });
        let (_, slot) = &slots[own];
        let mut buffer = lock(slot);
        let before = buffer.len();
        // Compared before the line is formatted: a dropped line costs nothing, and a line is never cut. The
        // buffer exceeds the limit by one line at most.
        if before >= FULL {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        format(&mut buffer);
        // Only the line that crosses the mark wakes the thread, and not each further one.
        before < MUCH && buffer.len() >= MUCH
    }

    fn add_slot(&self) -> Arc<Slot> {
        let slot = Arc::default();
        lock(&self.slots).push(Arc::clone(&slot));
        slot
    }

    /// Whether the writer thread sleeps and this caller must wake it.
    fn wakes(&self) -> bool {
        // The load keeps the cache line shared by the workers; the swap lets one of them wake the thread.
        // Relaxed order suffices, because the lock of the buffer orders the two sides, see `sleep`.
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed)
    }

    /// The life of the writer thread, until [`Writer::stop`] and the last line.
    fn run(&self, sink: &mut Sink) {
        let mut batch = Vec::new();
        loop {
            // Read before draining: lines appended before `stop` was set are then written.
            let stop = self.stop.load(Ordering::Acquire);
            // At the end too: a receiver in a pause gets one more attempt for the last lines.
            if self.reopen.swap(false, Ordering::AcqRel) || stop {
                sink.reopen(stop);
            }
            if let Some(wait) = sink.pause() {
                thread::park_timeout(wait);
                continue;
            }
            let any = self.drain(sink, &mut batch);
            if stop && (!any || sink.pause().is_some()) {
                return self.lose(sink, &batch);
            } else if any && !stop {
                thread::park_timeout(sink.gather());
            } else if !any {
                self.sleep();
            }
        }
    }

    /// Counts the lines that a receiver did not take before the end.
    fn lose(&self, sink: &Sink, batch: &[u8]) {
        let mut lost = sink.lines(batch);
        for slot in self.slots() {
            lost += sink.lines(&mem::take(&mut *lock(&slot)));
        }
        self.dropped.fetch_add(lost, Ordering::Relaxed);
        // Workers see by the number of references that this output has ended, and free their buffers.
        lock(&self.slots).clear();
    }

    /// Sleeps until a line arrives. A line appended before its buffer is checked here is seen; a line appended later
    /// finds `asleep` set, because the lock of the buffer orders the two.
    fn sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        if self.slots().iter().all(|slot| lock(slot).is_empty()) {
            thread::park();
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Writes the buffers, after the rest of an earlier `batch`, until the receiver is down. Returns whether they held
    /// anything.
    fn drain(&self, sink: &mut Sink, batch: &mut Vec<u8>) -> bool {
        let mut any = false;
        for slot in [None].into_iter().chain(self.slots().into_iter().map(Some)) {
            if let Some(slot) = slot {
                mem::swap(&mut *lock(&slot), batch);
            }
            if !batch.is_empty() {
                any = true;
                let lost = sink.write(batch);
                self.dropped.fetch_add(lost, Ordering::Relaxed);
            }
            if !batch.is_empty() {
                return true;
            }
            // The buffers rotate among all threads, so one burst must not leave each of them large.
            batch.shrink_to(4 * MUCH);
        }
        any
    }

    /// The buffers in use. Buffers of threads that have ended are removed once they are empty.
    fn slots(&self) -> Vec<Arc<Slot>> {
        let mut slots = lock(&self.slots);
        slots.retain(|slot| Arc::strong_count(slot) > 1 || !lock(slot).is_empty());
        slots.clone()
    }
}

/// Locks despite poisoning: a panic during formatting leaves at most an incomplete line.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An opened target.
#[derive(Debug)]
struct Sink {
    name: Box<str>,
    target: Target,
    failing: bool,
    /// Whether the last line is incomplete, because the disk was full.
    cut: bool,
}

#[derive(Debug)]
enum Target {
    Stdout,
    Stderr,
    File(PathBuf, File),
    Receiver(LineReceiver),
}

impl Sink {
    fn open(target: &AccessLogTarget, name: &str, connect: Connect) -> Result<Self, AccessLogError> {
        let target = match target {
            AccessLogTarget::Stdout => Target::Stdout,
            AccessLogTarget::Stderr => Target::Stderr,
            AccessLogTarget::File(path) => {
                let file =
                    open_file(path).map_err(|source| AccessLogError::Open { path: path.clone(), source })?;
                Target::File(path.clone(), file)
            }
            AccessLogTarget::Syslog(settings) => Target::Receiver(LineReceiver::syslog(&settings.server)),
            AccessLogTarget::Journal(settings) => Target::Receiver(LineReceiver::journal(&settings.socket)),
            AccessLogTarget::Otlp(settings) => {
                let exporter = connect(settings)
                    .map_err(|reason| AccessLogError::Exporter { output: name.to_owned(), reason })?;
                Target::Receiver(LineReceiver::otlp(settings, exporter))
            }
        };
        Ok(Self { name: name.into(), target, failing: false, cut: false })
    }

    /// Opens a file again, or ends the pause of a receiver that is down. `is_last`: no file is opened.
    fn reopen(&mut self, is_last: bool) {
        match &mut self.target {
            Target::File(path, file) if !is_last => match open_file(path) {
                Ok(new) => {
                    // A new file begins with a line of its own, unlike the same file opened again.
                    self.cut &= new.metadata().is_ok_and(|metadata| metadata.len() > 0);
                    *file = new;
                }
                Err(error) => tracing::error!(path = %path.display(), %error, "cannot reopen the access log"),
            },
            Target::Receiver(receiver) => receiver.end_pause(),
            _ => {}
        }
    }

    /// The time until the next attempt to reach a receiver that is down.
    fn pause(&self) -> Option<Duration> {
        match &self.target {
            Target::Receiver(receiver) => receiver.pause(),
            _ => None,
        }
    }

    /// Interval between writes.
    fn gather(&self) -> Duration {
        match &self.target {
            Target::Receiver(receiver) => receiver.gather().unwrap_or(GATHER),
            _ => GATHER,
        }
    }

    /// Writes the lines and removes them; of a receiver that is down, the rest stays. Returns the number of lines that are
    /// lost. The first of several failures is logged.
    fn write(&mut self, batch: &mut Vec<u8>) -> u64 {
        let result = match &mut self.target {
            Target::Stdout => write_lines(&mut io::stdout().lock(), batch, &mut self.cut),
            Target::Stderr => write_lines(&mut io::stderr().lock(), batch, &mut self.cut),
            Target::File(_, file) => write_lines(file, batch, &mut self.cut),
            Target::Receiver(receiver) => return receiver.write(batch, &self.name),
        };
        if let Err(error) = &result
            && !self.failing
        {
            tracing::error!(output = &*self.name, %error, "cannot write the access log; lines are lost");
        }
        self.failing = result.is_err();
        let lost = if self.failing { self.lines(batch) } else { 0 };
        batch.clear();
        lost
    }

    /// The number of lines in `batch`.
    fn lines(&self, batch: &[u8]) -> u64 {
        match &self.target {
            Target::Receiver(receiver) => receiver.messages(batch).count() as u64,
            // Each line ends with a newline, so the number of pieces after the first is the number of lines.
            _ => batch.split(|byte| *byte == b'\n').skip(1).count() as u64,
        }
    }
}

/// Writes `batch` and removes the written bytes. If an error leaves an incomplete line (`cut`), the next call begins with
/// a line break.
fn write_lines(target: &mut impl Write, batch: &mut Vec<u8>, cut: &mut bool) -> io::Result<()> {
    if *cut {
        target.write_all(b"\n")?;
        *cut = false;
    }
    // One call may write a part only, for example the part for which a full disk had room.
    let mut written = 0;
    let result = loop {
        if written == batch.len() {
            break target.flush();
        }
        match target.write(&batch[written..]) {
            Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            // A signal interrupts the write; `write_all` would repeat it too, but hides how much was
            // written.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    *cut = batch[..written].last().is_some_and(|last| *last != b'\n');
    batch.drain(..written);
    result
}

fn open_file(path: &Path) -> io::Result<File> {
    // Appended by the kernel, so that several processes do not overwrite lines of each other, and a file
    // that was truncated in place continues at its start.
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for this number of bytes.
    struct Disk(Vec<u8>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.1).min(3);
            if count == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.extend_from_slice(&bytes[..count]);
            self.1 -= count;
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn after_a_full_disk_lines_begin_on_lines_of_their_own() {
        let (mut disk, mut cut) = (Disk(Vec::new(), 10), false);
        let mut batch = b"first\nsecond\nthird\n".to_vec();
        assert!(write_lines(&mut disk, &mut batch, &mut cut).is_err());
        // The rest of the incomplete line, and a line that was not written at all.
        assert_eq!((batch.as_slice(), cut), (&b"nd\nthird\n"[..], true));
        assert!(write_lines(&mut disk, &mut b"lost\n".to_vec(), &mut cut).is_err());
        disk.1 = 100;
        write_lines(&mut disk, &mut b"fourth\n".to_vec(), &mut cut).expect("room");
        assert_eq!((disk.0.as_slice(), cut), (&b"first\nseco\nfourth\n"[..], false));
    }
}
