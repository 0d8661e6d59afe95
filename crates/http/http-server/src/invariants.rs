//! Parts of the invariants of multiplexed connections. `h2::invariants` and `h3::invariants` state those of one version.

use std::collections::BTreeSet;

use brisk_wire::priority::Priority;

use crate::ready::ReadyStreams;
use crate::response::Work;

/// The table of the open streams of a connection.
pub(crate) struct Slots<'a, N, S> {
    /// Streams by index.
    pub(crate) places: &'a [Option<Box<S>>],
    /// Indices of `places` without a stream.
    pub(crate) free: &'a [u32],
    /// Numbers and indices of the streams.
    pub(crate) numbers: &'a [(N, u32)],
}

impl<N: Ord + Copy, S> Slots<'_, N, S> {
    /// Whether the numbers ascend and list every stream once with its index, and every other index is free once.
    pub(crate) fn are_consistent(&self, number: impl Fn(&S) -> N) -> bool {
        let is_open = |&(own, place): &(N, u32)| self.get(place).is_some_and(|stream| number(stream) == own);
        let is_free = |place: &u32| matches!(self.places.get(*place as usize), Some(None));
        let free: BTreeSet<_> = self.free.iter().collect();
        self.numbers.is_sorted_by(|(one, _), (other, _)| one < other)
            && self.numbers.iter().all(is_open)
            && self.free.iter().all(is_free)
            && free.len() == self.free.len()
            && self.numbers.len() + free.len() == self.places.len()
    }

    /// Whether a list contains the streams with this property, each once, and no others.
    pub(crate) fn lists(&self, listed: impl Iterator<Item = u32>, has: impl Fn(&S) -> bool) -> bool {
        let mut listed: Vec<_> = listed.collect();
        listed.sort_unstable();
        let indices = (0..self.places.len() as u32).filter(|place| self.get(*place).is_some_and(&has));
        indices.eq(listed)
    }

    /// Whether the streams with a priority here are in the queue of this priority, each once, and no others are queued.
    pub(crate) fn are_queued(&self, ready: &ReadyStreams, queued: impl Fn(&S) -> Option<Priority>) -> bool {
        let is_in_queue = |place: u32| {
            let priority = self.get(place).and_then(&queued);
            priority.is_some_and(|priority| ready.contains(place, priority))
        };
        self.lists(ready.iter(), |stream| queued(stream).is_some()) && ready.iter().all(is_in_queue)
    }

    fn get(&self, place: u32) -> Option<&S> {
        self.places.get(place as usize)?.as_deref()
    }
}

/// Whether the head of the response is not sent yet.
pub(crate) fn has_head(work: &Work) -> bool {
    matches!(work, Work::Answer(answer) if answer.head.is_some())
}

/// Whether a piece of the response's body waits to be sent.
pub(crate) fn has_piece(work: &Work) -> bool {
    matches!(work, Work::Answer(answer) if answer.chunk.is_some())
}

/// The first rule that does not hold.
pub(crate) fn broken<const N: usize>(rules: [(bool, &'static str); N]) -> Option<&'static str> {
    rules.into_iter().find(|(holds, _)| !holds).map(|(_, rule)| rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consistent(places: &[Option<Box<u32>>], free: &[u32], numbers: &[(u32, u32)]) -> bool {
        Slots { places, free, numbers }.are_consistent(|stream| *stream)
    }

    #[test]
    fn a_table_lists_each_index_once() {
        let places = [Some(Box::new(5)), None, Some(Box::new(3)), None];
        assert!(consistent(&places, &[3, 1], &[(3, 2), (5, 0)]));
        for (free, numbers) in [
            (&[3, 1][..], &[(5, 0), (3, 2)][..]),
            (&[3, 1], &[(3, 2)]),
            (&[3, 1], &[(3, 0), (5, 2)]),
            (&[3, 3], &[(3, 2), (5, 0)]),
            (&[3], &[(3, 2), (5, 0)]),
            (&[3, 1, 0], &[(3, 2), (5, 0)]),
            (&[3, 1, 9], &[(3, 2), (5, 0)]),
        ] {
            assert!(!consistent(&places, free, numbers), "{free:?} {numbers:?}");
        }
    }

    #[test]
    fn a_list_has_the_streams_with_the_property_in_any_order() {
        let places = [Some(Box::new(5)), None, Some(Box::new(3)), Some(Box::new(8))];
        let slots = Slots { places: &places, free: &[1], numbers: &[(3, 2), (5, 0), (8, 3)] };
        let odd = |listed: &[u32]| slots.lists(listed.iter().copied(), |stream| stream % 2 == 1);
        assert!(odd(&[2, 0]));
        for listed in [&[][..], &[0], &[0, 2, 2], &[0, 2, 3], &[0, 1, 2]] {
            assert!(!odd(listed), "{listed:?}");
        }
    }

    #[test]
    fn a_queued_stream_is_in_the_queue_of_its_priority() {
        let urgent = Priority { urgency: 1, incremental: false };
        let other = Priority { urgency: 6, incremental: false };
        let places = [Some(Box::new(5))];
        let slots = Slots { places: &places, free: &[], numbers: &[(5, 0)] };
        let mut ready = ReadyStreams::default();
        assert!(slots.are_queued(&ready, |_| None));
        ready.push(0, urgent);
        assert!(slots.are_queued(&ready, |_| Some(urgent)));
        assert!(!slots.are_queued(&ready, |_| Some(other)));
        assert!(!slots.are_queued(&ready, |_| None));
    }
}
