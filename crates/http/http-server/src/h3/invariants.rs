//! Invariants of [`H3`].

use super::state::{H3, Output, Queueing, Stream};
use crate::invariants::{Slots, broken, has_head};

impl H3 {
    /// The rule that the state breaks, if any. The rules hold after each frame and at the end of each turn, until the connection
    /// [is over](Self::is_over):
    ///
    /// - `numbers` is in ascending order and lists each open stream with its index; all other indices are in `free`.
    /// - No open stream has an ID from `next` on.
    /// - `heads` lists the streams whose response has an unsent head.
    /// - `ready` lists the streams with [`Queueing::Queued`], in the queue of their urgency.
    /// - `unread` is the sum of the streams' `unread`, and `partial` the sum of their `partial`.
    /// - A stream with [`Output::Finished`] has no output.
    ///
    /// `readable`, `runnable` and the wakes may contain indices of closed streams, which are then skipped.
    pub(super) fn broken_rule(&self) -> Option<&'static str> {
        if self.is_over() {
            return None;
        }
        let slots = Slots { places: &self.places, free: &self.free, numbers: &self.numbers };
        let queued = |stream: &Stream| (stream.queueing == Queueing::Queued).then_some(stream.rank.priority);
        let streams = || self.places.iter().flatten();
        let partial: usize = streams().map(|stream| stream.partial).sum();
        broken([
            (slots.are_consistent(|stream| stream.id), "IDs and indices of streams differ"),
            (
                self.numbers.last().is_none_or(|(id, _)| *id < self.next),
                "a stream is open that is not accepted",
            ),
            (
                slots.lists(self.heads.iter().copied(), |stream| has_head(&stream.work)),
                "heads to send are not those of the streams",
            ),
            (slots.are_queued(&self.ready, queued), "streams with output are not in their queues"),
            (streams().map(|stream| stream.unread).sum::<usize>() == self.unread, "unread bytes differ"),
            (
                self.partial.as_ref().is_none_or(|held| held.bytes() == partial),
                "bytes of incomplete field sections differ",
            ),
            (
                streams().all(|stream| stream.output != Output::Finished || stream.out.is_empty()),
                "a finished response has output",
            ),
        ])
    }
}
