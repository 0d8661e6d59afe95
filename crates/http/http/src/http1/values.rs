//! Values of header lines.
#![expect(
    unsafe_code,
    reason = "`http` checks each byte of a value again, which costs 2 % of a proxied request"
)]

use bytes::Bytes;
use http::HeaderValue;
use http::header::InvalidHeaderValue;

/// The value of a line that `httparse` has accepted, so that it contains no control character but the tab.
pub(super) fn parse(accepted: Bytes) -> Result<HeaderValue, InvalidHeaderValue> {
    if accepted.is_ascii() {
        // SAFETY: ASCII is UTF-8. Debug builds check the value completely.
        Ok(unsafe { HeaderValue::from_maybe_shared_unchecked(accepted) })
    } else {
        HeaderValue::from_maybe_shared(accepted)
    }
}
