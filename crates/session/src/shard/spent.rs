//! Sessions recently taken from a shard of the memory store, so that a second look-up reports them as used.

/// Remembers hashes of IDs. What it forgets early, for want of room, is not known any more: nothing depends on it but
/// the reason that is given for a miss.
///
/// A hash has one place, where it takes the room of the one before: one comparison to ask, and one write to remember.
#[derive(Default)]
pub(crate) struct Spent {
    places: Vec<Place>,
    most: usize,
}

#[derive(Clone, Copy, Default)]
struct Place {
    hash: u64,
    until: u64,
}

impl Spent {
    /// Remembers `most` hashes at most, rounded up to a power of two; nothing is allocated before the first.
    pub(crate) fn new(most: usize) -> Self {
        Self { places: Vec::new(), most: most.next_power_of_two() }
    }

    /// Remembers `hash` to the time `until`.
    pub(crate) fn insert(&mut self, hash: u64, until: u64) {
        if self.places.is_empty() {
            self.places = vec![Place::default(); self.most];
        }
        let place = self.place(hash);
        self.places[place] = Place { hash, until };
    }

    /// Whether `hash` is remembered at the time `now`.
    pub(crate) fn contains(&self, hash: u64, now: u64) -> bool {
        !self.places.is_empty() && {
            let place = self.places[self.place(hash)];
            place.hash == hash && now < place.until
        }
    }

    const fn place(&self, hash: u64) -> usize {
        hash as usize & (self.most - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_remembered_to_its_time_or_until_another_takes_its_place() {
        let mut spent = Spent::new(5);
        assert!(!spent.contains(3, 0));
        spent.insert(3, 100);
        assert!(spent.contains(3, 99) && !spent.contains(3, 100) && !spent.contains(11, 0));
        spent.insert(4, 100);
        assert!(spent.contains(3, 0) && spent.contains(4, 0));
        spent.insert(11, 100);
        assert!(!spent.contains(3, 0) && spent.contains(11, 0), "eight places");
    }
}
