//! The names of a [`Catalogue`](super::Catalogue) and their loaded certificates. Reads take no lock: the index is
//! divided into parts, each of which is replaced as a whole.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::oneshot;

use crate::slot::{Served, Slot};

/// Number of parts. With 100,000 names, a change copies 400.
const PARTS: usize = 256;

/// Seconds for which a failed load is not repeated.
const FAILED_FOR: u32 = 10;

/// Origin of the times in this module.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Seconds since [`START`], plus 1, since 0 means never.
fn now() -> u32 {
    START.elapsed().as_secs() as u32 + 1
}

type Part = HashMap<Box<str>, Arc<IndexEntry>>;

/// Index of names.
pub(super) struct Index {
    parts: Box<[ArcSwap<Part>]>,
    hasher: RandomState,
    len: AtomicUsize,
    loaded: AtomicUsize,
}

/// State of one name.
#[derive(Debug, Default)]
pub(super) struct IndexEntry {
    loaded: ArcSwapOption<Slot>,
    /// Held while its files are read.
    reading: Mutex<()>,
    /// The last read. Its lock is held for moments only, unlike `reading`.
    last_read: Mutex<LastRead>,
    /// Time of the last use.
    used: AtomicU32,
    /// [Stamp](super::Catalogue::stamp) of the loaded files.
    stamp: AtomicU64,
    /// Time of the last failed load; 0 means none.
    failed: AtomicU32,
    /// Handshakes waiting for this entry; non-empty while it loads.
    waiters: Mutex<Vec<oneshot::Sender<Arc<Vec<Served>>>>>,
}

/// Number and state of the last read.
#[derive(Debug, Default)]
struct LastRead {
    number: u64,
    /// Whether the certificates that were read wait for their staples.
    is_pending: bool,
}

impl Index {
    /// Indexes the names of the files in `folder`.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let hasher = RandomState::new();
        let mut parts: Vec<Part> = (0..PARTS).map(|_| Part::new()).collect();
        for entry in fs::read_dir(folder)? {
            if let Some(name) = entry?.file_name().to_str().and_then(name_of_chain) {
                let part = hasher.hash_one(&*name) as usize % PARTS;
                parts[part].entry(name.into()).or_default();
            }
        }
        parts.iter_mut().for_each(HashMap::shrink_to_fit);
        let len = parts.iter().map(HashMap::len).sum();
        Ok(Self {
            parts: parts.into_iter().map(ArcSwap::from_pointee).collect(),
            hasher,
            len: AtomicUsize::new(len),
            loaded: AtomicUsize::new(0),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Number of names with certificates in memory.
    pub(super) fn loaded(&self) -> usize {
        self.loaded.load(Ordering::Relaxed)
    }

    /// The entry that serves `name`, and its key: `name` itself or the wildcard that covers it.
    pub(super) fn find<'n>(&self, name: &'n str) -> Option<(Cow<'n, str>, Arc<IndexEntry>)> {
        if let Some(entry) = self.get(name) {
            return Some((name.into(), entry));
        }
        // RFC 9525 section 6.3: the wildcard stands for exactly one label.
        let wildcard = format!("*.{}", name.split_once('.')?.1);
        self.get(&wildcard).map(|entry| (wildcard.into(), entry))
    }

    /// The entry of `name`, without wildcards.
    pub(super) fn get(&self, name: &str) -> Option<Arc<IndexEntry>> {
        self.part(name).load().get(name).cloned()
    }

    /// Adds `name` unless it exists.
    pub(super) fn add(&self, name: &str) {
        self.change(name, |part| {
            part.entry(name.into()).or_default();
        });
    }

    pub(super) fn remove(&self, name: &str) {
        if let Some(entry) = self.get(name) {
            let _reading = entry.read();
            // Certificates that wait for their staples have an older number from now on and cannot bring
            // the name back.
            entry.begin(0);
            self.put(&entry, None);
            self.change(name, |part| drop(part.remove(name)));
        }
    }

    /// Whether `entry` is still the entry of `name`.
    pub(super) fn has_at(&self, name: &str, entry: &Arc<IndexEntry>) -> bool {
        self.part(name).load().get(name).is_some_and(|own| Arc::ptr_eq(own, entry))
    }

    /// Stores the certificates read as number `read_number`. Returns whether they replaced others; `None` if a later read has
    /// begun and these are discarded.
    pub(super) fn show(&self, entry: &IndexEntry, loaded: Arc<Slot>, read_number: u64) -> Option<bool> {
        let mut last = entry.last_read();
        if last.number != read_number {
            return None;
        }
        last.is_pending = false;
        Some(self.put(entry, Some(loaded)))
    }

    /// Replaces or removes the certificates of `entry`. Returns whether there were any.
    fn put(&self, entry: &IndexEntry, loaded: Option<Arc<Slot>>) -> bool {
        let more = loaded.is_some();
        let before = entry.loaded.swap(loaded).is_some();
        match (before, more) {
            (false, true) => drop(self.loaded.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.loaded.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        before
    }

    /// All names, part by part.
    pub(super) fn names(&self) -> impl Iterator<Item = Vec<Box<str>>> {
        self.parts.iter().map(|part| part.load().keys().cloned().collect())
    }

    /// Evicts about `count` least recently used entries and returns their number. Iterates over all names.
    pub(super) fn evict(&self, count: usize) -> usize {
        let all = || self.parts.iter().flat_map(|part| part.load().values().cloned().collect::<Vec<_>>());
        let mut used: Vec<_> =
            all().filter(|entry| entry.is_loaded()).map(|entry| entry.used.load(Ordering::Relaxed)).collect();
        if used.is_empty() || count == 0 {
            return 0;
        }
        let last = (count - 1).min(used.len() - 1);
        let (_, &mut limit, _) = used.select_nth_unstable(last);
        let old = all().filter(|entry| entry.is_loaded() && entry.used.load(Ordering::Relaxed) <= limit);
        let drop_one = |entry: &Arc<IndexEntry>| {
            self.put(entry, None);
        };
        // Many entries may have been used in the second of the limit; `take` keeps the surplus.
        old.take(count).inspect(drop_one).count()
    }

    fn part(&self, name: &str) -> &ArcSwap<Part> {
        &self.parts[self.hasher.hash_one(name) as usize % PARTS]
    }

    /// Copies and replaces the part of `name`. Not synchronised: only the thread that follows changes calls it.
    fn change(&self, name: &str, change: impl Fn(&mut Part)) {
        let part = self.part(name);
        let mut new = Part::clone(&part.load());
        let before = new.len();
        change(&mut new);
        let after = new.len();
        if before != after {
            part.store(Arc::new(new));
            self.len.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}

impl IndexEntry {
    /// The certificates in memory; updates the time of the last use.
    pub(super) fn loaded(&self) -> Option<Arc<Vec<Served>>> {
        let loaded = self.loaded.load().as_ref()?.load_full();
        let now = now();
        // Written at most once per second, so that the cache line stays shared by the workers.
        if self.used.load(Ordering::Relaxed) != now {
            self.used.store(now, Ordering::Relaxed);
        }
        Some(loaded)
    }

    /// Locks the right to read its files and store the result, so that an older read never replaces a newer one.
    pub(super) fn read(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.load().is_some()
    }

    /// Whether its files have been read: its certificates are in memory or wait for their staples.
    pub(super) fn is_read(&self) -> bool {
        self.last_read().is_pending || self.is_loaded()
    }

    /// Stamp of the last read.
    pub(super) fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Relaxed)
    }

    /// Begins a read of files with `stamp` and returns its number; results of earlier reads are discarded from now on.
    /// The caller holds the lock of [`read`](Self::read).
    pub(super) fn begin(&self, stamp: u64) -> u64 {
        let mut last_read = self.last_read();
        self.stamp.store(stamp, Ordering::Relaxed);
        *last_read = LastRead { number: last_read.number + 1, is_pending: true };
        last_read.number
    }

    fn last_read(&self) -> MutexGuard<'_, LastRead> {
        self.last_read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether loading failed within the last ten seconds.
    pub(super) fn failed_lately(&self) -> bool {
        let failed = self.failed.load(Ordering::Relaxed);
        failed > 0 && now().saturating_sub(failed) < FAILED_FOR
    }

    /// Records a failed load, or permits a retry at once.
    pub(super) fn set_failed(&self, failed: bool) {
        self.failed.store(if failed { now() } else { 0 }, Ordering::Relaxed);
    }

    /// Adds a waiting handshake. Returns whether it is the first, which must start the load.
    pub(super) fn wait(&self, waiter: oneshot::Sender<Arc<Vec<Served>>>) -> bool {
        // Locked before the check: `answer` empties the list after the certificates are stored, so a waiter
        // either finds them here or is in the list in time.
        let mut waiters = self.waiters();
        if let Some(loaded) = self.loaded() {
            // Loaded since the caller checked.
            let _ = waiter.send(loaded);
            return false;
        }
        waiters.push(waiter);
        waiters.len() == 1
    }

    /// Fails all waiting handshakes by closing their channels.
    pub(super) fn give_up(&self) {
        self.waiters().clear();
    }

    /// Sends `loaded` to all waiting handshakes. [`Index::put`] must have stored it before.
    pub(super) fn answer(&self, loaded: &Arc<Vec<Served>>) {
        // An entry that was never used has the oldest time, and would be evicted before its first
        // handshake.
        self.used.store(now(), Ordering::Relaxed);
        let waiters = std::mem::take(&mut *self.waiters());
        for waiter in waiters {
            // An error means that the handshake has ended.
            let _ = waiter.send(Arc::clone(loaded));
        }
    }

    fn waiters(&self) -> MutexGuard<'_, Vec<oneshot::Sender<Arc<Vec<Served>>>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name that a chain or key file belongs to. Only lower-case file names count, since look-ups are in lower case.
pub(super) fn name_of(file: &str) -> Option<String> {
    let stem = file.strip_suffix(".pem").or_else(|| file.strip_suffix(".key"))?;
    let stem = stem.strip_suffix(".rsa").unwrap_or(stem);
    let name = stem.strip_prefix("_.").map_or_else(|| stem.to_owned(), |parent| format!("*.{parent}"));
    let plain = name.strip_prefix("*.").unwrap_or(&name);
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.:".contains(&byte);
    let is_name =
        !plain.is_empty() && !plain.starts_with('.') && plain.bytes().all(allowed) && name.len() <= 255;
    is_name.then_some(name)
}

/// Like [`name_of`], for chain files only: a key alone does not add a name.
pub(super) fn name_of_chain(file: &str) -> Option<String> {
    file.strip_suffix(".pem")?;
    name_of(file)
}

/// Whether `file` would be a chain file if its name were in lower case.
pub(super) fn is_in_capitals(file: &str) -> bool {
    name_of_chain(file).is_none() && name_of_chain(&file.to_ascii_lowercase()).is_some()
}
