//! Parsing of frames, and their effects on the connection.

use brisk_net::TurnLimit;
use brisk_wire::h2::frame::{
    FrameHead, HEAD, LARGEST_WINDOW, PREFACE, Reason, WriteFrames, flag, kind, word,
};
use brisk_wire::h2::reader::{DataFrame, DataPart, Fault, exactly};
use brisk_wire::h2::settings::DEFAULT_WINDOW;
use brisk_wire::priority::Priority;

use super::prices::ONLY_PADDING;
use super::state::{Ended, Expect, H2, LAST_PING, WINDOW};

impl H2<'_> {
    /// Processes received `bytes` within `turn`, and returns the number of processed ones. Drops the rest after a connection
    /// error or a flood, so the number is then that of all `bytes`.
    pub(super) fn feed_within(&mut self, bytes: &[u8], turn: &mut TurnLimit) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_over() && !turn.is_reached() {
            let before = rest.len();
            rest = match self.recv.expect {
                Expect::Preface(have) => self.preface(have, rest),
                Expect::Frame => self.frame_bytes(rest),
                Expect::Data(data) => self.data_bytes(data, rest),
            };
            turn.take(before - rest.len());
            debug_assert_eq!(self.broken_rule(), None);
        }
        if self.is_over() { bytes.len() } else { bytes.len() - rest.len() }
    }

    fn preface<'b>(&mut self, have: usize, bytes: &'b [u8]) -> &'b [u8] {
        // RFC 9113 section 3.4
        let expected = &PREFACE[have..];
        let taken = expected.len().min(bytes.len());
        if bytes[..taken] != expected[..taken] {
            self.fail(Reason::PROTOCOL_ERROR);
            return &[];
        }
        let have = have + taken;
        self.recv.expect = if have == PREFACE.len() { Expect::Frame } else { Expect::Preface(have) };
        &bytes[taken..]
    }

    /// Processes a frame or the head of a `DATA` frame. Keeps an incomplete frame in
    /// [`Receiving::partial`](super::state::Receiving).
    fn frame_bytes<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        if !self.recv.partial.is_empty() {
            return self.complete(bytes);
        }
        let Some((head, rest)) = bytes.split_first_chunk() else {
            self.recv.partial.extend_from_slice(bytes);
            return &[];
        };
        let head = FrameHead::read(head);
        if !self.begin_frame(head) {
            return rest;
        }
        if let Some((payload, rest)) = rest.split_at_checked(head.length as usize) {
            self.whole(head, payload);
            return rest;
        }
        self.recv.partial.extend_from_slice(bytes);
        &[]
    }

    /// Continues the incomplete frame in `partial`.
    fn complete<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let partial = &mut self.recv.partial;
        let mut rest = bytes;
        if let Some(missing @ 1..) = HEAD.checked_sub(partial.len()) {
            let (taken, after) = rest.split_at(missing.min(rest.len()));
            partial.extend_from_slice(taken);
            rest = after;
            let Some(head) = partial.first_chunk() else { return rest };
            let head = FrameHead::read(head);
            if !self.begin_frame(head) {
                self.recv.partial = Vec::new();
                return rest;
            }
        }
        let partial = &mut self.recv.partial;
        let Some(head) = partial.first_chunk() else { return rest };
        let head = FrameHead::read(head);
        let missing = HEAD + head.length as usize - partial.len();
        let (taken, after) = rest.split_at(missing.min(rest.len()));
        partial.extend_from_slice(taken);
        if taken.len() == missing {
            let frame = std::mem::take(&mut self.recv.partial);
            self.whole(head, &frame[HEAD..]);
        }
        after
    }

    /// Checks the head of a frame. Returns `false` if its payload is not to be kept: the payload of `DATA` is processed as it
    /// arrives.
    fn begin_frame(&mut self, head: FrameHead) -> bool {
        if let Err(reason) = self.recv.order.check(head) {
            self.fail(reason);
            return false;
        }
        if head.kind != kind::DATA {
            return true;
        }
        self.count(head, 0);
        if let Err(fault) = self.begin_data(head) {
            self.fault(fault);
        }
        false
    }

    fn count(&mut self, head: FrameHead, code: u32) {
        let FrameHead { length, kind, flags, stream } = head;
        tracing::debug!(kind, flags, stream, length, code, "a frame of HTTP/2");
        self.owed.received(head, &self.flood);
    }

    fn whole(&mut self, head: FrameHead, payload: &[u8]) {
        self.count(head, if head.kind == kind::RST_STREAM { word(payload) } else { 0 });
        if self.is_over() {
            return;
        }
        let done = match head.kind {
            kind::HEADERS => self.headers(head, payload),
            kind::CONTINUATION => self.continuation(head, payload),
            kind::SETTINGS => self.settings(head, payload),
            kind::PING => self.ping(head, payload),
            kind::WINDOW_UPDATE => self.window_update(head, payload),
            kind::RST_STREAM => self.rst_stream(head, payload),
            kind::PRIORITY => self.priority(head, payload),
            kind::PRIORITY_UPDATE => self.priority_update(head, payload),
            // RFC 9113 section 6.8
            kind::GOAWAY if head.stream != 0 => Err(Fault::Connection(Reason::PROTOCOL_ERROR)),
            kind::GOAWAY if payload.len() < 8 => Err(Fault::Connection(Reason::FRAME_SIZE_ERROR)),
            // RFC 9113 section 8.4: clients do not push.
            kind::PUSH_PROMISE => Err(Fault::Connection(Reason::PROTOCOL_ERROR)),
            // RFC 9113 section 5.5: frames of unknown types are ignored.
            _ => Ok(()),
        };
        if let Err(fault) = done {
            self.fault(fault);
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Connection(reason) => self.fail(reason),
            Fault::Stream(number, reason) => self.reset(number, reason),
        }
    }

    fn headers(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        // RFC 9113 section 5.1.1: streams of clients have odd numbers.
        if head.stream.is_multiple_of(2) {
            return Err(Fault::Connection(Reason::PROTOCOL_ERROR));
        }
        let block = self.recv.order.headers(head, payload)?;
        block.map_or(Ok(()), |block| self.block(&block))
    }

    fn continuation(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        let block = self.recv.order.continuation(head, payload, self.http.settings.head_size)?;
        block.map_or(Ok(()), |block| self.block(&block))
    }

    fn settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        head.require_connection()?;
        // RFC 9113 section 6.5: an acknowledgement is empty.
        if head.has(flag::ACK) {
            exactly::<0>(payload)?;
            self.acknowledged();
            return Ok(());
        }
        self.recv.order.settings_received();
        let change =
            self.send.peer.apply_and_acknowledge(payload, &mut self.send.encoder, &mut self.send.out)?;
        if change != 0 { self.change_windows(change) } else { Ok(()) }
    }

    /// Enlarges the windows of new and open streams to [`WINDOW`]: the client has acknowledged our `SETTINGS`.
    fn acknowledged(&mut self) {
        if std::mem::replace(&mut self.recv.is_acknowledged, true) {
            return;
        }
        self.recv.initial_window = WINDOW;
        for stream in self.places.iter_mut().flatten() {
            stream.recv_window += i64::from(WINDOW - DEFAULT_WINDOW);
        }
    }

    fn ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        head.require_connection()?;
        exactly::<8>(payload)?;
        // RFC 9113 section 6.7: the acknowledgement repeats the payload.
        if !head.has(flag::ACK) {
            self.send.out.frame(kind::PING, flag::ACK, 0, payload);
        } else if payload == LAST_PING {
            self.drain_last();
        }
        Ok(())
    }

    fn rst_stream(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        // RFC 9113 section 6.4: an idle stream cannot be reset.
        if head.stream == 0 || head.stream > self.recv.last {
            return Err(Fault::Connection(Reason::PROTOCOL_ERROR));
        }
        exactly::<4>(payload)?;
        if let Some(place) = self.find(head.stream) {
            self.close(place, Ended::Over);
        }
        Ok(())
    }

    /// Checks and ignores `PRIORITY` of RFC 7540, which RFC 9113 section 5.3 deprecates.
    fn priority(&self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        if head.stream == 0 {
            return Err(Fault::Connection(Reason::PROTOCOL_ERROR));
        }
        // RFC 7540 section 5.3.1: a stream cannot depend on itself.
        let depends_on_itself = word(payload) & LARGEST_WINDOW == head.stream;
        let reason = match payload.len() {
            5 if depends_on_itself => Reason::PROTOCOL_ERROR,
            5 => return Ok(()),
            _ => Reason::FRAME_SIZE_ERROR,
        };
        // RFC 9113 section 6.4: `RST_STREAM` is not sent for an idle stream.
        let is_idle = head.stream > self.recv.last || head.stream.is_multiple_of(2);
        Err(if is_idle { Fault::Connection(reason) } else { Fault::Stream(head.stream, reason) })
    }

    // RFC 9218 section 7.1. A priority for a stream that is not open yet is dropped, because the stream may never be opened.
    fn priority_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        let Some((number, value)) = payload.split_first_chunk::<4>().filter(|_| head.stream == 0) else {
            let reason = if head.stream == 0 { Reason::FRAME_SIZE_ERROR } else { Reason::PROTOCOL_ERROR };
            return Err(Fault::Connection(reason));
        };
        if word(number) == 0 {
            return Err(Fault::Connection(Reason::PROTOCOL_ERROR));
        }
        if let Some(place) = self.find(word(number)) {
            self.prioritize(place, Priority::read(value));
        }
        Ok(())
    }

    fn begin_data(&mut self, head: FrameHead) -> Result<(), Fault> {
        let number = head.stream;
        // RFC 9113 section 6.1: `DATA` belongs to a stream that is not idle.
        if number == 0 || number > self.recv.last {
            return Err(Fault::Connection(Reason::PROTOCOL_ERROR));
        }
        let mut data = DataFrame::new(head)?;
        // RFC 9113 section 6.9.1: padding counts too.
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

    /// Whether the body of stream `number` accepts a `DATA` frame of `length` bytes; accounts it in the stream's window.
    fn takes_data(&mut self, number: u32, length: u32) -> Result<bool, Fault> {
        let Some(place) = self.find(number) else {
            return match self.how_ended(number) {
                Some(Ended::Reset) => Ok(false),
                // RFC 9113 section 5.1: `DATA` after `END_STREAM`.
                _ => Err(Fault::Connection(Reason::STREAM_CLOSED)),
            };
        };
        let Some(stream) = self.stream(place) else { return Ok(false) };
        if stream.inbox.is_none() {
            return Err(Fault::Stream(number, Reason::STREAM_CLOSED));
        }
        stream.recv_window -= i64::from(length);
        if stream.recv_window < 0 {
            return Err(Fault::Stream(number, Reason::FLOW_CONTROL_ERROR));
        }
        Ok(true)
    }

    /// Processes the next part of a `DATA` frame.
    fn data_bytes<'b>(&mut self, mut data: DataFrame, bytes: &'b [u8]) -> &'b [u8] {
        let part = data.next_part(bytes);
        self.recv.expect = Expect::Data(data);
        let length = match part {
            Ok(DataPart::PaddingLength(padding)) => {
                self.claim_padding(data.stream, padding + 1);
                if data.left == 0 && !data.is_last {
                    self.flood.charge(ONLY_PADDING);
                }
                1
            }
            Ok(DataPart::Data(length)) => {
                self.data(data, &bytes[..length]);
                length
            }
            Ok(DataPart::Padding(length)) => length,
            Err(reason) => {
                self.fail(reason);
                return &[];
            }
        };
        if data.is_complete() {
            self.end_data(data);
        }
        &bytes[length..]
    }

    fn data(&mut self, data: DataFrame, bytes: &[u8]) {
        let place = self.find(data.stream).filter(|_| data.is_wanted);
        let Some(stream) = place.and_then(|place| self.stream(place)) else {
            // Data of an abandoned stream is returned at once, or it would close the window for all other
            // uploads.
            self.claim(bytes.len() as u32);
            return;
        };
        if !stream.left.receive(bytes.len()) {
            // RFC 9113 section 8.1.1: the body is longer than the head states.
            self.claim(bytes.len() as u32);
            self.fault(Fault::Stream(data.stream, Reason::PROTOCOL_ERROR));
        } else if let Some(inbox) = &stream.inbox
            && inbox.push(bytes, data.left as usize).is_break()
        {
            self.claim(bytes.len() as u32);
        }
    }

    fn end_data(&mut self, data: DataFrame) {
        self.recv.expect = Expect::Frame;
        if data.is_last && data.is_wanted {
            self.end_body(data.stream, None);
        }
    }
}
