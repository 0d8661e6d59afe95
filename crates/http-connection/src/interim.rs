//! Interim answers to a request, which go out before the answer: 103 Early Hints (RFC 8297).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use brisk_rewrite::{Base, OriginMap};
use http::header::LINK;
use http::{HeaderMap, HeaderValue};

use crate::connection::Connection;
use crate::streams::StreamKey;

/// Links that a client gets before one answer, and their bytes, at most. The rest is left to the answer.
pub const LINKS: usize = 16;
/// Bytes of these links.
pub const LINK_BYTES: usize = 4 << 10;

/// What can be sent to one client before its answer. Only HTTP/2 has a place for that which clients are known to handle.
#[derive(Debug)]
pub struct Interim {
    connection: Rc<Connection>,
    stream: StreamKey,
    sent: RefCell<Vec<HeaderValue>>,
    /// Origins whose links lead below a path of the host.
    map: Option<Arc<OriginMap>>,
}

impl Interim {
    /// For the request of a stream.
    pub fn new(connection: Rc<Connection>, stream: StreamKey) -> Self {
        Self { connection, stream, sent: RefCell::default(), map: None }
    }

    /// With links to origins of `map` changed into those of the host.
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

    /// Sends those of `links` that the client was not sent before.
    pub fn hint<'l>(&self, links: impl IntoIterator<Item = &'l HeaderValue>) {
        let mut sent = self.sent.borrow_mut();
        let mut bytes: usize = sent.iter().map(HeaderValue::len).sum();
        let mut headers = HeaderMap::new();
        for link in links {
            let link = self.link(link);
            if sent.contains(&link) {
                continue;
            }
            bytes += link.len();
            if sent.len() == LINKS || bytes > LINK_BYTES {
                break;
            }
            sent.push(link.clone());
            headers.append(LINK, link);
        }
        if let Some(multiplexed) = self.connection.multiplexed().filter(|_| !headers.is_empty()) {
            multiplexed.send_interim(self.stream, headers);
        }
    }
}
