//! Requests that are refused because they are malformed, before a service sees them.

use brisk_http::http1::request_head::MalformedRequest;
use brisk_telemetry::MalformedReason;

use super::driver::Http;

/// Maximum length of a request line that is logged, in bytes.
const LINE: usize = 256;

impl Http {
    /// Counts and logs a malformed request with the response `status`, or 0 without a response. `line` is its request line.
    pub(super) fn refused(&self, reason: MalformedReason, status: u16, line: &[u8]) {
        self.service.current().malformed(&self.connection, reason, status, line);
    }

    /// As [`Self::refused`], for a request over HTTP/1.1 at the front of `input`.
    pub(super) fn refused_http1(&self, error: MalformedRequest, input: &[u8]) {
        tracing::debug!(%error, "what a client sent is no request");
        let status = error.status().map_or(0, |status| status.as_u16());
        self.refused(error.reason(), status, first_line(input));
    }
}

/// The first line of `input` that is not empty, without its end.
fn first_line(input: &[u8]) -> &[u8] {
    let ends = |byte: &u8| matches!(byte, b'\r' | b'\n');
    // RFC 9112 section 2.2: empty lines before a request line are ignored, also in the log.
    let begin = input.iter().position(|byte| !ends(byte)).unwrap_or(input.len());
    let line = &input[begin..];
    let length = line.iter().take(LINE).position(ends).unwrap_or(line.len().min(LINE));
    &line[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_bounded_and_has_no_end() {
        assert_eq!(first_line(b"\r\nGET / HTTP/1.1\r\nHost: a"), b"GET / HTTP/1.1");
        assert_eq!(first_line(b"GET\nX"), b"GET");
        assert_eq!(first_line(b"\r\n"), b"");
        assert_eq!(first_line(&[b'a'; 1000]).len(), LINE);
    }
}
