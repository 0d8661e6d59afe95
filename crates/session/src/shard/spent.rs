//! Sessions recently taken from a shard of the memory store, so that a second look-up returns [`Miss::Used`].

/// A fixed-size set of hashes of IDs with expiry. It may forget a hash early for lack of room, which affects only the
/// reason for a miss.
///
/// Direct-mapped: each hash has one position and replaces its previous content, so a look-up is one comparison.
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
    /// Holds at most `most` hashes, rounded up to a power of two. Allocates on the first insertion.
    pub(crate) fn new(most: usize) -> Self {
        Self { places: Vec::new(), most: most.next_power_of_two() }
    }

    /// Remembers `hash` until the time `until`.
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
