//! The bytes of a parsed head, which its values share.
#![expect(
    unsafe_code,
    reason = "`http` checks each byte of a value again, which costs 1 % of a proxied request"
)]

use std::ops::Range;

use bytes::Bytes;
use http::HeaderValue;
use http::header::InvalidHeaderValue;

/// A head that `httparse` has accepted: values have no control character but the tab.
pub(super) struct SharedHead {
    bytes: Bytes,
    is_ascii: bool,
}

impl SharedHead {
    pub(super) fn new(bytes: Bytes) -> Self {
        // One search for the head: a search for each value cost 49 instructions.
        Self { is_ascii: bytes.is_ascii(), bytes }
    }

    pub(super) fn part(&self, place: Range<u32>) -> Bytes {
        self.bytes.slice(place.start as usize..place.end as usize)
    }

    pub(super) fn name(&self, place: Range<u32>) -> &[u8] {
        &self.bytes[place.start as usize..place.end as usize]
    }

    pub(super) fn value(&self, place: Range<u32>) -> Result<HeaderValue, InvalidHeaderValue> {
        let value = self.part(place);
        if self.is_ascii {
            // SAFETY: ASCII is UTF-8. Debug builds check the value completely.
            Ok(unsafe { HeaderValue::from_maybe_shared_unchecked(value) })
        } else {
            HeaderValue::from_maybe_shared(value)
        }
    }
}
