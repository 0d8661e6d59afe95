//! Invariants of [`H2`].

use super::state::{Goaway, H2, REMEMBERED, Stream};
use crate::invariants::{Slots, broken, has_head, has_piece};

impl H2<'_> {
    /// The rule that the state breaks, if any. The rules hold after each frame and at the end of each step of a turn, until the
    /// connection [is over](Self::is_over):
    ///
    /// - `numbers` is in ascending order and lists each open stream with its index; all other indices are in `free`.
    /// - No open stream has a number above `recv.last`, the last that the client opened, or above the last stream of a final
    ///   `GOAWAY`.
    /// - `send.heads` lists the streams whose response has an unsent head.
    /// - `send.ready` lists the streams with `is_queued`, in the queue of their urgency; each has a piece of a body.
    /// - No window of the client is negative (RFC 9113 section 6.9.1).
    /// - At most [`REMEMBERED`] ended streams are kept.
    ///
    /// `runnable` and the wakes may contain indices of closed streams, which are then skipped.
    pub(super) fn broken_rule(&self) -> Option<&'static str> {
        if self.is_over() {
            return None;
        }
        let slots = Slots { places: &self.places, free: &self.free, numbers: &self.numbers };
        let last = self.numbers.last().map_or(0, |(number, _)| *number);
        let is_announced = !matches!(self.goaway, Goaway::Last(announced) if last > announced);
        let queued = |stream: &Stream| stream.is_queued.then_some(stream.priority);
        let streams = || self.places.iter().flatten();
        broken([
            (slots.are_consistent(|stream| stream.number), "numbers and indices of streams differ"),
            (last <= self.recv.last && is_announced, "a stream is open that the client may not have opened"),
            (
                slots.lists(self.send.heads.iter().copied(), |stream| has_head(&stream.work)),
                "heads to send are not those of the streams",
            ),
            (slots.are_queued(&self.send.ready, queued), "streams with data are not in their queues"),
            (
                streams().filter(|stream| stream.is_queued).all(|stream| has_piece(&stream.work)),
                "a stream without data is queued",
            ),
            (self.recv.window >= 0, "the client has exceeded the window of the connection"),
            (
                streams().all(|stream| stream.recv_window >= 0),
                "the client has exceeded the window of a stream",
            ),
            (self.ended.len() <= REMEMBERED, "too many ended streams are remembered"),
            (self.send.written <= self.send.out.len(), "more output is written than exists"),
        ])
    }
}
