//! The threads that load certificates of requested names.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brisk_keys::Keystore;

use super::index::IndexEntry;
use super::{Catalogue, LOADED, Ordering};
use crate::certificate::{Certificate, Loaded, load};
use crate::error::CertError;
use crate::slot::{Served, Slot};

/// Number of loading threads; several, so that one slow file does not delay all others.
const THREADS: usize = 4;

/// Capacity of the queue. Beyond it, handshakes fail at once instead of after their timeout.
const QUEUE: usize = 1024;

/// Entries evicted at a time.
const EVICTED: usize = LOADED / 20;

/// How long after a change a key and a chain may temporarily not match, because one of them is replaced first.
const SETTLING: Duration = Duration::from_secs(5);

/// Pause before they are read again.
pub(super) const SETTLE: Duration = Duration::from_millis(200);

/// Sends names to the loading threads, which end when it is dropped.
#[derive(Debug)]
pub(super) struct Loader(SyncSender<String>);

impl Loader {
    pub(super) fn start(catalogue: &Arc<Catalogue>) -> io::Result<Self> {
        let (ask, asked) = sync_channel(QUEUE);
        let asked = Arc::new(Mutex::new(asked));
        for _ in 0..THREADS {
            let (catalogue, asked) = (Arc::downgrade(catalogue), Arc::clone(&asked));
            let run = move || run(&catalogue, &asked);
            thread::Builder::new().name("certificate-load".to_owned()).spawn(run)?;
        }
        Ok(Self(ask))
    }

    /// Queues `name`. Returns `false` if the queue is full.
    pub(super) fn load(&self, name: &str) -> bool {
        self.0.try_send(name.to_owned()).is_ok()
    }
}

fn run(catalogue: &Weak<Catalogue>, asked: &Mutex<Receiver<String>>) {
    // The guard is held during `recv`: a channel has one receiver, so the other threads queue at the mutex.
    let next = || asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok(name) = next() {
        let Some(catalogue) = catalogue.upgrade() else { return };
        catalogue.answer(&name);
    }
}

impl Catalogue {
    /// Loads `name` for the waiting handshakes.
    fn answer(self: &Arc<Self>, name: &str) {
        let Some(entry) = self.index.get(name) else { return };
        let reading = entry.read();
        // Another thread may have loaded the name since it was queued.
        if let Some(loaded) = entry.loaded() {
            entry.answer(&loaded);
            return;
        }
        if !self.index.has_at(name, &entry) {
            entry.give_up();
            return;
        }
        match self.read_settled(name) {
            Ok((loaded, stamp)) => {
                self.statistics.loads.fetch_add(1, Ordering::Relaxed);
                self.faulty.remove(name);
                self.show(name, &entry, loaded, stamp);
            }
            Err(error) => self.failed(name, &entry, &error),
        }
        // Released before the eviction, which scans all names.
        drop(reading);
        self.evict();
    }

    /// Evicts entries if more than [`LOADED`] are in memory.
    fn evict(&self) {
        // If the lock is held, another thread is evicting already.
        let Ok(_alone) = self.evicting.try_lock() else { return };
        if self.index.loaded() > LOADED {
            let evicted = self.index.evict(EVICTED);
            self.statistics.evictions.fetch_add(evicted as u64, Ordering::Relaxed);
        }
    }

    /// Stores the loaded certificates now, or once their staples are available if they require them. Returns whether
    /// they were stored now. The caller holds the lock of [`IndexEntry::read`].
    pub(super) fn show(
        self: &Arc<Self>,
        name: &str,
        entry: &Arc<IndexEntry>,
        loaded: Vec<Served>,
        stamp: u64,
    ) -> bool {
        let (slot, read_number) = (Slot::with(loaded), entry.begin(stamp));
        match self.maintenance.get() {
            // Clients would refuse a must-staple certificate without its staple, so the old one stays until then.
            Some(maintenance) if !maintenance.maintain(&slot) => {
                let (catalogue, entry, name) = (Arc::downgrade(self), Arc::clone(entry), name.to_owned());
                let own = Arc::clone(&slot);
                maintenance.when_stapled(&slot, move || {
                    let Some(catalogue) = catalogue.upgrade() else { return };
                    catalogue.put(&name, &entry, own, read_number);
                });
                false
            }
            _ => {
                self.put(name, entry, slot, read_number);
                true
            }
        }
    }

    /// Stores the certificates read as number `read_number`, unless a later read has begun or the name was removed. Reads no
    /// file.
    pub(super) fn put(&self, name: &str, entry: &Arc<IndexEntry>, slot: Arc<Slot>, read_number: u64) {
        let loaded = slot.load_full();
        let Some(is_change) = self.index.show(entry, slot, read_number) else {
            if !self.index.has_at(name, entry) {
                entry.give_up();
            }
            return;
        };
        entry.set_failed(false);
        entry.answer(&loaded);
        if is_change {
            self.statistics.changes.fetch_add(1, Ordering::Relaxed);
            tracing::info!(name, "new handshakes are shown a new certificate");
        }
    }

    fn failed(&self, name: &str, entry: &IndexEntry, error: &CertError) {
        self.statistics.failures.fetch_add(1, Ordering::Relaxed);
        entry.set_failed(true);
        entry.give_up();
        self.faulty.add(name, error.to_string());
        tracing::warn!(name, "its certificate cannot be loaded, clients are refused: {error}");
    }

    /// Reads the files of `name` and their stamp. Retries while key and chain do not match and one of them changed
    /// within the last five seconds.
    fn read_settled(&self, name: &str) -> Result<(Vec<Served>, u64), CertError> {
        loop {
            // The stamp first, so that a change during the read is noticed later.
            let stamp = self.stamp(name);
            match self.read(name) {
                Err(CertError::KeyMismatch { .. }) if self.is_settling(name) => thread::sleep(SETTLE),
                read => return read.map(|loaded| (loaded, stamp)),
            }
        }
    }

    /// Whether a file of `name` changed within the last five seconds.
    fn is_settling(&self, name: &str) -> bool {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_new = |file: &Path| {
            // `ctime` and not `mtime`, which `cp -p` and `rsync` set to the time of the original.
            let changed = std::fs::metadata(file).map_or(0, |facts| facts.ctime());
            since.as_secs().abs_diff(changed.unsigned_abs()) <= SETTLING.as_secs()
        };
        self.files(name).iter().any(|(chain, key)| is_new(chain) || is_new(key))
    }

    /// A hash of modification times, lengths and inodes of the files of `name`.
    pub(super) fn stamp(&self, name: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (chain, key) in self.files(name) {
            for file in [chain, key] {
                // Without the contents: every loaded name is compared each minute.
                let facts = std::fs::metadata(file).ok();
                facts.map(|facts| (facts.modified().ok(), facts.len(), facts.ino())).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    pub(super) fn read(&self, name: &str) -> Result<Vec<Served>, CertError> {
        let engines = self.engines.get().expect("it was started");
        let serve = |(loaded, keystore): (Loaded, Keystore)| {
            for warning in &loaded.warnings {
                tracing::warn!(name, "{warning}");
            }
            Served::new(Arc::new(loaded.certificate), engines(Arc::new(keystore)))
        };
        Ok(self.load_files(name)?.into_iter().map(serve).collect())
    }

    /// Loads the first and the second certificate of `name`, each with its key.
    fn load_files(&self, name: &str) -> Result<Vec<(Loaded, Keystore)>, CertError> {
        let mut found = Vec::new();
        for (chain, key) in self.files(name) {
            // The first chain is read even if it is missing, so that the error names the file.
            if !found.is_empty() && !chain.is_file() {
                continue;
            }
            let mut keystore = Keystore::new();
            // The chain file may contain the key.
            let key = if key.is_file() { key } else { chain.clone() };
            let loaded = load(&chain, &key, &mut keystore, SystemTime::now())?;
            self.is_showable(&loaded.certificate)?;
            found.push((loaded, keystore));
        }
        Ok(found)
    }

    /// Loads the files of all names, and returns the names with errors. Takes about a millisecond for each name.
    pub fn check(&self) -> Vec<(String, CertError)> {
        let names = self.index.names().flatten();
        let mut faulty: Vec<_> =
            names.filter_map(|name| Some((name.to_string(), self.load_files(&name).err()?))).collect();
        faulty.sort_by(|(one, _), (other, _)| one.cmp(other));
        faulty
    }

    /// Refuses must-staple certificates (RFC 7633) for which no staple can be fetched, since clients would refuse them.
    fn is_showable(&self, certificate: &Certificate) -> Result<(), CertError> {
        let services = &certificate.services;
        let reason = if services.responders.is_empty() {
            "it names no OCSP responder: have one issued without must-staple"
        } else if self.maintenance.get().is_some_and(|maintenance| !maintenance.keeps_staples()) {
            "certificates.staple is false: have one issued without must-staple, or leave that out"
        } else {
            return Ok(());
        };
        if !services.must_staple {
            return Ok(());
        }
        let (path, title) = (certificate.source.clone(), certificate.title());
        Err(CertError::MustStaple { path, title, reason })
    }

    /// Whether a chain file for `name` exists. An error means that it is unknown.
    pub(super) fn is_there(&self, name: &str) -> io::Result<bool> {
        let mut is_there = false;
        // All spellings are checked: one with an error could be the only existing one.
        let under = name.strip_prefix("*.").map(|parent| format!("_.{parent}"));
        for stem in under.as_deref().into_iter().chain([name]) {
            for suffix in [".pem", ".rsa.pem"] {
                match std::fs::metadata(self.folder.join(format!("{stem}{suffix}"))) {
                    Ok(facts) => is_there |= facts.is_file(),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(is_there)
    }

    /// The chain and key files of the first and the second certificate of `name`.
    pub(super) fn files(&self, name: &str) -> [(PathBuf, PathBuf); 2] {
        let written = self.stem(name);
        let file = |suffix: &str| self.folder.join(format!("{written}{suffix}"));
        let (first, second) = ((file(".pem"), file(".key")), (file(".rsa.pem"), file(".rsa.key")));
        // The chain that exists comes first, because only the second may be missing.
        if first.0.is_file() { [first, second] } else { [second, first] }
    }

    /// The spelling of `name` in the folder.
    fn stem(&self, name: &str) -> String {
        let Some(parent) = name.strip_prefix("*.") else { return name.to_owned() };
        let under = format!("_.{parent}");
        let is_there = |suffix: &str| Path::is_file(&self.folder.join(format!("{under}{suffix}")));
        if is_there(".pem") || is_there(".rsa.pem") { under } else { name.to_owned() }
    }
}
