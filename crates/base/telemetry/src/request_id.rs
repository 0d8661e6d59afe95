//! Request ids: short, unique across workers and restarts of a server, without revealing the number of requests.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// Names one request in the access log, in error pages and towards upstreams. Displays as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

impl RequestId {
    /// The 16 hexadecimal digits that [`fmt::Display`] shows, without a formatter's cost.
    pub fn digits(self) -> [u8; 16] {
        let mut digits = [0; 16];
        for (index, digit) in digits.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(self.0 >> (60 - 4 * index)) as usize & 0xf];
        }
        digits
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Generator of each [`RequestId`] of one worker: the splitmix64 sequence, which repeats a value only after 2^64 others.
/// Ids are hard to confuse with each other, but not hard to guess.
#[derive(Debug)]
pub struct RequestIds {
    state: Cell<u64>,
}

impl RequestIds {
    /// Starts the sequence at `seed`; workers need different ones.
    pub fn new(seed: u64) -> Self {
        Self { state: Cell::new(seed) }
    }

    /// Starts at a random place, from [`RandomState`].
    pub fn from_random_seed() -> Self {
        // `RandomState` has other keys at each call, which is random enough for ids that are not secret.
        Self::new(RandomState::new().hash_one(std::process::id()))
    }

    /// The next id. About 1 ns.
    pub fn next(&self) -> RequestId {
        // The odd constant leads through all 2^64 states, and each of the next steps is invertible: an id
        // repeats only after all others.
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        RequestId(mixed ^ (mixed >> 31))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_of_one_worker_differ() {
        let ids = RequestIds::new(1);
        let distinct: HashSet<_> = (0..10_000).map(|_| ids.next()).collect();
        assert_eq!(distinct.len(), 10_000);
    }

    #[test]
    fn workers_start_at_different_places() {
        assert_ne!(RequestIds::from_random_seed().next(), RequestIds::from_random_seed().next());
    }

    #[test]
    fn an_id_displays_as_sixteen_digits() {
        let id = RequestId(0x00ab_cdef_0123_4567);
        assert_eq!(id.to_string(), "00abcdef01234567");
        assert_eq!(id.digits(), *b"00abcdef01234567");
    }
}
