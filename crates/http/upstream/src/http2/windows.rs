//! Flow control in both directions (RFC 9113 section 5.2).

use brisk_wire::h2::frame::{FrameHead, LARGEST_WINDOW, Reason, WriteFrames, word};
use brisk_wire::h2::reader::{Fault, change_window, exactly};

use super::state::{CONNECTION_WINDOW, STREAM_WINDOW, State};
use super::stream::End;

/// Increments in bytes below which `WINDOW_UPDATE` costs allowance. Larger ones are limited by the maximum window of 2 GiB.
const SMALL_INCREMENT: i64 = 256;

impl State {
    pub(super) fn window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        let increment = i64::from(word(exactly::<4>(payload)?) & LARGEST_WINDOW);
        if increment < SMALL_INCREMENT {
            self.allowance.spend(1);
        }
        if head.stream == 0 {
            // RFC 9113 section 6.9: an increment of 0 is an error of the connection, or below of the stream.
            if increment == 0 {
                return Err(Fault::Connection(Reason::PROTOCOL_ERROR));
            }
            // RFC 9113 section 6.9.1: an overflow of this window ends the connection.
            change_window(&mut self.send.window, increment)?;
            self.go_on_with_held();
            return Ok(());
        }
        self.known(head.stream)?;
        let Some(place) = self.find(head.stream) else {
            if increment >= SMALL_INCREMENT {
                self.allowance.spend(1);
            }
            return Ok(());
        };
        if increment == 0 {
            return Err(Fault::Stream(head.stream, Reason::PROTOCOL_ERROR));
        }
        let stream = self.stream(place);
        change_window(&mut stream.send_window, increment)
            .map_err(|reason| Fault::Stream(head.stream, reason))?;
        self.queue(place);
        Ok(())
    }

    /// Changes the send window of all streams by the difference of `SETTINGS_INITIAL_WINDOW_SIZE` (RFC 9113 section 6.9.2).
    pub(super) fn change_windows(&mut self, change: i64) -> Result<(), Fault> {
        for index in 0..self.numbers.len() {
            let (_, place) = self.numbers[index];
            let stream = self.stream(place);
            change_window(&mut stream.send_window, change)?;
            self.queue(place);
        }
        Ok(())
    }

    /// Records bytes of the connection's window as read or discarded.
    ///
    /// `WINDOW_UPDATE` is sent once half of the window was read, or as much as remains of it: data held by slow readers
    /// must not block the other responses.
    pub(super) fn claim(&mut self, bytes: u32) {
        self.recv.unclaimed += bytes;
        let unclaimed = i64::from(self.recv.unclaimed);
        let is_worth_it = unclaimed >= self.recv.window.clamp(1, i64::from(CONNECTION_WINDOW / 2));
        if is_worth_it && self.failure.is_none() {
            self.recv.window += unclaimed;
            self.send.out.window_update(0, self.recv.unclaimed);
            self.recv.unclaimed = 0;
            self.schedule();
        }
    }

    /// Whether slow readers leave room in the window for another response: twice [`STREAM_WINDOW`].
    pub(super) fn has_window(&self) -> bool {
        self.recv.window + i64::from(self.recv.unclaimed) >= 2 * i64::from(STREAM_WINDOW)
    }

    /// Records bytes of a response as read. `WINDOW_UPDATE` is sent once half of the stream's window is used.
    pub(super) fn claim_stream(&mut self, place: u32, bytes: u32) {
        let stream = self.stream(place);
        stream.unclaimed += bytes;
        // The window of a response that has ended is of no use to the server.
        if stream.unclaimed >= STREAM_WINDOW / 2 && stream.end == End::Open {
            let (number, unclaimed) = (stream.number, stream.unclaimed);
            stream.recv_window += i64::from(unclaimed);
            stream.unclaimed = 0;
            self.send.out.window_update(number, unclaimed);
            self.schedule();
        }
    }

    /// Records padding, which occupies the windows of stream and connection but no memory.
    pub(super) fn claim_padding(&mut self, number: u32, bytes: u32) {
        self.claim(bytes);
        if let Some(place) = self.find(number) {
            self.claim_stream(place, bytes);
        }
    }
}
