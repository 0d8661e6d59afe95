//! Prices of HTTP/3 frames and events in the flood budget of their connection.

use brisk_http_connection::streams::RESET;
use brisk_wire::h3::error::Code;
use brisk_wire::h3::frame::{FrameHead, kind};

use crate::flood::{Flood, Price};

/// Price of a frame from the client.
pub(super) fn frame(head: FrameHead) -> Price {
    match head.kind {
        kind::DATA if head.length == 0 => Some((Flood::EmptyData, 1)),
        // Heads are charged by their size. Repeated SETTINGS end the connection (RFC 9114 section 7.2.4).
        kind::DATA | kind::HEADERS | kind::SETTINGS => None,
        kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_PUSH => Some((Flood::Priority, 1)),
        _ => Some((Flood::OtherFrame, 1)),
    }
}

/// Price of a request that the client cancels, by `RESET_STREAM` or `STOP_SENDING` (CVE-2023-44487, "Rapid Reset").
pub(super) const CANCELLED: Price = Some((Flood::Reset, RESET));

/// Price of a QPACK instruction, of a stream of unknown type, or of a request after the announced end of the connection.
pub(super) const USELESS: Price = Some((Flood::OtherFrame, 1));

/// Price of a request that is refused here with `code`: charged if the client caused the refusal (CVE-2025-8671).
pub(super) fn refused(code: Code) -> Price {
    let is_clients_fault =
        matches!(code, Code::MESSAGE_ERROR | Code::REQUEST_INCOMPLETE | Code::REQUEST_REJECTED);
    is_clients_fault.then_some((Flood::StreamError, RESET))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_data_are_free_and_all_else_has_a_price() {
        let points = |kind, length| frame(FrameHead { kind, length }).map_or(0, |(_, points)| points);
        assert_eq!([points(kind::HEADERS, 0), points(kind::DATA, 1), points(kind::SETTINGS, 0)], [0; 3]);
        for kind in [kind::DATA, kind::GOAWAY, kind::MAX_PUSH_ID, kind::PRIORITY_UPDATE, 0x21, 1 << 61] {
            assert_eq!(points(kind, 0), 1, "{kind:#x}");
        }
        assert_eq!(
            (refused(Code::MESSAGE_ERROR), refused(Code::INTERNAL_ERROR)),
            (Some((Flood::StreamError, 10)), None)
        );
    }
}
