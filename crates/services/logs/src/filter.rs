//! [`LogFilter`], the requests that have a line in an output.

use regex::bytes::{Regex, RegexBuilder};

use brisk_telemetry::RequestRecord;

use crate::template::LogTemplate;

/// Size of a compiled expression at most, in bytes.
const LARGEST: usize = 1 << 20;

/// A test of requests by a text with variables and an expression for it. A value that is missing is empty; the others are escaped
/// as in the lines of a [`LogTemplate`].
#[derive(Clone, Debug)]
pub struct LogFilter {
    value: LogTemplate,
    pattern: Regex,
    excludes: bool,
}

impl LogFilter {
    /// A test that `value`, a text with the variables of [`LogTemplate`], matches `pattern`. The requests that match have lines, or
    /// with `excludes` all others.
    ///
    /// # Errors
    ///
    /// The reason why the text or the expression is wrong, with the correction.
    pub fn new(value: &str, pattern: &str, excludes: bool) -> Result<Self, String> {
        let value = LogTemplate::new(value)?;
        let pattern = RegexBuilder::new(pattern).unicode(false).size_limit(LARGEST).build();
        let pattern = pattern.map_err(|error| format!("the expression is wrong: {error}"))?;
        Ok(Self { value, pattern, excludes })
    }

    /// Whether the test needs JA4 of the client, and the fingerprint of its certificate.
    pub fn fingerprints(&self) -> (bool, bool) {
        self.value.fingerprints()
    }

    /// The same test with the headers of its text at their places in `headers`, to which missing ones are added.
    pub(crate) fn sharing(&self, headers: &mut Vec<Box<str>>) -> Self {
        Self { value: self.value.sharing(headers), ..self.clone() }
    }

    /// Whether the request has a line.
    pub(crate) fn includes(&self, request: &RequestRecord<'_>) -> bool {
        let mut value = Vec::new();
        self.value.value(&mut value, request);
        self.pattern.is_match(&value) != self.excludes
    }
}

impl PartialEq for LogFilter {
    fn eq(&self, other: &Self) -> bool {
        // By the text of the expression: compiled expressions have no equality.
        (&self.value, self.pattern.as_str(), self.excludes)
            == (&other.value, other.pattern.as_str(), other.excludes)
    }
}

impl Eq for LogFilter {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::tests::{connection, request};

    #[test]
    fn requests_are_tested_by_a_text_and_an_expression() {
        let connection = connection();
        let request = |status| RequestRecord { status, ..request(&connection) };
        let filter = |value, pattern, excludes| LogFilter::new(value, pattern, excludes).expect("a filter");
        let errors = filter("{response.status}", "^[45]", false);
        assert!(errors.includes(&request(404)) && !errors.includes(&request(200)));
        let others = filter("{response.status}", "^[45]", true);
        assert!(!others.includes(&request(404)) && others.includes(&request(200)));
        let both = filter("{request.method} {request.path}", "^GET /a$", false);
        assert!(both.includes(&request(200)));
        // The request names no user.
        assert!(filter("{user}", "^$", false).includes(&request(200)));
        assert!(
            filter("{user}|{request.method}|{request.header.x}", "^\\|GET\\|$", false)
                .includes(&request(200))
        );
        let headers = [Some(&b"-"[..])];
        let record = RequestRecord { headers: &headers, path: "/\"", ..request(200) };
        assert!(filter("{request.header.x}", "^-$", false).includes(&record), "the value of a client");
        assert!(filter("{request.path}", r"^/\\x22$", false).includes(&record), "an escaped quote");
        assert!(LogFilter::new("{nothing}", "a", false).is_err() && LogFilter::new("a", "(", false).is_err());
        assert_ne!(errors, others);
    }
}
