//! How large the head of a request may be. HTTP/1.1's is limited where it is parsed; that of HTTP/2 comes compressed, and
//! is measured here as it is for an upstream.

use brisk_http::validate::Refusal;
use brisk_http::version;
use brisk_http_connection::settings::HttpSettings;
use http::StatusCode;
use http::request::Parts;

/// Bytes that RFC 9113 section 6.5.2 adds for each field.
const FIELD: usize = 32;

/// The most that the head of a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadLimits {
    /// Header lines.
    pub(crate) lines: usize,
    /// Bytes over HTTP/2, by RFC 9113 section 6.5.2: names and values, and 32 for each line.
    pub(crate) size: usize,
}

impl HeadLimits {
    /// The limits in `settings`.
    pub(crate) fn of(settings: &HttpSettings) -> Self {
        Self { lines: settings.headers, size: settings.head_size }
    }

    /// The size of `head`, if it was not measured where it was parsed; 431 where a limit is exceeded.
    pub(crate) fn check(self, head: &Parts) -> Result<usize, Refusal> {
        if !version::of(head.version).compresses_heads() {
            return Ok(0);
        }
        let fields = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD);
        let target = head.uri.path_and_query().map_or(0, |path| path.as_str().len() + FIELD);
        let size = fields.sum::<usize>() + target;
        if head.headers.len() > self.lines || size > self.size {
            return Err(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "request-head-too-large"));
        }
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Version};

    use super::*;

    const LIMITS: HeadLimits = HeadLimits { lines: 3, size: 200 };

    fn head(version: Version, lines: &[&str]) -> Parts {
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
