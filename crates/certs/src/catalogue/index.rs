//! The names of a folder, with what is in memory for each. Read without locks: each of its parts is replaced whole.

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

/// Parts of the index: with 100,000 names a change copies 400.
const PARTS: usize = 256;

/// Seconds for which a name that could not be loaded is not tried again.
const FAILED_FOR: u32 = 10;

/// Where times are counted from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Seconds since the start, from 1 on.
fn now() -> u32 {
    START.elapsed().as_secs() as u32 + 1
}

type Part = HashMap<Box<str>, Arc<Place>>;

/// The names of a folder.
pub(super) struct Index {
    parts: Box<[ArcSwap<Part>]>,
    hasher: RandomState,
    len: AtomicUsize,
    loaded: AtomicUsize,
}

/// What is in memory for a name.
#[derive(Debug, Default)]
pub(super) struct Place {
    loaded: ArcSwapOption<Slot>,
    /// Held by who reads its files.
    reading: Mutex<()>,
    /// What was read last. Held for moments only, unlike `reading`.
    turn: Mutex<Turn>,
    /// When it was last asked for.
    used: AtomicU32,
    /// The files that it was loaded from.
    stamp: AtomicU64,
    /// When it could not be loaded; 0 is never.
    failed: AtomicU32,
    /// Those that wait for it. Not empty: it is being loaded.
    waiters: Mutex<Vec<oneshot::Sender<Arc<Vec<Served>>>>>,
}

/// What was read last for a place.
#[derive(Debug, Default)]
struct Turn {
    number: u64,
    /// It waits for what it is shown with.
    is_pending: bool,
}

impl Index {
    /// The names of the files in `folder`.
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

    /// How many have something in memory.
    pub(super) fn loaded(&self) -> usize {
        self.loaded.load(Ordering::Relaxed)
    }

    /// The place for `name`, with the name that it has there: itself, or the wildcard that covers it.
    pub(super) fn find<'n>(&self, name: &'n str) -> Option<(Cow<'n, str>, Arc<Place>)> {
        if let Some(place) = self.get(name) {
            return Some((name.into(), place));
        }
        // RFC 9525 section 6.3: the wildcard stands for exactly one label.
        let wildcard = format!("*.{}", name.split_once('.')?.1);
        self.get(&wildcard).map(|place| (wildcard.into(), place))
    }

    /// The place of `name` itself.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Place>> {
        self.part(name).load().get(name).cloned()
    }

    /// Adds `name`, if it is not there.
    pub(super) fn add(&self, name: &str) {
        self.change(name, |part| {
            part.entry(name.into()).or_default();
        });
    }

    /// Removes `name`.
    pub(super) fn remove(&self, name: &str) {
        if let Some(place) = self.get(name) {
            let _reading = place.read();
            place.begin(0);
            self.put(&place, None);
            self.change(name, |part| drop(part.remove(name)));
        }
    }

    /// Whether `place` is that of `name` still.
    pub(super) fn has_at(&self, name: &str, place: &Arc<Place>) -> bool {
        self.part(name).load().get(name).is_some_and(|own| Arc::ptr_eq(own, place))
    }

    /// Puts what was read in `turn` for a place there, unless something was read since. Whether it was put, and in the place
    /// of something else.
    pub(super) fn show(&self, place: &Place, loaded: Arc<Slot>, turn: u64) -> Option<bool> {
        let mut last = place.turn();
        if last.number != turn {
            return None;
        }
        last.is_pending = false;
        Some(self.put(place, Some(loaded)))
    }

    /// Puts what was loaded for a place there, or drops it. Whether there was something before.
    fn put(&self, place: &Place, loaded: Option<Arc<Slot>>) -> bool {
        let more = loaded.is_some();
        let before = place.loaded.swap(loaded).is_some();
        match (before, more) {
            (false, true) => drop(self.loaded.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.loaded.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        before
    }

    /// All names, a part at a time.
    pub(super) fn names(&self) -> impl Iterator<Item = Vec<Box<str>>> {
        self.parts.iter().map(|part| part.load().keys().cloned().collect())
    }

    /// Drops about `count` of what is in memory: what was asked for longest ago. Returns how many. It looks at all
    /// names.
    pub(super) fn evict(&self, count: usize) -> usize {
        let all = || self.parts.iter().flat_map(|part| part.load().values().cloned().collect::<Vec<_>>());
        let mut used: Vec<_> =
            all().filter(|place| place.is_loaded()).map(|place| place.used.load(Ordering::Relaxed)).collect();
        if used.is_empty() || count == 0 {
            return 0;
        }
        let last = (count - 1).min(used.len() - 1);
        let (_, &mut limit, _) = used.select_nth_unstable(last);
        let old = all().filter(|place| place.is_loaded() && place.used.load(Ordering::Relaxed) <= limit);
        let drop_one = |place: &Arc<Place>| {
            self.put(place, None);
        };
        old.take(count).inspect(drop_one).count()
    }

    fn part(&self, name: &str) -> &ArcSwap<Part> {
        &self.parts[self.hasher.hash_one(name) as usize % PARTS]
    }

    /// Called by the thread alone that follows changes.
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

impl Place {
    /// What is in memory, which is in use from now on.
    pub(super) fn loaded(&self) -> Option<Arc<Vec<Served>>> {
        let loaded = self.loaded.load().as_ref()?.load_full();
        let now = now();
        if self.used.load(Ordering::Relaxed) != now {
            self.used.store(now, Ordering::Relaxed);
        }
        Some(loaded)
    }

    /// The right to read its files and to put there what they hold: one thread at a time, so that what is older never
    /// replaces what is newer.
    pub(super) fn read(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.load().is_some()
    }

    /// Whether something was read for it: it is in memory, or waits for what it is shown with.
    pub(super) fn is_read(&self) -> bool {
        self.turn().is_pending || self.is_loaded()
    }

    /// The stamp of what was read last.
    pub(super) fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Relaxed)
    }

    /// Notes that files with this stamp were read, by who has the right to. Returns the turn: what was read in those before is
    /// not shown any more.
    pub(super) fn begin(&self, stamp: u64) -> u64 {
        let mut turn = self.turn();
        self.stamp.store(stamp, Ordering::Relaxed);
        *turn = Turn { number: turn.number + 1, is_pending: true };
        turn.number
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it could not be loaded a moment ago.
    pub(super) fn failed_lately(&self) -> bool {
        let failed = self.failed.load(Ordering::Relaxed);
        failed > 0 && now().saturating_sub(failed) < FAILED_FOR
    }

    /// Whether it is worth another try at once.
    pub(super) fn set_failed(&self, failed: bool) {
        self.failed.store(if failed { now() } else { 0 }, Ordering::Relaxed);
    }

    /// Notes someone who waits for it. Whether they are the first: then it has to be loaded.
    pub(super) fn wait(&self, waiter: oneshot::Sender<Arc<Vec<Served>>>) -> bool {
        let mut waiters = self.waiters();
        if let Some(loaded) = self.loaded() {
            // Between the look of the caller and this one.
            let _ = waiter.send(loaded);
            return false;
        }
        waiters.push(waiter);
        waiters.len() == 1
    }

    /// Closes the channels of all who wait.
    pub(super) fn give_up(&self) {
        self.waiters().clear();
    }

    /// Answers all who wait with what was loaded, which [`Index::put`] has put here before.
    pub(super) fn answer(&self, loaded: &Arc<Vec<Served>>) {
        self.used.store(now(), Ordering::Relaxed);
        let waiters = std::mem::take(&mut *self.waiters());
        for waiter in waiters {
            // One that is gone waits no more.
            let _ = waiter.send(Arc::clone(loaded));
        }
    }

    fn waiters(&self) -> MutexGuard<'_, Vec<oneshot::Sender<Arc<Vec<Served>>>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name that a file belongs to: of a chain or a key, of the first certificate or the second. Files are named in lower
/// case: names are looked up so.
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

/// The same for chains alone, which make a name known.
pub(super) fn name_of_chain(file: &str) -> Option<String> {
    file.strip_suffix(".pem")?;
    name_of(file)
}

/// Whether it is capital letters that keep this from being the chain of a name.
pub(super) fn is_in_capitals(file: &str) -> bool {
    name_of_chain(file).is_none() && name_of_chain(&file.to_ascii_lowercase()).is_some()
}
