//! `Alt-Svc` (RFC 7838): the statement of a host that it serves HTTP/3, or no longer does.

use std::time::Duration;

use http::HeaderValue;

/// The statement of a host about HTTP/3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AltSvc {
    /// The host serves HTTP/3.
    Announce(Announcement),
    /// The host does not serve HTTP/3: clients delete stored announcements (RFC 7838 section 3), and requests over HTTP/3 get
    /// `421`, after which clients repeat them over TCP (section 6).
    Clear,
}

/// The announcement that a host serves HTTP/3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// UDP port that clients reach. Default: the port of the listener that received the request.
    pub port: Option<u16>,
    /// Time for which clients remember the announcement, in whole seconds (`ma`). With zero, no header is sent.
    pub max_age: Duration,
}

impl Announcement {
    /// The value of the header (RFC 7838 section 3) for a listener with the port `local`.
    pub(crate) fn value(self, local: u16) -> HeaderValue {
        let (port, seconds) = (self.port.unwrap_or(local), self.max_age.as_secs());
        // RFC 7838 section 3: without a host before the port, the alternative has the host of the origin.
        HeaderValue::try_from(format!("h3=\":{port}\"; ma={seconds}")).expect("digits and fixed words")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_that_of_the_listener_unless_another_is_public() {
        let announcement = Announcement { port: None, max_age: Duration::from_hours(24) };
        assert_eq!(announcement.value(8443), "h3=\":8443\"; ma=86400");
        assert_eq!(Announcement { port: Some(443), ..announcement }.value(8443), "h3=\":443\"; ma=86400");
    }
}
