//! Compressed copies of frequently requested files, in memory.
//!
//! Responses that are compressed anyway leave the copies, one response at a time for each copy. Each worker has its own
//! copies; a limit applies to all of them together. The file's tag is part of the key, so the copy of a changed file is never found again and is evicted
//! as least recently used.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_budget::stored_part;
use brisk_coding::Coding;
use brisk_http_connection::Connection;
use brisk_http_connection::gathering::Gathering;
use bytes::Bytes;
use http::HeaderValue;

/// Maximum number of entries in [`Kept::seen`]. When it is reached, the worker forgets all.
const SEEN: usize = 4096;

/// Divisor of the limit for the size of a single copy.
const SHARE: usize = 8;

/// Estimated overhead of a copy in bytes.
const OVERHEAD: usize = 256;

/// Memory of the copies of all workers, in bytes.
static HELD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// Key of a copy: a change of the `ETag` or of the level requires another copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) file: String,
    pub(super) tag: HeaderValue,
    pub(super) coding: Coding,
    pub(super) level: u8,
}

/// Result of [`find`].
pub(super) enum Found {
    Copy(Bytes),
    /// The file was requested before: this response may leave a copy.
    Wanted(Keeper),
    Nothing,
}

/// The copies of one worker.
#[derive(Default)]
struct Kept {
    copies: HashMap<Key, Copy>,
    seen: HashSet<u64>,
    /// Copies that responses in progress gather.
    gathering: HashSet<Key>,
    hasher: RandomState,
    /// Logical clock for the time of last use.
    clock: u64,
}

struct Copy {
    bytes: Bytes,
    used: u64,
}

/// Gathers a copy while the response is sent.
pub(super) struct Keeper {
    key: Key,
    gathering: Option<Gathering>,
    limit: usize,
}

/// Memory of the copies of all workers, in bytes.
pub(super) fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Looks up a copy for a response on `connection`. Finished copies may take three quarters of `limit` bytes, since others
/// are being gathered; 0 disables them.
pub(super) fn find(key: Key, limit: usize, connection: &Connection) -> Found {
    if limit == 0 {
        return Found::Nothing;
    }
    KEPT.with_borrow_mut(|kept| {
        // A counter instead of the time, because only the order of uses matters.
        kept.clock += 1;
        if let Some(copy) = kept.copies.get_mut(&key) {
            copy.used = kept.clock;
            return Found::Copy(copy.bytes.clone());
        }
        // Only the hash is kept. A collision merely makes a copy one request earlier.
        let hash = kept.hasher.hash_one(&key);
        if kept.seen.contains(&hash) {
            if kept.gathering.contains(&key) {
                return Found::Nothing;
            }
            let Some(gathering) = connection.gather(limit / SHARE) else { return Found::Nothing };
            // Removed, so that after a copy that was given up, two requests are necessary again.
            kept.seen.remove(&hash);
            kept.gathering.insert(key.clone());
            return Found::Wanted(Keeper { key, gathering: Some(gathering), limit });
        }
        if kept.seen.len() >= SEEN {
            kept.seen.clear();
        }
        kept.seen.insert(hash);
        Found::Nothing
    })
}

impl Keeper {
    /// Adds a piece of the compressed output.
    pub(super) fn add(&self, piece: &[u8]) {
        if let Some(gathering) = &self.gathering {
            gathering.add(piece);
        }
    }

    /// Stores the complete copy, unless the [`Gathering`] was given up.
    pub(super) fn finish(mut self) {
        let bytes = self.gathering.take().and_then(Gathering::finish);
        if let Some(bytes) = bytes {
            let limit = stored_part(self.limit);
            KEPT.with_borrow_mut(|kept| kept.insert(self.key.clone(), bytes.into(), limit));
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // An error means that the thread is ending.
        let _ = KEPT.try_with(|kept| kept.borrow_mut().gathering.remove(&self.key));
    }
}

impl Kept {
    fn insert(&mut self, key: Key, bytes: Bytes, limit: usize) {
        let size = bytes.len() + OVERHEAD;
        // Two workers may pass this check at the same time, and exceed the limit until the next insertion.
        while HELD.load(Ordering::Relaxed) + size > limit {
            let oldest = self.copies.iter().min_by_key(|(_, copy)| copy.used).map(|(key, _)| key.clone());
            // The remaining copies belong to other workers and cannot be evicted from here.
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

    fn look_up(file: &str, limit: usize) -> Found {
        find(key(file), limit, &brisk_http_connection::testing::connection())
    }

    fn keep(file: &str, bytes: usize, limit: usize) -> bool {
        let Found::Wanted(keeper) = look_up(file, limit) else { return false };
        keeper.add(&vec![0; bytes]);
        keeper.finish();
        is_kept(file, limit)
    }

    fn is_kept(file: &str, limit: usize) -> bool {
        matches!(look_up(file, limit), Found::Copy(_))
    }

    #[test]
    fn one_response_at_a_time_leaves_a_copy() {
        let limit = 16_000;
        assert!(matches!(look_up("one", limit), Found::Nothing));
        let Found::Wanted(first) = look_up("one", limit) else { panic!("the second request gathers") };
        for _ in 0..4 {
            assert!(matches!(look_up("one", limit), Found::Nothing));
        }
        drop(first);
        assert!(matches!(look_up("one", limit), Found::Wanted(_)), "the first was not completed");
    }

    // One test: the memory is counted for the process.
    #[test]
    fn what_is_asked_for_twice_is_kept_and_the_least_recently_used_goes() {
        let limit = 16_000;
        assert!(matches!(look_up("a", limit), Found::Nothing));
        assert!(keep("a", 1500, limit) && is_kept("a", limit));
        for file in ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k"] {
            assert!(matches!(look_up(file, limit), Found::Nothing));
            assert!(keep(file, 1500, limit), "{file}");
            assert!(is_kept("a", limit), "a was used last but one");
            assert!(held() <= limit, "{}", held());
        }
        assert!(!is_kept("b", limit));
        assert!(matches!(look_up("large", limit), Found::Nothing));
        assert!(!keep("large", 3000, limit), "more than its share");
        assert!(matches!(look_up("off", 0), Found::Nothing) && matches!(look_up("off", 0), Found::Nothing));
        KEPT.take();
        assert_eq!(held(), 0);
    }
}
