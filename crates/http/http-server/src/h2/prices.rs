//! Prices of HTTP/2 frames in the flood budget of their connection.

use brisk_http_connection::streams::RESET;
use brisk_wire::h2::frame::{FrameHead, Reason, flag, kind};

use crate::flood::{Flood, FloodWatch, Price};

/// Acknowledgements (`ACK`) that the client owes, which are free.
#[derive(Debug)]
pub(super) struct Owed {
    /// `PING` frames sent and not yet acknowledged.
    pings: u32,
    /// Whether our `SETTINGS`, sent once, are not yet acknowledged.
    settings: bool,
}

impl Owed {
    /// The debts of a client that was sent `SETTINGS`.
    pub(super) fn new() -> Self {
        Self { pings: 0, settings: true }
    }

    /// Accounts a frame from the client in `flood`, unless it is an owed `ACK`.
    pub(super) fn received(&mut self, frame: FrameHead, flood: &FloodWatch) {
        if matches!(frame.kind, kind::HEADERS | kind::CONTINUATION) {
            flood.block_received(frame.length.into());
        }
        if frame.has(flag::ACK) && frame.kind == kind::PING && self.pings > 0 {
            self.pings -= 1;
        } else if frame.has(flag::ACK) && frame.kind == kind::SETTINGS && self.settings {
            self.settings = false;
        } else {
            flood.charge(price(frame));
        }
    }

    /// Accounts a `PING` frame to the client; its acknowledgement is free.
    pub(super) fn ping_sent(&mut self) {
        self.pings += 1;
    }
}

/// Price of a `DATA` frame from the client that has padding only, which its head does not show.
pub(super) const ONLY_PADDING: Price = Some((Flood::EmptyData, 1));

/// Price of a frame from the client.
fn price(frame: FrameHead) -> Price {
    match frame.kind {
        // CVE-2019-9518, "Empty Frames Flood"
        kind::DATA if frame.length == 0 && !frame.has(flag::END_STREAM) => Some((Flood::EmptyData, 1)),
        // Data earns points, and heads are charged by their size.
        kind::DATA | kind::HEADERS | kind::CONTINUATION => None,
        kind::PRIORITY => Some((Flood::Priority, 1)),
        // CVE-2023-44487, "Rapid Reset"
        kind::RST_STREAM => Some((Flood::Reset, RESET)),
        // Expensive: a client needs one or two, and each has to be acknowledged (RFC 9113 section 6.5.3). An acknowledgement
        // without SETTINGS of ours is never legitimate.
        kind::SETTINGS => Some((Flood::Settings, RESET)),
        // Acknowledges no PING of ours, since those were counted before: never legitimate.
        kind::PING if frame.has(flag::ACK) => Some((Flood::PingAck, RESET)),
        kind::PING => Some((Flood::Ping, 1)),
        kind::WINDOW_UPDATE => Some((Flood::WindowUpdate, 1)),
        _ => Some((Flood::OtherFrame, 1)),
    }
}

/// Price of a stream that is reset here with `reason`: charged if the client caused the reset (CVE-2025-8671).
pub(super) fn reset_sent(reason: Reason) -> Price {
    let is_clients_fault = matches!(
        reason,
        Reason::PROTOCOL_ERROR
            | Reason::FLOW_CONTROL_ERROR
            | Reason::STREAM_CLOSED
            | Reason::FRAME_SIZE_ERROR
            | Reason::REFUSED_STREAM
    );
    is_clients_fault.then_some((Flood::StreamError, RESET))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u32) -> FrameHead {
        FrameHead { length, kind, flags, stream: 1 }
    }

    #[test]
    fn resets_that_the_client_provokes_count_and_our_own_do_not() {
        let watch = FloodWatch::new(3);
        for _ in 0..100 {
            watch.charge(reset_sent(Reason::INTERNAL_ERROR));
        }
        assert_eq!(watch.exhausted_by(), None);
        for _ in 0..4 {
            watch.charge(reset_sent(Reason::PROTOCOL_ERROR));
        }
        assert_eq!(watch.exhausted_by(), Some(Flood::StreamError));
    }

    #[test]
    fn an_acknowledgement_is_free_where_a_ping_was_sent() {
        let (watch, mut owed) = (FloodWatch::new(1), Owed::new());
        let ack = frame(kind::PING, flag::ACK, 8);
        for _ in 0..10 {
            owed.ping_sent();
            owed.received(ack, &watch);
        }
        owed.received(ack, &watch);
        assert_eq!(watch.exhausted_by(), None);
        owed.received(ack, &watch);
        assert_eq!(watch.exhausted_by(), Some(Flood::PingAck));
    }

    #[test]
    fn only_one_acknowledgement_of_settings_is_free() {
        let (watch, mut owed) = (FloodWatch::new(1), Owed::new());
        let ack = frame(kind::SETTINGS, flag::ACK, 0);
        owed.received(ack, &watch);
        owed.received(ack, &watch);
        assert_eq!(watch.exhausted_by(), None);
        owed.received(ack, &watch);
        assert_eq!(watch.exhausted_by(), Some(Flood::Settings));
    }
}
