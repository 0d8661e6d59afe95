//! The thread that follows changes in the folder of a [`Catalogue`]. No handshake waits for it.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use notify::RecommendedWatcher;

use super::index::{is_in_capitals, name_of, name_of_chain};
use super::loader::SETTLE;
use super::watch;
use super::{Catalogue, Ordering};

/// Capacity of the queue of changed files. When it is full, all names are compared with the folder instead.
const QUEUE: usize = 64 * 1024;

/// Interval of comparisons of all names with the folder, for file systems without change notifications.
const COMPARE: Duration = Duration::from_mins(1);

/// Follows the folder until it is dropped.
#[derive(Debug)]
pub(super) struct Follower {
    _watcher: Option<RecommendedWatcher>,
}

impl Follower {
    pub(super) fn start(catalogue: &Arc<Catalogue>) -> io::Result<Self> {
        let (send, changed) = sync_channel(QUEUE);
        // Initially true: the folder may have changed since its names were read.
        let lost = Arc::new(AtomicBool::new(true));
        let watcher = watch::start(&catalogue.folder, send, &lost);
        let now = Instant::now();
        let changes = Changes { names: HashSet::new(), since: now, lost, compared: now, in_capitals: None };
        let weak = Arc::downgrade(catalogue);
        thread::Builder::new()
            .name("certificate-folder".to_owned())
            .spawn(move || run(&weak, &changed, changes))?;
        Ok(Self { _watcher: watcher })
    }
}

/// Runs until the catalogue is dropped.
fn run(catalogue: &Weak<Catalogue>, changed: &Receiver<String>, mut changes: Changes) {
    loop {
        let message = match changed.recv_timeout(changes.wait()) {
            // A watcher that failed to start leaves the channel without a sender.
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(changes.wait().min(Duration::from_secs(1)));
                None
            }
            message => message.ok(),
        };
        let Some(catalogue) = catalogue.upgrade() else { return };
        changes.add(message.as_deref().and_then(name_of));
        if changes.is_compare_due() {
            let differing = catalogue.compare(&mut changes.in_capitals);
            changes.add(differing);
        }
        // At most 16 names per turn, so that a dropped catalogue ends the thread soon.
        changes.settled().into_iter().for_each(|name| catalogue.refresh(&name));
    }
}

/// Names whose files may have changed.
struct Changes {
    names: HashSet<String>,
    since: Instant,
    lost: Arc<AtomicBool>,
    compared: Instant,
    /// The file with capital letters that was last warned about.
    in_capitals: Option<String>,
}

impl Changes {
    fn add(&mut self, names: impl IntoIterator<Item = String>) {
        let before = self.names.len();
        self.names.extend(names);
        if self.names.len() > before {
            self.since = Instant::now();
        }
    }

    /// Time until there is something to do.
    fn wait(&self) -> Duration {
        if !self.names.is_empty() {
            return SETTLE.saturating_sub(self.since.elapsed());
        }
        if self.lost.load(Ordering::Relaxed) { Duration::ZERO } else { COMPARE }
    }

    fn is_compare_due(&mut self) -> bool {
        let due = self.lost.swap(false, Ordering::Relaxed) || self.compared.elapsed() >= COMPARE;
        if due {
            self.compared = Instant::now();
        }
        due
    }

    /// Up to 16 names, once no file has changed for [`SETTLE`].
    fn settled(&mut self) -> Vec<String> {
        if self.since.elapsed() < SETTLE {
            return Vec::new();
        }
        let some: Vec<_> = self.names.iter().take(16).cloned().collect();
        for name in &some {
            self.names.remove(name);
        }
        some
    }
}

impl Catalogue {
    /// Applies changes of the files of `name`: adds or removes the name, or replaces its certificates if they are
    /// loaded.
    fn refresh(self: &Arc<Self>, name: &str) {
        match self.is_there(name) {
            Ok(true) => self.index.add(name),
            Ok(false) => {
                self.faulty.remove(name);
                return self.index.remove(name);
            }
            Err(error) => {
                self.statistics.failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(name, %error, "its files cannot be looked at, nothing is changed");
                return;
            }
        }
        let Some(entry) = self.index.get(name) else { return };
        let _reading = entry.read();
        // The change may be the repair: the next handshake reads the files at once and not after ten
        // seconds.
        entry.set_failed(false);
        if !entry.is_read() {
            return;
        }
        let stamp = self.stamp(name);
        if stamp == entry.stamp() {
            return;
        }
        match self.read(name) {
            Ok(loaded) => {
                self.faulty.remove(name);
                if !self.show(name, &entry, loaded, stamp) {
                    tracing::info!(name, "a new certificate is shown as soon as it has its staple");
                }
            }
            Err(error) => {
                self.statistics.failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(name, "the new certificate cannot be loaded, the one before stays: {error}");
                self.faulty.add(name, error.to_string());
            }
        }
    }

    /// Names that were added, removed, or whose files differ from the loaded ones.
    fn compare(&self, in_capitals: &mut Option<String>) -> Vec<String> {
        // A folder that cannot be read removes no name: an unmounted file system must not end all hosts.
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut there = HashSet::new();
        let mut odd = None;
        for file in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            if let Some(name) = name_of_chain(&file) {
                there.insert(name);
            } else if is_in_capitals(&file) {
                // The last name in the alphabet, because the order of the folder varies and a change
                // repeats the warning.
                odd = odd.max(Some(file));
            }
        }
        self.warn_of_capitals(odd, in_capitals);
        let mut changed: Vec<_> =
            there.iter().filter(|name| self.index.get(name).is_none()).cloned().collect();
        for known in self.index.names() {
            let (kept, gone): (Vec<_>, Vec<_>) = known.into_iter().partition(|name| there.contains(&**name));
            changed.extend(gone.into_iter().map(String::from));
            changed.extend(kept.into_iter().filter(|name| self.is_outdated(name)).map(String::from));
        }
        changed
    }

    fn warn_of_capitals(&self, odd: Option<String>, before: &mut Option<String>) {
        if let Some(file) = odd.as_deref().filter(|_| odd != *before) {
            let folder = self.folder.display();
            tracing::warn!("{folder}/{file} is not served: names of files are written in lower case");
        }
        *before = odd;
    }

    /// Whether the files differ from the loaded ones.
    fn is_outdated(&self, name: &str) -> bool {
        let entry = self.index.get(name).filter(|entry| entry.is_read());
        entry.is_some_and(|entry| entry.stamp() != self.stamp(name))
    }
}
