//! Room of a sender in the receive window of the other side.

use crate::half::Half;
use crate::time::Nanos;

/// Bytes that a sender may send, since its latest data.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    now: Option<u32>,
    least: Option<u32>,
    /// Widest window until now.
    widest: u32,
    /// First time at which there was room for a whole segment again.
    opened: Option<Nanos>,
}

impl Room {
    /// Bytes that `sender` may still send to `receiver`; `None` if the window is unknown.
    fn between(sender: &Half, receiver: &Half) -> Option<u32> {
        let edge = receiver.ack?.wrapping_add(receiver.window(sender)?);
        // Negative if the receiver has shrunk its window (RFC 9293 section 3.8.6).
        Some(edge.wrapping_sub(sender.next?).cast_signed().max(0).cast_unsigned())
    }

    /// The sender has sent data.
    pub(crate) fn sent(&mut self, sender: &Half, receiver: &Half) {
        let now = Self::between(sender, receiver);
        *self = Self { now, least: now, opened: None, ..*self };
    }

    /// The receiver has sent a packet. `segment` is the longest payload of a segment.
    pub(crate) fn acknowledged(&mut self, sender: &Half, receiver: &Half, segment: u32, time: Nanos) {
        let now = Self::between(sender, receiver);
        self.widest = self.widest.max(receiver.window(sender).unwrap_or_default());
        // Senders wait for a whole segment or half of the widest window (RFC 9293 section 3.8.6.2.1).
        let segment = segment.min(self.widest / 2);
        if self.now.is_some_and(|before| before < segment) && now.is_some_and(|now| now >= segment) {
            self.opened.get_or_insert(time);
        }
        self.now = now;
        self.least = self.least.into_iter().chain(now).min();
    }

    /// Whether the window was too small for a segment of `len` bytes at a time since the latest data. It need not have been zero.
    pub(crate) fn was_below(&self, len: u32) -> bool {
        self.least.is_some_and(|least| least < len)
    }

    /// Time at which there was room for a whole segment again.
    pub(crate) fn opened(&self) -> Option<Nanos> {
        self.opened
    }
}
