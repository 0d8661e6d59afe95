//! Flow control in both directions (RFC 9113 section 5.2).

use brisk_wire::h2::frame::{FrameHead, LARGEST_WINDOW, Reason, WriteFrames, word};
use brisk_wire::h2::reader::{Fault, change_window, exactly};

use super::state::{Ended, H2, WINDOW};
use crate::response::Work;

impl H2<'_> {
    pub(super) fn window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        let increment = i64::from(word(exactly::<4>(payload)?) & LARGEST_WINDOW);
        if head.stream == 0 {
            // RFC 9113 section 6.9: an increment of 0 is an error of the connection, or below of the stream.
            if increment == 0 {
                return Err(Fault::Connection(Reason::PROTOCOL_ERROR));
            }
            change_window(&mut self.send.window, increment)?;
            return Ok(());
        }
        if head.stream > self.recv.last {
            return Err(Fault::Connection(Reason::PROTOCOL_ERROR));
        }
        let Some(place) = self.find(head.stream) else { return Ok(()) };
        if increment == 0 {
            return Err(Fault::Stream(head.stream, Reason::PROTOCOL_ERROR));
        }
        let Some(stream) = self.stream(place) else { return Ok(()) };
        change_window(&mut stream.send_window, increment)
            .map_err(|reason| Fault::Stream(head.stream, reason))?;
        self.queue(place);
        Ok(())
    }

    /// Applies a change of the client's `SETTINGS_INITIAL_WINDOW_SIZE` to all streams (RFC 9113 section 6.9.2).
    pub(super) fn change_windows(&mut self, change: i64) -> Result<(), Fault> {
        for index in 0..self.numbers.len() {
            let (_, place) = self.numbers[index];
            let Some(stream) = self.stream(place) else { continue };
            change_window(&mut stream.send_window, change)?;
            self.queue(place);
        }
        Ok(())
    }

    /// Returns `bytes` to the connection's window, because they were read or never will be.
    ///
    /// `WINDOW_UPDATE` is sent once half of the window is read, or as much as is left of it, so that bytes held by slow readers
    /// do not stop the other uploads.
    pub(super) fn claim(&mut self, bytes: u32) {
        self.recv.unclaimed += i64::from(bytes);
        if self.recv.unclaimed >= self.recv.window.clamp(1, i64::from(WINDOW / 2)) {
            self.open_window(self.recv.unclaimed);
        }
    }

    /// Sends a frame after an upload whose response was complete before its end: curl 7.88 notices the end of a request only
    /// when a frame arrives. If all bytes are already returned, one byte is credited in advance.
    pub(super) fn notify_end(&mut self) {
        self.open_window(self.recv.unclaimed.max(1));
    }

    fn open_window(&mut self, bytes: i64) {
        let Ok(increment) = u32::try_from(bytes) else { return };
        self.recv.window += bytes;
        self.recv.unclaimed -= bytes;
        self.send.out.window_update(0, increment);
    }

    /// Returns the windows used by padding, which is not stored.
    pub(super) fn claim_padding(&mut self, number: u32, bytes: u32) {
        self.claim(bytes);
        if let Some(place) = self.find(number) {
            self.claim_stream(place, bytes);
        }
    }

    /// Returns `bytes` to a stream's window. `WINDOW_UPDATE` is sent once half of the window is read.
    fn claim_stream(&mut self, place: u32, bytes: u32) {
        let window = self.recv.initial_window;
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return };
        stream.unclaimed += bytes;
        if stream.unclaimed >= window / 2 {
            stream.recv_window += i64::from(stream.unclaimed);
            self.send.out.window_update(stream.number, stream.unclaimed);
            stream.unclaimed = 0;
        }
    }

    /// Processes the [`Notices`](brisk_http_connection::body::inbox::Notices) of the readers of request bodies.
    pub(super) fn look_at_bodies(&mut self) {
        let read = self.notices.take_read();
        if read > 0 {
            self.claim(read);
        }
        for number in self.notices.take() {
            if let Some(place) = self.find(number) {
                self.look_at_body(place);
            }
        }
    }

    fn look_at_body(&mut self, place: u32) {
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return };
        let (Some(inbox), number) = (&stream.inbox, stream.number) else { return };
        let notice = inbox.notice();
        let (is_answered, is_done) = match &stream.work {
            Work::Done => (true, true),
            Work::Answer(answer) => (answer.head.is_none(), false),
            Work::Running(_) => (false, false),
        };
        if notice.asks && !is_answered {
            self.write_status(number, 100, false);
        }
        if notice.is_dropped && is_done {
            // RFC 9113 section 8.1: after a complete response, `NO_ERROR` stops the rest of the request.
            self.reset(number, Reason::NO_ERROR);
        // A dropped body gets no more of its stream's window, since the rest is not wanted.
        } else if notice.read > 0 && !notice.is_dropped {
            self.claim_stream(place, notice.read);
        }
    }

    /// Completes a response that was sent entirely.
    pub(super) fn answered(&mut self, place: u32) {
        let Some(stream) = self.stream(place) else { return };
        let work = std::mem::replace(&mut stream.work, Work::Done);
        let number = stream.number;
        let is_over = stream.inbox.is_none();
        // Dropping it ends its exchange, which may let go of the rest of an upload: hence before the check below.
        drop(work);
        if is_over {
            self.close(place, Ended::Over);
            return;
        }
        let Some(stream) = self.stream(place) else { return };
        if stream.inbox.as_ref().is_some_and(|inbox| inbox.is_dropped()) {
            self.reset(number, Reason::NO_ERROR);
        }
    }
}
