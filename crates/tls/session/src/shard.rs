//! One shard of the memory store: a hash table over a ring of sessions, with CLOCK eviction.
//!
//! CLOCK approximates least-recently-used, and writes one flag where LRU relinks a list. A new session takes the slot
//! of a removed one, mostly just behind the hand, and so has a whole round before it may be evicted.

mod used_sessions;

use hashbrown::HashTable;
use zeroize::Zeroizing;

use self::used_sessions::UsedSessions;
use crate::{MemoryStatistics, Miss};

/// Nanoseconds since the store was created.
pub(crate) type Nanos = u64;

/// Maximum length of a session ID (RFC 8446 section 4.1.2); PSK identities are not longer here.
const LONGEST_ID: usize = 32;

/// Memory of a session besides its own bytes: the slot with the ID, its 6 to 12 bytes in the table, and the rounding of
/// the allocator. `benches/memory.rs` compares the sum with the memory of the process.
const OVERHEAD: usize = size_of::<Slot>() + 32;

/// Slots that each `put` examines for an expired session. Two, because one per added session would never reach the
/// whole ring.
const EXAMINED_PER_PUT: usize = 2;

/// How long a taken session is remembered as used, if there is room.
const SPENT_FOR: Nanos = 60 * 1_000_000_000;

/// Ratio of sessions that fit into a shard to taken sessions that are remembered.
const SESSIONS_PER_SPENT: usize = 4;

/// Maximum number of taken sessions remembered per shard, 16 bytes each.
const MOST_SPENT: usize = 4096;

/// End of the list of empty slots.
const NONE: u32 = u32::MAX;

pub(crate) struct Shard {
    /// Indices of `slots` by the hash of the ID.
    indices: HashTable<u32>,
    slots: Vec<Slot>,
    /// Head of the list of empty slots.
    empty: u32,
    /// Slot at which the next eviction starts.
    hand: usize,
    /// Slot that is examined next for an expired session.
    examined: usize,
    max_sessions: usize,
    max_bytes: usize,
    used_sessions: UsedSessions,
    statistics: MemoryStatistics,
}

enum Slot {
    Full(Entry),
    Empty {
        /// Next element of the list of empty slots.
        next: u32,
    },
}

/// One cache line including the ID: a look-up touches this, the table and the session.
struct Entry {
    /// A boxed slice instead of a vector, whose capacity would take another word.
    session: Zeroizing<Box<[u8]>>,
    expires: Nanos,
    /// Half of the hash of the ID, which the growing table needs.
    hash: u32,
    id: Id,
    /// Whether it was looked up since the hand last passed.
    used: bool,
}

const _: () = assert!(size_of::<Slot>() == 64, "an entry is a cache line");

/// A session ID of at most 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Id {
    bytes: [u8; LONGEST_ID],
    length: u8,
}

impl Id {
    /// `None` if `id` is longer than 32 bytes.
    fn new(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; LONGEST_ID];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(Self { bytes, length: id.len() as u8 })
    }
}

/// The hash in the table. The other half of the hash of the ID selects the shard.
const fn place(hash: u32) -> u64 {
    // Multiplied, because the table uses the lowest bits and the highest seven, of which the latter would be zero.
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

const fn cost(session: &[u8]) -> usize {
    session.len() + OVERHEAD
}

impl Shard {
    pub(crate) fn new(max_sessions: usize, max_bytes: usize) -> Self {
        Self {
            indices: HashTable::new(),
            slots: Vec::new(),
            empty: NONE,
            hand: 0,
            examined: 0,
            // Indices are `u32`, and `NONE` must be none of them.
            max_sessions: max_sessions.min(NONE as usize),
            max_bytes,
            used_sessions: UsedSessions::new((max_sessions / SESSIONS_PER_SPENT).clamp(16, MOST_SPENT)),
            statistics: MemoryStatistics::default(),
        }
    }

    pub(crate) const fn statistics(&self) -> MemoryStatistics {
        self.statistics
    }

    pub(crate) fn put(&mut self, hash: u64, id: &[u8], session: Vec<u8>, expires: Nanos, now: Nanos) -> bool {
        let session = Zeroizing::new(session);
        let Some(id) = Id::new(id) else {
            self.statistics.refused += 1;
            return false;
        };
        // Removed even if the new session is refused below, because the former value is outdated.
        if let Some(index) = self.find(hash, &id) {
            self.remove(index);
        }
        let cost = cost(&session);
        if self.max_sessions == 0 || cost > self.max_bytes {
            self.statistics.refused += 1;
            return false;
        }
        // A few entries per insertion: expired sessions leave memory without a timer and without a long scan under the
        // lock.
        self.examine_some(now);
        while self.statistics.sessions >= self.max_sessions || self.statistics.bytes + cost > self.max_bytes {
            self.evict(now);
        }
        self.insert(Entry { session: exactly(session), expires, hash: hash as u32, id, used: false });
        true
    }

    pub(crate) fn get(&mut self, hash: u64, id: &[u8], now: Nanos) -> Result<Vec<u8>, Miss> {
        let index = self.find_live(hash, id, now)?;
        let Slot::Full(entry) = &mut self.slots[index] else { return Err(Miss::Unknown) };
        entry.used = true;
        Ok(entry.session.to_vec())
    }

    pub(crate) fn take(&mut self, hash: u64, id: &[u8], now: Nanos) -> Result<Vec<u8>, Miss> {
        let index = self.find_live(hash, id, now)?;
        let mut entry = self.remove(index).ok_or(Miss::Unknown)?;
        self.used_sessions.insert(hash, now.saturating_add(SPENT_FOR));
        // Moved, so that no copy remains that would have to be wiped.
        Ok(std::mem::take(&mut *entry.session).into_vec())
    }

    pub(crate) fn remove_expired(&mut self, now: Nanos) {
        for index in 0..self.slots.len() {
            self.expire(index, now);
        }
    }

    fn find(&self, hash: u64, id: &Id) -> Option<usize> {
        let is_it = |&index: &u32| match &self.slots[index as usize] {
            Slot::Full(entry) => entry.id == *id,
            Slot::Empty { .. } => false,
        };
        self.indices.find(place(hash as u32), is_it).map(|&index| index as usize)
    }

    /// The slot of an unexpired session, counted as a hit; an expired session is removed.
    fn find_live(&mut self, hash: u64, id: &[u8], now: Nanos) -> Result<usize, Miss> {
        let found = Id::new(id).and_then(|id| self.find(hash, &id));
        if let Some(index) = found.filter(|&index| !self.expire(index, now)) {
            self.statistics.hits += 1;
            return Ok(index);
        }
        self.statistics.misses += 1;
        // An expired session was removed just now, and has not been taken.
        if found.is_none() && self.used_sessions.contains(hash, now) {
            self.statistics.used += 1;
            return Err(Miss::Used);
        }
        Err(Miss::Unknown)
    }

    fn insert(&mut self, entry: Entry) {
        self.statistics.stored += 1;
        self.statistics.sessions += 1;
        self.statistics.bytes += cost(&entry.session);
        let hash = entry.hash;
        let index = self.fill(Slot::Full(entry));
        let slots = &self.slots;
        self.indices.insert_unique(place(hash), index, |&index| match &slots[index as usize] {
            Slot::Full(entry) => place(entry.hash),
            // Not reached, since the table has indices of full slots only.
            Slot::Empty { .. } => 0,
        });
    }

    /// Puts `full` into an empty slot and returns its index.
    fn fill(&mut self, full: Slot) -> u32 {
        let index = self.empty;
        if let Some(slot @ &mut Slot::Empty { next }) = self.slots.get_mut(index as usize) {
            *slot = full;
            self.empty = next;
            return index;
        }
        if self.slots.len() == self.slots.capacity() {
            // Doubles the capacity, but not beyond the maximum number of sessions.
            let more = self.slots.len().max(8).min(self.max_sessions - self.slots.len());
            self.slots.reserve_exact(more);
        }
        self.slots.push(full);
        (self.slots.len() - 1) as u32
    }

    /// Empties the slot.
    fn remove(&mut self, index: usize) -> Option<Entry> {
        if matches!(self.slots[index], Slot::Empty { .. }) {
            return None;
        }
        let emptied = std::mem::replace(&mut self.slots[index], Slot::Empty { next: self.empty });
        let Slot::Full(entry) = emptied else { return None };
        self.empty = index as u32;
        if let Ok(found) = self.indices.find_entry(place(entry.hash), |&other| other == self.empty) {
            found.remove();
        }
        self.statistics.sessions -= 1;
        self.statistics.bytes -= cost(&entry.session);
        Some(entry)
    }

    /// Removes the session in this slot if it is expired. Returns whether it did.
    fn expire(&mut self, index: usize, now: Nanos) -> bool {
        let expired = matches!(&self.slots[index], Slot::Full(entry) if now >= entry.expires);
        if expired {
            self.remove(index);
            self.statistics.expired += 1;
        }
        expired
    }

    fn examine_some(&mut self, now: Nanos) {
        for _ in 0..EXAMINED_PER_PUT.min(self.slots.len()) {
            let index = advance(&mut self.examined, self.slots.len());
            self.expire(index, now);
        }
    }

    /// Removes the first session that is expired or was not used since the hand last passed.
    ///
    /// The shard must contain a session. Ends within two rounds, since the first clears every flag.
    fn evict(&mut self, now: Nanos) {
        loop {
            let index = advance(&mut self.hand, self.slots.len());
            if self.expire(index, now) {
                return;
            }
            let Slot::Full(entry) = &mut self.slots[index] else { continue };
            if !std::mem::take(&mut entry.used) {
                self.remove(index);
                self.statistics.evicted += 1;
                return;
            }
        }
    }
}

/// Copies `session` into an exact allocation. The old one is wiped, which shrinking in place would not do.
fn exactly(mut session: Zeroizing<Vec<u8>>) -> Zeroizing<Box<[u8]>> {
    if session.len() == session.capacity() {
        return Zeroizing::new(std::mem::take(&mut *session).into_boxed_slice());
    }
    Zeroizing::new(session.as_slice().into())
}

/// Returns the index at `hand` in a ring of `slots`, and moves the hand on.
fn advance(hand: &mut usize, slots: usize) -> usize {
    let index = if *hand < slots { *hand } else { 0 };
    *hand = index + 1;
    index
}
