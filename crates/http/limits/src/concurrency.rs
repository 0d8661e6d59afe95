//! Number of requests in progress by key.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of [`Mutex`]es, so that workers rarely contend.
const SHARDS: usize = 32;

/// The counts of all keys. Memory is bounded by the number of [`ConcurrencyPermit`]s, because a key without any is removed.
#[derive(Debug)]
pub(crate) struct ConcurrencyTable {
    most: u32,
    // Keys are hashes of 64 bits with a random key, so a client cannot find two keys with one count.
    shards: [Mutex<HashMap<u64, u32>>; SHARDS],
}

/// One request in progress of a key, until it is dropped.
#[derive(Debug)]
pub struct ConcurrencyPermit {
    table: Arc<ConcurrencyTable>,
    hash: u64,
}

impl ConcurrencyTable {
    /// Permits each key at most `most` requests at a time.
    pub(crate) fn new(most: u32) -> Self {
        Self { most, shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Counts one more request of the key with this hash; `None` if `most` requests of the key are in progress.
    pub(crate) fn begin(self: &Arc<Self>, hash: u64) -> Option<ConcurrencyPermit> {
        let mut counts = self.shard(hash).lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(hash).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(ConcurrencyPermit { table: Arc::clone(self), hash })
    }

    fn shard(&self, hash: u64) -> &Mutex<HashMap<u64, u32>> {
        &self.shards[(hash % SHARDS as u64) as usize]
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        let mut counts = self.table.shard(self.hash).lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = counts.entry(self.hash) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_number_of_requests_at_a_time_and_no_entry_afterwards() {
        let table = Arc::new(ConcurrencyTable::new(2));
        let (first, second) = (table.begin(1), table.begin(1));
        assert!(first.is_some() && second.is_some() && table.begin(1).is_none());
        assert!(table.begin(33).is_some(), "another key of the same shard");
        drop(first);
        let third = table.begin(1);
        assert!(third.is_some() && table.begin(1).is_none());
        drop((second, third));
        assert!(table.shards.iter().all(|shard| shard.lock().expect("no panic").is_empty()));
    }
}
