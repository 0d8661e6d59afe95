//! Parsing of frames, and their effects.

use brisk_http::error::Http2Error;
use brisk_net::TurnLimit;
use brisk_wire::h2::frame::{FrameHead, HEAD, LARGEST_WINDOW, Reason, WriteFrames, flag, kind, word};
use brisk_wire::h2::reader::{DataFrame, DataPart, Fault, exactly};
use bytes::{Buf as _, BytesMut};

use super::state::{Expect, State};
use super::stream::End;

/// Minimum size in bytes of pieces that share the read buffer, of which they hold at most 64 KiB. Smaller ones are
/// copied.
const SHARED: usize = 8 << 10;

/// Cost of `SETTINGS` in the [`Allowance`](super::allowance::Allowance), because they may affect every stream.
const SETTINGS_COST: u32 = 20;

impl State {
    /// Processes the complete frames in `input`, and `DATA` as far as it has arrived, within `turn`. Stops at the first
    /// [`State::failure`].
    pub(super) fn feed(&mut self, input: &mut BytesMut, turn: &mut TurnLimit) {
        while self.failure.is_none() && !input.is_empty() && !turn.is_reached() {
            let before = input.len();
            let goes_on = match self.recv.expect {
                Expect::Frame => self.frame(input),
                Expect::Data(data) => {
                    self.data(data, input);
                    true
                }
            };
            if !goes_on {
                break;
            }
            turn.take(before - input.len());
            if self.allowance.is_used_up() {
                self.fail(Http2Error::Flood, Some(Reason::ENHANCE_YOUR_CALM));
            }
        }
    }

    /// Processes a frame, or the head of a `DATA` frame. Returns `false` if it is incomplete.
    fn frame(&mut self, input: &mut BytesMut) -> bool {
        let Some(head) = input.first_chunk() else { return false };
        let head = FrameHead::read(head);
        if let Err(reason) = self.recv.order.check(head) {
            self.fault(head.stream, Fault::Connection(reason));
            return false;
        }
        if head.kind == kind::DATA {
            input.advance(HEAD);
            if let Err(fault) = self.begin_data(head) {
                self.fault(head.stream, fault);
            }
            return true;
        }
        let end = HEAD + head.length as usize;
        if input.len() < end {
            return false;
        }
        self.whole(head, &input[HEAD..end]);
        input.advance(end);
        true
    }

    fn whole(&mut self, head: FrameHead, payload: &[u8]) {
        let FrameHead { length, kind, flags, stream } = head;
        tracing::trace!(kind, flags, stream, length, "a frame of an upstream");
        let done = match kind {
            kind::HEADERS => self.headers(head, payload),
            kind::CONTINUATION => self.continuation(head, payload),
            kind::SETTINGS => self.settings(head, payload),
            kind::PING => self.ping(head, payload),
            kind::WINDOW_UPDATE => self.window_update(head, payload),
            kind::RST_STREAM => self.rst_stream(head, payload),
            kind::GOAWAY => self.goaway(head, payload),
            // RFC 9113 section 6.6: push is disabled in the settings.
            kind::PUSH_PROMISE => Err(Fault::Connection(Reason::PROTOCOL_ERROR)),
            // RFC 9113 section 5.5: unknown frames are ignored.
            _ => {
                self.allowance.spend(1);
                Ok(())
            }
        };
        if let Err(fault) = done {
            self.fault(stream, fault);
        }
    }

    /// Handles an error in a frame of stream `of`: [`Fault::Connection`] ends the connection, [`Fault::Stream`] resets the
    /// stream.
    fn fault(&mut self, of: u32, fault: Fault) {
        match fault {
            Fault::Connection(reason) => self.fail_by(of, Http2Error::Broken(reason), Some(reason)),
            Fault::Stream(number, reason) => {
                self.allowance.spend(1);
                self.reset(number, reason, Http2Error::Broken(reason));
            }
        }
    }

    fn headers(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        // Before the block is decoded, because this fault ends the connection.
        self.known(head.stream)?;
        let block = self.recv.order.headers(head, payload)?;
        block.map_or(Ok(()), |block| self.block(&block))
    }

    /// Checks that the stream was opened by this side; otherwise `PROTOCOL_ERROR`. Servers may open none (RFC 9113 section
    /// 5.1).
    pub(super) fn known(&self, number: u32) -> Result<(), Fault> {
        let is_known = number % 2 == 1 && number < self.next;
        if is_known { Ok(()) } else { Err(Fault::Connection(Reason::PROTOCOL_ERROR)) }
    }

    fn continuation(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        match self.recv.order.continuation(head, payload, self.recv.limits.size) {
            Ok(block) => block.map_or(Ok(()), |block| self.block(&block)),
            Err(Reason::ENHANCE_YOUR_CALM) => {
                self.fail_by(head.stream, Http2Error::HeadTooLarge, Some(Reason::ENHANCE_YOUR_CALM));
                Ok(())
            }
            Err(reason) => Err(reason.into()),
        }
    }

    fn settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        head.require_connection()?;
        self.allowance.spend(SETTINGS_COST);
        if head.has(flag::ACK) {
            exactly::<0>(payload)?;
            return Ok(());
        }
        // RFC 9113 section 6.5.2: a server must not enable push.
        if payload.as_chunks::<6>().0.contains(&[0, 2, 0, 0, 0, 1]) {
            return Err(Fault::Connection(Reason::PROTOCOL_ERROR));
        }
        if !self.recv.order.has_settings() {
            // RFC 9113 section 6.5.2: the initial number of streams is unlimited.
            self.send.peer.max_streams = u32::MAX;
        }
        self.recv.order.settings_received();
        let change =
            self.send.peer.apply_and_acknowledge(payload, &mut self.send.encoder, &mut self.send.out)?;
        self.wake_waiting();
        if change == 0 { Ok(()) } else { self.change_windows(change) }
    }

    fn ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        head.require_connection()?;
        exactly::<8>(payload)?;
        self.allowance.spend(1);
        if !head.has(flag::ACK) {
            self.send.out.frame(kind::PING, flag::ACK, 0, payload);
        }
        Ok(())
    }

    fn rst_stream(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        self.known(head.stream)?;
        let reason = Reason(word(exactly::<4>(payload)?));
        let Some(place) = self.find(head.stream) else {
            self.allowance.spend(1);
            return Ok(());
        };
        let stream = self.stream(place);
        // RFC 9113 section 8.7: a refused request was not processed, and may be repeated.
        let is_refused = reason == Reason::REFUSED_STREAM && !stream.has_head;
        if !is_refused {
            stream.looked_at();
        }
        // After the complete response it ends the upload only (RFC 9113 section 8.1).
        let error = if is_refused { Http2Error::Refused } else { Http2Error::Reset(reason) };
        self.end_stream(place, End::Failed(error));
        Ok(())
    }

    fn goaway(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        head.require_connection()?;
        let Some((_, code)) = payload.split_first_chunk::<4>().filter(|(_, code)| code.len() >= 4) else {
            return Err(Fault::Connection(Reason::FRAME_SIZE_ERROR));
        };
        self.allowance.spend(1);
        self.announced(word(payload) & LARGEST_WINDOW, Reason(word(code)));
        Ok(())
    }

    fn begin_data(&mut self, head: FrameHead) -> Result<(), Fault> {
        let number = head.stream;
        self.known(number)?;
        let mut data = DataFrame::new(head)?;
        if data.is_complete() && !data.is_last {
            self.allowance.spend(1);
        }
        self.recv.window -= i64::from(head.length);
        if self.recv.window < 0 {
            return Err(Fault::Connection(Reason::FLOW_CONTROL_ERROR));
        }
        // The window has shrunk, so the bytes that were read before may now be enough for an update.
        self.claim(0);
        let wanted = self.takes_data(number, head.length);
        data.is_wanted = wanted == Ok(true);
        self.recv.expect = Expect::Data(data);
        if head.length == 0 {
            self.end_data(data);
        }
        wanted.map(|_| ())
    }

    /// Whether a response accepts a `DATA` frame of this length.
    fn takes_data(&mut self, number: u32, length: u32) -> Result<bool, Fault> {
        // Frames for a stream that was reset here may still arrive.
        let Some(place) = self.find(number) else {
            self.recv.stray -= i64::from(length);
            if self.recv.stray < 0 {
                self.allowance.spend(1);
            }
            return Ok(false);
        };
        let stream = self.stream(place);
        if stream.end != End::Open && !stream.is_abandoned {
            return Err(Fault::Stream(number, Reason::STREAM_CLOSED));
        }
        // RFC 9113 section 8.1: a response begins with `HEADERS`.
        if !stream.has_head {
            return Err(Fault::Stream(number, Reason::PROTOCOL_ERROR));
        }
        stream.recv_window -= i64::from(length);
        if stream.recv_window < 0 {
            return Err(Fault::Stream(number, Reason::FLOW_CONTROL_ERROR));
        }
        Ok(true)
    }

    /// Processes the available part of a `DATA` frame, at least one byte.
    fn data(&mut self, mut data: DataFrame, input: &mut BytesMut) {
        match data.next_part(input) {
            Ok(DataPart::PaddingLength(padding)) => {
                input.advance(1);
                self.claim_padding(data.stream, padding + 1);
                if data.left == 0 && !data.is_last {
                    self.allowance.spend(1);
                }
            }
            Ok(DataPart::Data(length)) => self.piece(data, length, input),
            Ok(DataPart::Padding(length)) => input.advance(length),
            Err(reason) => return self.fault(data.stream, reason.into()),
        }
        self.recv.expect = Expect::Data(data);
        if data.is_complete() {
            self.end_data(data);
        }
    }

    /// Takes `length` bytes of data from `input`. Beyond the client's share of memory, the stream fails with
    /// [`Http2Error::ClientMemory`].
    fn piece(&mut self, data: DataFrame, length: usize, input: &mut BytesMut) {
        let place = if data.is_wanted { self.find(data.stream) } else { None };
        let Some(place) = place.filter(|place| !self.streams[*place as usize].is_abandoned) else {
            // Data without a reader returns to the window at once, or it would block all other responses.
            input.advance(length);
            return self.claim(length as u32);
        };
        let stream = self.stream(place);
        let left = stream.left.map(|left| left.checked_sub(length as u64));
        if left == Some(None) {
            // RFC 9113 section 8.1.1: more data than `content-length` is malformed.
            input.advance(length);
            self.claim(length as u32);
            return self.fault(data.stream, Fault::Stream(data.stream, Reason::PROTOCOL_ERROR));
        }
        stream.left = left.flatten();
        self.allowance.earn(1);
        // A request holds the stream: released streams have no data left to receive, or are abandoned.
        let stream = &mut self.streams[place as usize];
        if !stream.hold(length) {
            input.advance(length);
            self.claim(length as u32);
            return self.cancel(place, Http2Error::ClientMemory);
        }
        if length >= SHARED {
            stream.push(input.split_to(length).freeze());
        } else {
            stream.push_small(&input[..length]);
            input.advance(length);
        }
    }

    fn end_data(&mut self, data: DataFrame) {
        self.recv.expect = Expect::Frame;
        if data.is_last
            && data.is_wanted
            && let Some(place) = self.find(data.stream)
        {
            self.end_response(place);
        }
    }

    /// Ends a response: `END_STREAM` has arrived.
    pub(super) fn end_response(&mut self, place: u32) {
        let stream = self.stream(place);
        if stream.is_abandoned {
            // No reset is necessary, unless the server waits for the rest of the request.
            if !stream.is_unsent {
                self.close(place);
            }
            return;
        }
        // RFC 9113 section 8.1.1: less data than `content-length` is malformed.
        if stream.left.is_some_and(|left| left > 0) {
            let number = stream.number;
            return self.fault(number, Fault::Stream(number, Reason::PROTOCOL_ERROR));
        }
        stream.end = End::Whole;
        stream.wake();
        self.close_if_over(place);
    }
}
