//! [`WeakTags`] of a request, by which a `304` gets the tag of the client's copy.

use brisk_http::conditional::Tags;
use brisk_http::message::HeaderList;
use http::{HeaderValue, header};

use crate::compress::weaken;
use crate::digests::DIGESTS;

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

    /// Whether there is no such line, so that [`confirm`](Self::confirm) has no effect.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Weakens the `ETag` of a `304` if the client's copy has the weak one, and removes length and [`DIGESTS`], which are those of
    /// the content before its change (RFC 9110 sections 8.6 and 15.4.5). Other copies are unchanged: with a weak tag, `If-Range`
    /// would get the whole representation (RFC 9110 section 13.1.5).
    pub fn confirm(&self, headers: &mut HeaderList) {
        let Some(tag) = headers.get(header::ETAG).filter(|_| !self.0.is_empty()) else { return };
        let weak = [b"W/", tag.as_bytes()].concat();
        if self.0.iter().flat_map(|line| Tags(line.as_bytes())).any(|known| known == weak) {
            weaken(headers);
            [header::CONTENT_LENGTH].iter().chain(&DIGESTS).for_each(|name| drop(headers.remove(name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confirmed(known: &'static str) -> HeaderList {
        let request = HeaderList::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static(known))]);
        let mut headers = HeaderList::from_iter([
            (header::ETAG, HeaderValue::from_static("\"x\"")),
            (header::CONTENT_LENGTH, HeaderValue::from_static("99")),
            (DIGESTS[1].clone(), HeaderValue::from_static("sha-256=:eA==:")),
        ]);
        WeakTags::of(&request).confirm(&mut headers);
        headers
    }

    #[test]
    fn a_304_for_a_changed_copy_describes_that_copy() {
        let changed = confirmed("\"y\", W/\"x\"");
        assert_eq!((changed.len(), &changed[header::ETAG]), (1, &HeaderValue::from_static("W/\"x\"")));
        for original in ["\"x\"", "W/\"y\"", "*"] {
            let unchanged = confirmed(original);
            assert_eq!((unchanged.len(), &unchanged[header::ETAG]), (3, &HeaderValue::from_static("\"x\"")));
        }
    }
}
