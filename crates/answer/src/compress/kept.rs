//! Compressed copies of files that are asked for often, in memory: made by the answers that are compressed anyway.
//!
//! Each worker keeps its own, and all of them together no more than a limit. A copy is known by the file's tag, so that one
//! of a file that has changed is never found again, and is dropped as the one that was used least recently.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_coding::Coding;
use bytes::Bytes;
use http::HeaderValue;

/// Files that were asked for once, of which a worker knows; then it forgets all of them.
const SEEN: usize = 4096;

/// A copy may take this part of the limit.
const SHARE: usize = 8;

/// What a copy takes beside its bytes, about.
const OVERHEAD: usize = 256;

/// Memory of the copies of all workers, in bytes.
static HELD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// What a copy is known by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) file: String,
    pub(super) tag: HeaderValue,
    pub(super) coding: Coding,
    pub(super) level: u8,
}

/// What is known of a file.
pub(super) enum Found {
    Copy(Bytes),
    /// It was asked for before: the answer may leave a copy.
    Wanted(Keeper),
    Nothing,
}

/// The copies of one worker.
#[derive(Default)]
struct Kept {
    copies: HashMap<Key, Copy>,
    seen: HashSet<u64>,
    hasher: RandomState,
    /// Counts what is done, to know what was used when.
    clock: u64,
}

struct Copy {
    bytes: Bytes,
    used: u64,
}

/// Gathers a copy while it is sent.
pub(super) struct Keeper {
    key: Key,
    bytes: Vec<u8>,
    limit: usize,
}

/// Memory of the copies of all workers, in bytes.
pub(super) fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Looks for a copy; all of them may take `limit` bytes.
pub(super) fn find(key: Key, limit: usize) -> Found {
    if limit == 0 {
        return Found::Nothing;
    }
    KEPT.with_borrow_mut(|kept| {
        kept.clock += 1;
        if let Some(copy) = kept.copies.get_mut(&key) {
            copy.used = kept.clock;
            return Found::Copy(copy.bytes.clone());
        }
        let hash = kept.hasher.hash_one(&key);
        if kept.seen.remove(&hash) {
            return Found::Wanted(Keeper { key, bytes: Vec::new(), limit });
        }
        if kept.seen.len() >= SEEN {
            kept.seen.clear();
        }
        kept.seen.insert(hash);
        Found::Nothing
    })
}

impl Keeper {
    /// Adds a piece. False if the copy has become too large: then it is to be dropped.
    pub(super) fn add(&mut self, piece: &[u8]) -> bool {
        if self.bytes.len() + piece.len() > self.limit / SHARE {
            return false;
        }
        self.bytes.extend_from_slice(piece);
        true
    }

    /// Keeps what was gathered, which is all.
    pub(super) fn finish(self) {
        let Self { key, bytes, limit } = self;
        KEPT.with_borrow_mut(|kept| kept.insert(key, bytes.into(), limit));
    }
}

impl Kept {
    fn insert(&mut self, key: Key, bytes: Bytes, limit: usize) {
        let size = bytes.len() + OVERHEAD;
        while HELD.load(Ordering::Relaxed) + size > limit {
            let oldest = self.copies.iter().min_by_key(|(_, copy)| copy.used).map(|(key, _)| key.clone());
            // The others are those of other workers.
            let Some(oldest) = oldest else { return };
            self.remove(&oldest);
        }
        self.remove(&key);
        HELD.fetch_add(size, Ordering::Relaxed);
        self.clock += 1;
        self.copies.insert(key, Copy { bytes, used: self.clock });
    }

    fn remove(&mut self, key: &Key) {
        if let Some(copy) = self.copies.remove(key) {
            HELD.fetch_sub(copy.bytes.len() + OVERHEAD, Ordering::Relaxed);
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for copy in self.copies.values() {
            HELD.fetch_sub(copy.bytes.len() + OVERHEAD, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(file: &str) -> Key {
        let tag = HeaderValue::from_static("\"x\"");
        Key { file: file.to_owned(), tag, coding: Coding::Gzip, level: 6 }
    }

    fn keep(file: &str, bytes: usize, limit: usize) -> bool {
        let Found::Wanted(mut keeper) = find(key(file), limit) else { return false };
        let fits = keeper.add(&vec![0; bytes]);
        if fits {
            keeper.finish();
        }
        fits
    }

    fn is_kept(file: &str, limit: usize) -> bool {
        matches!(find(key(file), limit), Found::Copy(_))
    }

    // One test: the memory is counted for the process.
    #[test]
    fn what_is_asked_for_twice_is_kept_and_the_least_recently_used_goes() {
        let limit = 16_000;
        assert!(matches!(find(key("a"), limit), Found::Nothing));
        assert!(keep("a", 1500, limit) && is_kept("a", limit));
        for file in ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k"] {
            assert!(matches!(find(key(file), limit), Found::Nothing));
            assert!(keep(file, 1500, limit), "{file}");
            assert!(is_kept("a", limit), "a was used last but one");
            assert!(held() <= limit, "{}", held());
        }
        assert!(!is_kept("b", limit));
        assert!(matches!(find(key("large"), limit), Found::Nothing));
        assert!(!keep("large", 3000, limit), "more than its share");
        assert!(
            matches!(find(key("off"), 0), Found::Nothing) && matches!(find(key("off"), 0), Found::Nothing)
        );
        KEPT.take();
        assert_eq!(held(), 0);
    }
}
