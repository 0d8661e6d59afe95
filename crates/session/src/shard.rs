//! One shard of the memory store: a table over a ring of sessions, swept by the hand of a clock.
//!
//! The CLOCK algorithm comes close to least-recently-used and writes one flag where LRU relinks a list. A new session
//! takes the slot of one that left, mostly just behind the hand, and so has a whole round before it may be evicted.

use std::time::Instant;

use hashbrown::HashTable;
use zeroize::Zeroizing;

use crate::MemoryStatistics;

/// What a session costs beside its ID and its own bytes: the slot, its place in the table and two allocations.
const OVERHEAD: usize = size_of::<Option<Entry>>() + 48;

/// Slots that each `put` examines for an expired session: more than it can add, so that the whole ring gets its turn.
const EXAMINED_PER_PUT: usize = 2;

pub(crate) struct Shard {
    /// Indices of `slots`, found by the hash of the ID.
    indices: HashTable<usize>,
    slots: Vec<Option<Entry>>,
    /// Indices of the empty slots; the one emptied last is filled first.
    free: Vec<usize>,
    /// The slot where the next eviction begins to look.
    hand: usize,
    /// The slot that is examined next for an expired session.
    examined: usize,
    max_sessions: usize,
    max_bytes: usize,
    statistics: MemoryStatistics,
}

struct Entry {
    hash: u64,
    id: Box<[u8]>,
    session: Zeroizing<Vec<u8>>,
    expires: Instant,
    /// Asked for since the hand last passed.
    used: bool,
}

impl Entry {
    fn cost(&self) -> usize {
        cost(&self.id, &self.session)
    }
}

fn cost(id: &[u8], session: &Vec<u8>) -> usize {
    id.len() + session.capacity() + OVERHEAD
}

impl Shard {
    pub(crate) fn new(max_sessions: usize, max_bytes: usize) -> Self {
        Self {
            indices: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            examined: 0,
            max_sessions,
            max_bytes,
            statistics: MemoryStatistics::default(),
        }
    }

    pub(crate) const fn statistics(&self) -> MemoryStatistics {
        self.statistics
    }

    pub(crate) fn put(
        &mut self,
        hash: u64,
        id: &[u8],
        session: Vec<u8>,
        expires: Instant,
        now: Instant,
    ) -> bool {
        let session = Zeroizing::new(session);
        if let Some(index) = self.find(hash, id) {
            self.remove(index);
        }
        let cost = cost(id, &session);
        if self.max_sessions == 0 || cost > self.max_bytes {
            self.statistics.refused += 1;
            return false;
        }
        self.examine_some(now);
        while self.statistics.sessions >= self.max_sessions || self.statistics.bytes + cost > self.max_bytes {
            self.evict(now);
        }
        self.insert(Entry { hash, id: id.into(), session, expires, used: false });
        true
    }

    pub(crate) fn get(&mut self, hash: u64, id: &[u8], now: Instant) -> Option<Vec<u8>> {
        let index = self.find_live(hash, id, now)?;
        let entry = self.slots[index].as_mut()?;
        entry.used = true;
        Some(entry.session.to_vec())
    }

    pub(crate) fn take(&mut self, hash: u64, id: &[u8], now: Instant) -> Option<Vec<u8>> {
        let index = self.find_live(hash, id, now)?;
        self.remove(index).map(|mut entry| std::mem::take(&mut *entry.session))
    }

    pub(crate) fn remove_expired(&mut self, now: Instant) {
        for index in 0..self.slots.len() {
            self.expire(index, now);
        }
    }

    fn find(&self, hash: u64, id: &[u8]) -> Option<usize> {
        let is_it = |&index: &usize| self.slots[index].as_ref().is_some_and(|entry| *entry.id == *id);
        self.indices.find(hash, is_it).copied()
    }

    /// The slot of a session whose lifetime is not over, counted as a hit; one that has expired is removed.
    fn find_live(&mut self, hash: u64, id: &[u8], now: Instant) -> Option<usize> {
        let index = self.find(hash, id).filter(|&index| !self.expire(index, now));
        match index {
            Some(_) => self.statistics.hits += 1,
            None => self.statistics.misses += 1,
        }
        index
    }

    fn insert(&mut self, entry: Entry) {
        self.statistics.stored += 1;
        self.statistics.sessions += 1;
        self.statistics.bytes += entry.cost();
        let hash = entry.hash;
        let index = self.free.pop().unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(Some(entry));
        } else {
            self.slots[index] = Some(entry);
        }
        let slots = &self.slots;
        self.indices.insert_unique(hash, index, |&index| slots[index].as_ref().map_or(0, |entry| entry.hash));
    }

    /// Empties the slot.
    fn remove(&mut self, index: usize) -> Option<Entry> {
        let entry = self.slots[index].take()?;
        if let Ok(found) = self.indices.find_entry(entry.hash, |&other| other == index) {
            found.remove();
        }
        self.free.push(index);
        self.statistics.sessions -= 1;
        self.statistics.bytes -= entry.cost();
        Some(entry)
    }

    /// Removes the session in this slot if its lifetime is over; whether it did.
    fn expire(&mut self, index: usize, now: Instant) -> bool {
        let expired = self.slots[index].as_ref().is_some_and(|entry| now >= entry.expires);
        if expired {
            self.remove(index);
            self.statistics.expired += 1;
        }
        expired
    }

    fn examine_some(&mut self, now: Instant) {
        for _ in 0..EXAMINED_PER_PUT.min(self.slots.len()) {
            let index = advance(&mut self.examined, self.slots.len());
            self.expire(index, now);
        }
    }

    /// Makes room: removes the first session that has expired or was not asked for since the hand last passed.
    ///
    /// There must be a session. Ends within two rounds, as the first clears every flag.
    fn evict(&mut self, now: Instant) {
        loop {
            let index = advance(&mut self.hand, self.slots.len());
            if self.expire(index, now) {
                return;
            }
            let Some(entry) = &mut self.slots[index] else { continue };
            if !std::mem::take(&mut entry.used) {
                self.remove(index);
                self.statistics.evicted += 1;
                return;
            }
        }
    }
}

/// Where `hand` points in a ring of `slots`; moves it on.
fn advance(hand: &mut usize, slots: usize) -> usize {
    let index = if *hand < slots { *hand } else { 0 };
    *hand = index + 1;
    index
}
