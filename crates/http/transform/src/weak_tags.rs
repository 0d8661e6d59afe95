//! [`WeakTags`] of a request, by which a `304` gets the tag of the client's copy.

use brisk_http::conditional::Tags;
use brisk_http::message::HeaderList;
use http::{HeaderValue, header};

use crate::compress::weaken;

/// The lines of `If-None-Match` with a weak tag: the client's copy was changed, perhaps by this gateway.
#[derive(Debug, Default)]
pub struct WeakTags(Vec<HeaderValue>);

impl WeakTags {
    /// The weak tags in the headers of a request. Costs an allocation if there are any.
    pub fn of(headers: &HeaderList) -> Self {
        let lines = headers.get_all(header::IF_NONE_MATCH);
        let weak = lines.filter(|line| memchr::memmem::find(line.as_bytes(), b"W/").is_some());
        Self(weak.cloned().collect())
    }

    /// Weakens the `ETag` of a `304` if the client's copy has the weak one. Other copies are unchanged: with a weak tag, `If-Range`
    /// would get the whole representation (RFC 9110 section 13.1.5).
    pub fn confirm(&self, headers: &mut HeaderList) {
        let Some(tag) = headers.get(header::ETAG).filter(|_| !self.0.is_empty()) else { return };
        let weak = [b"W/", tag.as_bytes()].concat();
        if self.0.iter().flat_map(|line| Tags(line.as_bytes())).any(|known| known == weak) {
            weaken(headers);
        }
    }
}
