//! Order in which the streams of a connection send their data (RFC 9218 section 10).

use std::collections::VecDeque;

use brisk_wire::priority::Priority;

/// Streams of a connection with data to send, by urgency. A stream is the index of its place in the connection's state.
#[derive(Debug, Default)]
pub(crate) struct ReadyStreams {
    /// One queue for each urgency, the most urgent first (RFC 9218 section 4.1).
    queues: [VecDeque<u32>; 8],
}

impl ReadyStreams {
    /// Adds the stream `place` behind the others of its urgency.
    pub(crate) fn push(&mut self, place: u32, priority: Priority) {
        self.queue(priority).push_back(place);
    }

    /// Removes the next stream: the first of the most urgent queue that is not empty.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.queues.iter_mut().find_map(VecDeque::pop_front)
    }

    /// Makes a stream that was added last the first of its urgency. For a response that is not incremental, and so is useful
    /// only as a whole (RFC 9218 section 10).
    pub(crate) fn keep_first(&mut self, place: u32, priority: Priority) {
        let queue = self.queue(priority);
        if queue.back() == Some(&place) {
            queue.pop_back();
            queue.push_front(place);
        }
    }

    /// Removes a stream that was added with this priority.
    pub(crate) fn remove(&mut self, place: u32, priority: Priority) {
        // A search, because ends and changes of queued streams are rare, whereas `push` and `pop` run for
        // each frame.
        self.queue(priority).retain(|other| *other != place);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    /// Whether a stream is in the queue of this priority.
    pub(crate) fn contains(&self, place: u32, priority: Priority) -> bool {
        self.queues[usize::from(priority.urgency)].contains(&place)
    }

    /// All streams.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.queues.iter().flatten().copied()
    }

    fn queue(&mut self, priority: Priority) -> &mut VecDeque<u32> {
        &mut self.queues[usize::from(priority.urgency)]
    }
}

/// Priority of a request without `Priority`: incremental, because its client may not know of priorities and would otherwise
/// get its responses strictly in sequence.
pub(crate) const UNSTATED: Priority = Priority { incremental: true, ..brisk_wire::priority::DEFAULT };

#[cfg(test)]
mod tests {
    use super::*;

    fn priority(urgency: u8) -> Priority {
        Priority { urgency, incremental: true }
    }

    #[test]
    fn urgent_streams_come_first_and_equal_ones_take_turns() {
        let mut ready = ReadyStreams::default();
        for (place, urgency) in [(1, 3), (2, 3), (3, 0), (4, 7)] {
            ready.push(place, priority(urgency));
        }
        assert_eq!(ready.pop(), Some(3));
        assert_eq!(ready.pop(), Some(1));
        ready.push(1, priority(3));
        assert_eq!(ready.pop(), Some(2));
        ready.push(2, priority(3));
        ready.keep_first(2, priority(3));
        assert_eq!(ready.iter().collect::<Vec<_>>(), [2, 1, 4]);
        ready.remove(1, priority(3));
        assert_eq!([ready.pop(), ready.pop(), ready.pop()], [Some(2), Some(4), None]);
    }

    #[test]
    fn only_the_stream_that_was_added_last_is_kept_first() {
        let mut ready = ReadyStreams::default();
        ready.push(1, priority(3));
        ready.push(2, priority(3));
        ready.keep_first(1, priority(3));
        assert_eq!(ready.pop(), Some(1));
        ready.keep_first(9, priority(3));
        assert_eq!(ready.pop(), Some(2));
    }
}
