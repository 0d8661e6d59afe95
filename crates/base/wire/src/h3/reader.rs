//! Reader of frames whose bytes arrive in any pieces.
//!
//! Only payloads that must be whole and arrive in several pieces are copied. Payloads of `DATA` and of unknown types are never
//! held.

use std::borrow::Cow;
use std::mem;

use super::error::Code;
use super::frame::FrameHead;
use super::order::{Order, Payload};
use super::varint::Partial;

/// Reader of the frames on one stream, in the order that `O` permits.
#[derive(Debug)]
pub struct FrameReader<O> {
    /// Rules of the stream.
    pub order: O,
    number: Partial,
    state: State,
    /// Incomplete payload of a frame that is passed on whole.
    partial: Vec<u8>,
}

/// Meaning of the next bytes.
#[derive(Clone, Copy, Debug)]
enum State {
    Kind,
    Length { kind: u64 },
    Payload { head: FrameHead, payload: Payload, left: u64 },
}

/// Next item of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// Head of a frame, of a known or unknown type.
    Head(FrameHead),
    /// Part of the payload of `DATA`.
    Data(&'a [u8]),
    /// Payload of another frame of this type.
    Frame(u64, Cow<'a, [u8]>),
    /// End of a frame whose field section exceeds the limit of its length; its payload was passed over.
    TooLong,
}

impl<O: Order> FrameReader<O> {
    /// Creates a reader of a stream with this order.
    pub fn new(order: O) -> Self {
        Self { order, number: Partial::default(), state: State::Kind, partial: Vec::new() }
    }

    /// Removes the next item from `input`; `None` if `input` is used up. An error ends the connection.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Item<'a>>, Code> {
        loop {
            match self.state {
                State::Kind => {
                    let Some(kind) = self.number.read(input) else { return Ok(None) };
                    self.state = State::Length { kind };
                }
                State::Length { kind } => {
                    let Some(length) = self.number.read(input) else { return Ok(None) };
                    let head = FrameHead { kind, length };
                    let payload = self.order.begin(head)?;
                    self.state = State::Payload { head, payload, left: length };
                    return Ok(Some(Item::Head(head)));
                }
                State::Payload { head, payload, left } => {
                    let length = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
                    let is_last = length as u64 == left;
                    // A frame without a payload is passed on even if no further bytes have arrived.
                    if !is_last && length == 0 {
                        return Ok(None);
                    }
                    let (part, rest) = input.split_at(length);
                    *input = rest;
                    self.state = if is_last {
                        State::Kind
                    } else {
                        State::Payload { head, payload, left: left - length as u64 }
                    };
                    if let Some(item) = self.item(head.kind, payload, part, is_last) {
                        return Ok(Some(item));
                    }
                }
            }
        }
    }

    /// Item of the next part of a payload, if it makes one.
    fn item<'a>(&mut self, kind: u64, payload: Payload, part: &'a [u8], is_last: bool) -> Option<Item<'a>> {
        match payload {
            Payload::Parts => (!part.is_empty()).then_some(Item::Data(part)),
            Payload::Whole if is_last && self.partial.is_empty() => {
                Some(Item::Frame(kind, Cow::Borrowed(part)))
            }
            Payload::Whole => {
                self.partial.extend_from_slice(part);
                is_last.then(|| Item::Frame(kind, Cow::Owned(mem::take(&mut self.partial))))
            }
            Payload::TooLong => is_last.then_some(Item::TooLong),
            Payload::Unknown => None,
        }
    }

    /// Checks that the stream may end here. RFC 9114 section 7.1: not within a frame.
    pub fn end(&self) -> Result<(), Code> {
        match self.state {
            State::Kind if self.number.is_empty() => Ok(()),
            _ => Err(Code::FRAME_ERROR),
        }
    }

    /// Number of bytes held of an incomplete payload.
    pub fn held(&self) -> usize {
        // The capacity, because it is the memory that an incomplete frame holds.
        self.partial.capacity()
    }
}
