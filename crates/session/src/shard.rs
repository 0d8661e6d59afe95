//! One shard of the memory store: a table over a dense ring of sessions, swept by the hand of a clock.
//!
//! The CLOCK algorithm comes close to least-recently-used and writes one flag where LRU relinks a list. Here an entry
//! that leaves is replaced by the last one, so that the ring has no gaps for the hand to cross.

use std::time::Instant;

use hashbrown::HashTable;
use zeroize::Zeroizing;

use crate::MemoryStatistics;

/// What a session costs beside its ID and its own bytes: the entry, its place in the table and two allocations.
const OVERHEAD: usize = size_of::<Entry>() + 48;

/// Entries that each `put` examines for having expired: more than it adds, so that the hand comes round.
const EXAMINED_PER_PUT: usize = 2;

pub(crate) struct Shard {
    /// Places in `entries`, found by the hash of the ID.
    places: HashTable<usize>,
    entries: Vec<Entry>,
    /// Where the hand points; past the end means at the start.
    hand: usize,
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

    fn is_expired(&self, now: Instant) -> bool {
        now >= self.expires
    }
}

fn cost(id: &[u8], session: &Vec<u8>) -> usize {
    id.len() + session.capacity() + OVERHEAD
}

impl Shard {
    pub(crate) fn new(max_sessions: usize, max_bytes: usize) -> Self {
        Self {
            places: HashTable::new(),
            entries: Vec::new(),
            hand: 0,
            max_sessions,
            max_bytes,
            statistics: MemoryStatistics::default(),
        }
    }

    pub(crate) const fn statistics(&self) -> MemoryStatistics {
        MemoryStatistics { sessions: self.entries.len(), ..self.statistics }
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
        if let Some(place) = self.find(hash, id) {
            self.remove(place);
        }
        let cost = cost(id, &session);
        if self.max_sessions == 0 || cost > self.max_bytes {
            self.statistics.refused += 1;
            return false;
        }
        self.examine_some(now);
        while self.entries.len() >= self.max_sessions || self.statistics.bytes + cost > self.max_bytes {
            self.evict(now);
        }
        self.insert(Entry { hash, id: id.into(), session, expires, used: false });
        true
    }

    pub(crate) fn get(&mut self, hash: u64, id: &[u8], now: Instant) -> Option<Vec<u8>> {
        let place = self.find_live(hash, id, now)?;
        let entry = &mut self.entries[place];
        entry.used = true;
        Some(entry.session.to_vec())
    }

    pub(crate) fn take(&mut self, hash: u64, id: &[u8], now: Instant) -> Option<Vec<u8>> {
        let place = self.find_live(hash, id, now)?;
        let mut entry = self.remove(place);
        Some(std::mem::take(&mut *entry.session))
    }

    pub(crate) fn remove_expired(&mut self, now: Instant) {
        let mut place = 0;
        while place < self.entries.len() {
            // Another entry takes the place of one that leaves.
            if !self.expire(place, now) {
                place += 1;
            }
        }
    }

    fn find(&self, hash: u64, id: &[u8]) -> Option<usize> {
        self.places.find(hash, |&place| *self.entries[place].id == *id).copied()
    }

    /// The place of a session whose lifetime is not over, counted as a hit; one that has expired is removed.
    fn find_live(&mut self, hash: u64, id: &[u8], now: Instant) -> Option<usize> {
        let place = self.find(hash, id).filter(|&place| !self.expire(place, now));
        match place {
            Some(_) => self.statistics.hits += 1,
            None => self.statistics.misses += 1,
        }
        place
    }

    fn insert(&mut self, entry: Entry) {
        self.statistics.stored += 1;
        self.statistics.bytes += entry.cost();
        let (hash, place) = (entry.hash, self.entries.len());
        self.entries.push(entry);
        let entries = &self.entries;
        self.places.insert_unique(hash, place, |&place| entries[place].hash);
    }

    fn remove(&mut self, place: usize) -> Entry {
        let hash = self.entries[place].hash;
        if let Ok(found) = self.places.find_entry(hash, |&other| other == place) {
            found.remove();
        }
        let entry = self.entries.swap_remove(place);
        self.statistics.bytes -= entry.cost();
        // The last entry has moved here.
        if let Some(moved) = self.entries.get(place) {
            let from = self.entries.len();
            if let Some(its_place) = self.places.find_mut(moved.hash, |&other| other == from) {
                *its_place = place;
            }
        }
        entry
    }

    /// Removes the entry if its lifetime is over; whether it did.
    fn expire(&mut self, place: usize, now: Instant) -> bool {
        if !self.entries[place].is_expired(now) {
            return false;
        }
        self.remove(place);
        self.statistics.expired += 1;
        true
    }

    fn examine_some(&mut self, now: Instant) {
        for _ in 0..EXAMINED_PER_PUT.min(self.entries.len()) {
            let place = self.under_hand();
            if !self.expire(place, now) {
                self.hand = place + 1;
            }
        }
    }

    /// Makes room: removes the first entry that has expired or was not asked for since the hand last passed. Ends
    /// within two rounds, as the first round clears all flags. There must be an entry.
    fn evict(&mut self, now: Instant) {
        loop {
            let place = self.under_hand();
            if self.expire(place, now) {
                return;
            }
            if !std::mem::take(&mut self.entries[place].used) {
                self.remove(place);
                self.statistics.evicted += 1;
                return;
            }
            self.hand = place + 1;
        }
    }

    fn under_hand(&self) -> usize {
        if self.hand < self.entries.len() { self.hand } else { 0 }
    }
}
