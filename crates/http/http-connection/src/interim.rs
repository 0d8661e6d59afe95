//! Interim responses before the final response: 103 Early Hints (RFC 8297).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use brisk_rewrite::{Base, OriginMap};
use http::header::LINK;
use http::{HeaderMap, HeaderValue};

use crate::connection::Connection;
use crate::held::{Account, HeldBytes};
use crate::streams::StreamKey;

/// Maximum number of links in interim responses of one request. Further links appear in the final response only.
pub const LINKS: usize = 16;
/// Maximum total length of these links in bytes.
pub const LINK_BYTES: usize = 4 << 10;

/// Sender of interim responses for one request. HTTP/2 and HTTP/3 only: some HTTP/1.1 clients mistake them for the final response.
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

    /// Sends the members of `links` that were not sent before, as far as the client's memory for heads suffices.
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
            if sent.len() == LINKS || bytes > LINK_BYTES || !self.hold(link.len()) {
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
