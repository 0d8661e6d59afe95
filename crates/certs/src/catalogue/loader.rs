//! The thread that reads certificates of a catalogue: those that are asked for first, then those that changed.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use brisk_keys::Keystore;
use notify::RecommendedWatcher;

use super::index::{Place, name_of, name_of_chain};
use super::watch;
use super::{Catalogue, LOADED, Ordering};
use crate::certificate::load;
use crate::error::CertError;
use crate::slot::Served;

/// Names and changes that may wait.
const QUEUE: usize = 64 * 1024;

/// How long a change is left alone, so that the second of two files is there when the first is read.
const SETTLE: Duration = Duration::from_millis(200);

/// How often all names are compared with the folder: for file systems that report no changes.
const COMPARE: Duration = Duration::from_mins(1);

/// What is dropped at a time when there is too much in memory.
const EVICTED: usize = LOADED / 20;

/// What the thread is to do.
#[derive(Debug)]
pub(super) enum Message {
    /// Load this name: clients wait for it.
    Load(String),
    /// The file of this name has changed.
    Changed(String),
}

/// Hands names to the thread.
#[derive(Debug)]
pub(super) struct Loader {
    ask: SyncSender<Message>,
    _watcher: Option<RecommendedWatcher>,
}

impl Loader {
    pub(super) fn start(catalogue: &Arc<Catalogue>) -> io::Result<Self> {
        let (ask, asked) = sync_channel(QUEUE);
        // Something may have changed between the reading of the folder and now.
        let lost = Arc::new(AtomicBool::new(true));
        let watcher = watch::start(&catalogue.folder, ask.clone(), &lost);
        let changes =
            Changes { names: HashSet::new(), since: Instant::now(), lost, compared: Instant::now() };
        let weak = Arc::downgrade(catalogue);
        thread::Builder::new()
            .name("certificate-folder".to_owned())
            .spawn(move || run(&weak, &asked, changes))?;
        Ok(Self { ask, _watcher: watcher })
    }

    /// Has `name` loaded. `false`: too many wait already.
    pub(super) fn load(&self, name: &str) -> bool {
        self.ask.try_send(Message::Load(name.to_owned())).is_ok()
    }
}

/// Runs until the catalogue is dropped.
fn run(catalogue: &Weak<Catalogue>, asked: &Receiver<Message>, mut changes: Changes) {
    loop {
        let message = asked.recv_timeout(changes.wait());
        let Some(catalogue) = catalogue.upgrade() else { return };
        match message {
            Ok(Message::Load(name)) => catalogue.answer(&name),
            Ok(Message::Changed(file)) => changes.add(name_of(&file)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if changes.is_compare_due() {
            changes.add(catalogue.compare());
        }
        // A few at a time: those who wait are answered between.
        changes.settled().into_iter().for_each(|name| catalogue.refresh(&name));
    }
}

/// Names whose files have changed, or may have.
struct Changes {
    names: HashSet<String>,
    since: Instant,
    lost: Arc<AtomicBool>,
    compared: Instant,
}

impl Changes {
    fn add(&mut self, names: impl IntoIterator<Item = String>) {
        let before = self.names.len();
        self.names.extend(names);
        if self.names.len() > before {
            self.since = Instant::now();
        }
    }

    /// How long there is nothing to do.
    fn wait(&self) -> Duration {
        if self.names.is_empty() { COMPARE } else { SETTLE.saturating_sub(self.since.elapsed()) }
    }

    fn is_compare_due(&mut self) -> bool {
        let due = self.lost.swap(false, Ordering::Relaxed) || self.compared.elapsed() >= COMPARE;
        if due {
            self.compared = Instant::now();
        }
        due
    }

    /// Some of the names that have not been changed for a moment.
    fn settled(&mut self) -> Vec<String> {
        if self.since.elapsed() < SETTLE {
            return Vec::new();
        }
        let some: Vec<_> = self.names.iter().take(16).cloned().collect();
        self.names.retain(|name| !some.contains(name));
        some
    }
}

impl Catalogue {
    /// Loads `name` for those who wait for it.
    fn answer(&self, name: &str) {
        let Some(place) = self.index.get(name) else { return };
        if let Some(loaded) = place.loaded() {
            place.answer(&loaded);
            return;
        }
        // Before the files are read: what changes meanwhile is noticed.
        let stamp = self.stamp(name);
        match self.read(name) {
            Ok(loaded) => {
                self.statistics.loads.fetch_add(1, Ordering::Relaxed);
                self.show(&place, loaded, stamp);
            }
            Err(error) => self.failed(name, &place, &error),
        }
        if self.index.loaded() > LOADED {
            let evicted = self.index.evict(EVICTED);
            self.statistics.evictions.fetch_add(evicted as u64, Ordering::Relaxed);
        }
    }

    fn show(&self, place: &Place, loaded: Vec<Served>, stamp: u64) {
        let loaded = Arc::new(loaded);
        place.set_stamp(stamp);
        place.set_failed(false);
        self.index.put(place, Some(Arc::clone(&loaded)));
        place.answer(&loaded);
    }

    fn failed(&self, name: &str, place: &Place, error: &CertError) {
        self.statistics.failures.fetch_add(1, Ordering::Relaxed);
        place.set_failed(true);
        place.give_up();
        tracing::warn!(name, "its certificate cannot be loaded, clients are refused: {error}");
    }

    /// What changed on the file system for `name` is in force from now on.
    fn refresh(&self, name: &str) {
        if !self.files(name).iter().any(|(chain, _)| chain.is_file()) {
            self.index.remove(name);
            return;
        }
        self.index.add(name);
        let Some(place) = self.index.get(name) else { return };
        place.set_failed(false);
        if !place.is_loaded() {
            return;
        }
        let stamp = self.stamp(name);
        if stamp == place.stamp() {
            return;
        }
        match self.read(name) {
            Ok(loaded) => {
                self.statistics.changes.fetch_add(1, Ordering::Relaxed);
                self.show(&place, loaded, stamp);
                tracing::info!(name, "new handshakes are shown a new certificate");
            }
            Err(error) => {
                self.statistics.failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(name, "the new certificate cannot be loaded, the one before stays: {error}");
            }
        }
    }

    /// Names that were added to the folder, removed, or whose files are newer than what is in memory.
    fn compare(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let files = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let there: HashSet<String> = files.filter_map(|file| name_of_chain(&file)).collect();
        let mut changed: Vec<_> =
            there.iter().filter(|name| self.index.get(name).is_none()).cloned().collect();
        for known in self.index.names() {
            let gone = known.iter().filter(|name| !there.contains(&***name));
            changed.extend(gone.map(ToString::to_string));
            let kept = known.iter().filter(|name| there.contains(&***name));
            changed.extend(kept.filter(|name| self.is_outdated(name)).map(ToString::to_string));
        }
        changed
    }

    /// Whether the files are others than those that were read.
    fn is_outdated(&self, name: &str) -> bool {
        let place = self.index.get(name).filter(|place| place.is_loaded());
        place.is_some_and(|place| place.stamp() != self.stamp(name))
    }

    /// Distinguishes the files of `name` from what they were before.
    fn stamp(&self, name: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (chain, key) in self.files(name) {
            for file in [chain, key] {
                let facts = std::fs::metadata(file).ok();
                facts.map(|facts| (facts.modified().ok(), facts.len(), facts.ino())).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    fn read(&self, name: &str) -> Result<Vec<Served>, CertError> {
        let engines = self.engines.get().expect("it was started");
        let mut found = Vec::new();
        for (chain, key) in self.files(name) {
            if !found.is_empty() && !chain.is_file() {
                continue;
            }
            let mut keystore = Keystore::new();
            // A file may have both.
            let key = if key.is_file() { key } else { chain.clone() };
            let loaded = load(&chain, &key, &mut keystore, SystemTime::now())?;
            for warning in &loaded.warnings {
                tracing::warn!(name, "{warning}");
            }
            found.push(Served::new(Arc::new(loaded.certificate), engines(Arc::new(keystore))));
        }
        Ok(found)
    }

    /// The files of `name`: chain and key, of the first certificate and of the second.
    fn files(&self, name: &str) -> [(PathBuf, PathBuf); 2] {
        let written = self.stem(name);
        let file = |suffix: &str| self.folder.join(format!("{written}{suffix}"));
        let (first, second) = ((file(".pem"), file(".key")), (file(".rsa.pem"), file(".rsa.key")));
        if first.0.is_file() { [first, second] } else { [second, first] }
    }

    /// The name as it is written in the folder.
    fn stem(&self, name: &str) -> String {
        let Some(parent) = name.strip_prefix("*.") else { return name.to_owned() };
        let under = format!("_.{parent}");
        let is_there = |stem: &str| Path::is_file(&self.folder.join(format!("{stem}.pem")));
        if is_there(&under) { under } else { name.to_owned() }
    }
}
