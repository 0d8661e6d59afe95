//! Limits on the size of a request's head. HTTP/1.1 heads are limited by the parser; HTTP/2 heads arrive compressed and
//! are measured here as an upstream will receive them.

use brisk_http::message::{HeaderList, RequestParts};
use brisk_http::validate::Refusal;
use brisk_http::version;
use brisk_http_connection::settings::HttpSettings;
use http::StatusCode;

/// Overhead of each field in bytes (RFC 9113 section 6.5.2).
const FIELD: usize = 32;

/// Limits on the head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadLimits {
    /// Number of header lines.
    pub(crate) lines: usize,
    /// Size in bytes over HTTP/2 (RFC 9113 section 6.5.2): names, values, and 32 for each line.
    pub(crate) size: usize,
}

impl HeadLimits {
    /// The limits in `settings`.
    pub(crate) fn of(settings: &HttpSettings) -> Self {
        Self { lines: settings.headers, size: settings.head_size }
    }

    /// Returns the size of `head`, or 0 if the parser has measured it. Refuses with `431` above [`Self::lines`] or
    /// [`Self::size`].
    pub(crate) fn check(self, head: &RequestParts) -> Result<usize, Refusal> {
        if !version::of(head.version).compresses_heads() {
            return Ok(0);
        }
        let target = head.uri.path_and_query().map_or(0, |path| path.as_str().len() + FIELD);
        let size = size_of_fields(&head.headers) + target;
        if head.headers.len() > self.lines || size > self.size {
            return Err(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "request-head-too-large"));
        }
        Ok(size)
    }
}

/// Size of header fields in bytes (RFC 9113 section 6.5.2).
pub(crate) fn size_of_fields(headers: &HeaderList) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum()
}

#[cfg(test)]
mod tests {
    use brisk_http::message::Request;
    use http::Version;

    use super::*;

    const LIMITS: HeadLimits = HeadLimits { lines: 3, size: 200 };

    fn head(version: Version, lines: &[&str]) -> RequestParts {
        let mut request = Request::builder().version(version).uri("https://site.test/");
        for value in lines {
            request = request.header("x-line", *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn lines_of_one_name_count_one_by_one() {
        assert!(LIMITS.check(&head(Version::HTTP_2, &["1", "2", "3"])).is_ok());
        let refusal = LIMITS.check(&head(Version::HTTP_2, &["1", "2", "3", "4"])).expect_err("four lines");
        assert_eq!(refusal.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }

    #[test]
    fn size_is_that_of_names_and_values_and_32_each() {
        assert_eq!(LIMITS.check(&head(Version::HTTP_2, &["12"])), Ok(1 + 32 + 6 + 2 + 32));
        assert!(LIMITS.check(&head(Version::HTTP_2, &["x".repeat(130).as_str()])).is_err());
    }

    #[test]
    fn http1_was_measured_before() {
        assert_eq!(LIMITS.check(&head(Version::HTTP_11, &["1", "2", "3", "4"])), Ok(0));
    }
}
