//! Sessions recently taken from a shard of the memory store, so that a second look-up returns [`Miss::Used`].

/// A fixed-size set of hashes of IDs with expiry. It may forget a hash early for lack of room, which affects only the
/// reason for a miss.
///
/// Direct-mapped: each hash has one position and replaces its previous content, so a look-up is one comparison.
#[derive(Default)]
pub(crate) struct UsedSessions {
    entries: Vec<RememberedHash>,
    most: usize,
}

#[derive(Clone, Copy, Default)]
struct RememberedHash {
    hash: u64,
    until: u64,
}

impl UsedSessions {
    /// Holds at most `most` hashes, rounded up to a power of two. Allocates on the first insertion.
    pub(crate) fn new(most: usize) -> Self {
        Self { entries: Vec::new(), most: most.next_power_of_two() }
    }

    /// Remembers `hash` until the time `until`.
    pub(crate) fn insert(&mut self, hash: u64, until: u64) {
        if self.entries.is_empty() {
            self.entries = vec![RememberedHash::default(); self.most];
        }
        let position = self.position(hash);
        self.entries[position] = RememberedHash { hash, until };
    }

    /// Whether `hash` is remembered at the time `now`.
    pub(crate) fn contains(&self, hash: u64, now: u64) -> bool {
        !self.entries.is_empty() && {
            let entry = self.entries[self.position(hash)];
            entry.hash == hash && now < entry.until
        }
    }

    const fn position(&self, hash: u64) -> usize {
        hash as usize & (self.most - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_remembered_to_its_time_or_until_another_takes_its_place() {
        let mut used_sessions = UsedSessions::new(5);
        assert!(!used_sessions.contains(3, 0));
        used_sessions.insert(3, 100);
        assert!(
            used_sessions.contains(3, 99)
                && !used_sessions.contains(3, 100)
                && !used_sessions.contains(11, 0)
        );
        used_sessions.insert(4, 100);
        assert!(used_sessions.contains(3, 0) && used_sessions.contains(4, 0));
        used_sessions.insert(11, 100);
        assert!(!used_sessions.contains(3, 0) && used_sessions.contains(11, 0), "eight places");
    }
}
