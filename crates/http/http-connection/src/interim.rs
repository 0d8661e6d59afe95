//! Interim responses before the final response: 103 Early Hints (RFC 8297), and forwarded ones of upstreams (RFC 9110 section 15.2).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use brisk_http::hop_by_hop;
use brisk_http::message::HeaderList;
use brisk_rewrite::{Base, OriginMap};
use http::header::{CONTENT_LENGTH, LINK};
use http::{HeaderValue, StatusCode};

use crate::connection::Connection;
pub use crate::connection::InterimResponse;
use crate::held::{Account, HeldBytes};
use crate::streams::StreamKey;

/// Maximum number of links in interim responses of one request. Further links appear in the final response only.
pub const LINKS: usize = 16;
/// Maximum total length of the [`LINKS`] in bytes.
pub const LINK_BYTES: usize = 4 << 10;

/// Maximum number of interim responses that are forwarded for one request. Further ones are dropped.
const FORWARDED: u32 = 100;
/// Maximum size in bytes of the headers of all [`FORWARDED`] responses, with 32 bytes for each header and each response.
const FORWARDED_BYTES: usize = 16 << 10;
const OVERHEAD: usize = 32;

/// Destinations of the interim responses of an upstream.
#[derive(Clone, Copy, Debug, Default)]
pub struct InterimReceivers<'a> {
    /// Receiver of `103`; `None` drops them.
    pub hints: Option<&'a Interim>,
    /// Receiver of all other interim responses; `None` drops them.
    pub forwarded: Option<&'a ForwardedInterim<'a>>,
}

impl InterimReceivers<'_> {
    /// Passes on an interim response of the upstream. Hints that arrive together with the final response are useless, and are
    /// dropped if `is_answered`.
    pub fn receive(&self, status: StatusCode, headers: HeaderList, is_answered: bool) {
        match (status, self.hints, self.forwarded) {
            // The gateway itself has sent 100 if the client expects it; 101 switches protocols.
            (StatusCode::EARLY_HINTS, Some(hints), _) if !is_answered => hints.hint(headers.get_all(LINK)),
            (StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS | StatusCode::EARLY_HINTS, ..)
            | (_, _, None) => {}
            (_, _, Some(forwarded)) => forwarded.send(status, headers),
        }
    }
}

/// Sender of the interim responses of an upstream to the client of one request, except `100`, `101` and `103`.
#[derive(Debug)]
pub struct ForwardedInterim<'a> {
    connection: &'a Rc<Connection>,
    stream: Option<StreamKey>,
    number: Cell<u32>,
    bytes: Cell<usize>,
    /// Memory on a multiplexed connection, until the final response.
    held: RefCell<Option<HeldBytes>>,
}

impl<'a> ForwardedInterim<'a> {
    /// Interim responses for the request on `stream`, or for the only request of an HTTP/1.1 connection.
    pub fn new(connection: &'a Rc<Connection>, stream: Option<StreamKey>) -> Self {
        let (number, bytes) = (Cell::new(0), Cell::new(0));
        Self { connection, stream, number, bytes, held: RefCell::default() }
    }

    fn send(&self, status: StatusCode, mut headers: HeaderList) {
        hop_by_hop::remove(&mut headers);
        // RFC 9110 section 8.6: no interim response has a length.
        headers.remove(CONTENT_LENGTH);
        // As in RFC 9113 section 6.5.2, each field counts 32 bytes more than its text: many short fields cost
        // more memory than their text.
        let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + OVERHEAD);
        let size = OVERHEAD + fields.sum::<usize>();
        let (number, bytes) = (self.number.get() + 1, self.bytes.get() + size);
        // Dropped instead of failing the request: the final response is complete without interim ones.
        if number > FORWARDED || bytes > FORWARDED_BYTES || !self.hold(size) {
            return;
        }
        self.number.set(number);
        self.bytes.set(bytes);
        self.connection.extras.queue_interim(InterimResponse { stream: self.stream, status, headers });
    }

    fn hold(&self, bytes: usize) -> bool {
        let mut held = self.held.borrow_mut();
        // The account begins with the first interim response, since nearly all requests have none.
        if held.is_none() {
            *held = HeldBytes::begin(self.connection, Account::Heads);
        }
        held.as_mut().is_none_or(|held| held.add(bytes).is_ok())
    }
}

/// Sender of early hints (`103`) for one request. HTTP/2 and HTTP/3 only: some HTTP/1.1 clients mistake them for the final
/// response.
#[derive(Debug)]
pub struct Interim {
    connection: Rc<Connection>,
    stream: StreamKey,
    sent: RefCell<Vec<HeaderValue>>,
    /// Memory of `sent`.
    held: RefCell<Option<HeldBytes>>,
    /// Origins whose links are translated into paths of the host.
    map: Option<Arc<OriginMap>>,
}

impl Interim {
    /// Interim responses for the request on `stream`.
    pub fn new(connection: Rc<Connection>, stream: StreamKey) -> Self {
        let held = RefCell::new(HeldBytes::begin(&connection, Account::Heads));
        Self { connection, stream, sent: RefCell::default(), held, map: None }
    }

    /// Translates links to origins of `map` into links to the host.
    #[must_use]
    pub fn consolidating(mut self, map: Option<Arc<OriginMap>>) -> Self {
        self.map = map;
        self
    }

    fn link(&self, link: &HeaderValue) -> HeaderValue {
        let changed = self.map.as_ref().and_then(|map| {
            brisk_rewrite::map_bytes(link.as_bytes(), |link| brisk_rewrite::link(link, Base::Own, map))
        });
        changed.and_then(|changed| HeaderValue::try_from(changed).ok()).unwrap_or_else(|| link.clone())
    }

    /// Whether the client may hold another link of `bytes`; hints are dispensable.
    fn hold(&self, bytes: usize) -> bool {
        self.held.borrow_mut().as_mut().is_none_or(|held| held.add(bytes).is_ok())
    }

    /// Sends the members of `links` that were not sent before, up to [`LINKS`] and [`LINK_BYTES`], as far as the client's
    /// memory for heads suffices.
    pub fn hint<'l>(&self, links: impl IntoIterator<Item = &'l HeaderValue>) {
        let mut sent = self.sent.borrow_mut();
        let mut bytes: usize = sent.iter().map(HeaderValue::len).sum();
        let mut headers = HeaderList::new();
        for link in links {
            let link = self.link(link);
            if sent.contains(&link) {
                continue;
            }
            bytes += link.len();
            if sent.len() == LINKS || bytes > LINK_BYTES || !self.hold(link.len()) {
                break;
            }
            sent.push(link.clone());
            headers.append(LINK, link);
        }
        if !headers.is_empty() {
            let (stream, status) = (Some(self.stream), StatusCode::EARLY_HINTS);
            self.connection.extras.queue_interim(InterimResponse { stream, status, headers });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::connection;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderList {
        let line = |(name, value): &(&'static str, &str)| {
            (name.parse().expect("a name"), HeaderValue::from_str(value).expect("a value"))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn interim_responses_are_forwarded_without_hop_by_hop_headers_except_100_101_and_103() {
        let connection = connection();
        let forwarded = ForwardedInterim::new(&connection, None);
        let receivers = InterimReceivers { hints: None, forwarded: Some(&forwarded) };
        for status in [100, 101, 102, 103, 104, 199] {
            let lines =
                [("upload-offset", "1"), ("connection", "x-own"), ("x-own", "1"), ("content-length", "5")];
            let status = StatusCode::from_u16(status).expect("a status");
            receivers.receive(status, headers(&lines), true);
        }
        let sent = connection.extras.take_interims();
        let sent: Vec<_> = sent.iter().map(|interim| (interim.status.as_u16(), &interim.headers)).collect();
        let expected = headers(&[("upload-offset", "1")]);
        assert_eq!(sent, [(102, &expected), (104, &expected), (199, &expected)]);
        assert!(connection.extras.take_interims().is_empty());
    }

    #[test]
    fn forwarded_interim_responses_are_limited_in_number_and_size() {
        let connection = connection();
        let sent = |size: usize| {
            let forwarded = ForwardedInterim::new(&connection, None);
            let value = "x".repeat(size);
            for _ in 0..200 {
                forwarded.send(StatusCode::PROCESSING, headers(&[("a", &value)]));
            }
            connection.extras.take_interims().len()
        };
        assert_eq!(sent(0), 100);
        assert_eq!(sent(4096 - 65), 4);
        assert_eq!(sent(FORWARDED_BYTES), 0);
    }
}
