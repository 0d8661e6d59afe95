//! Parser for heads of HTTP/1.1 responses.

use httparse::{Header, Status};

use super::Body;
use crate::error::HttpError;
use crate::response::number;

/// The properties of a response head that determine the end of the response.
#[derive(Debug)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// Framing of the body; `None` if `Content-Length` is no number.
    pub body: Option<Body>,
    /// Whether the server closes the connection after the response, as with `Connection: close`.
    pub is_last: bool,
    /// Size of the head in bytes.
    pub len: usize,
    /// Number of header fields.
    pub fields: usize,
}

/// Parses the head at the beginning of `bytes`; `None` if it is incomplete. `is_head_request`: the request method was `HEAD`.
///
/// Fills the first [`Head::fields`] elements of `headers` and does not allocate. Fails if the bytes are not HTTP/1, or the
/// response has more fields than `headers` has elements.
pub fn parse_head<'b>(
    bytes: &'b [u8],
    headers: &mut [Header<'b>],
    is_head_request: bool,
) -> Result<Option<Head>, HttpError> {
    let mut response = httparse::Response::new(headers);
    let parsed = response.parse(bytes);
    let parsed = parsed.map_err(|error| HttpError::protocol(error.to_string()))?;
    let Status::Complete(len) = parsed else { return Ok(None) };
    let status = response.code.expect("a complete head has a status");
    let fields = &*response.headers;
    // RFC 9112 section 6.3: these responses have no body, even with a length.
    let body = if is_head_request || matches!(status, 100..200 | 204 | 304) {
        Some(Body::none())
    } else if has_token(fields, "transfer-encoding", "chunked") {
        // RFC 9112 section 6.3: `Transfer-Encoding` overrides `Content-Length`.
        Some(Body::chunked())
    } else {
        match fields.iter().find(|header| header.name.eq_ignore_ascii_case("content-length")) {
            Some(length) => number(length.value.trim_ascii()).map(Body::of_length),
            None => Some(Body::until_close()),
        }
    };
    // After 101 another protocol follows (RFC 9110 section 15.2.2).
    let is_last = status == 101
        // RFC 9112 section 9.3: HTTP/1.0 closes unless the connection is kept explicitly.
        || response.version == Some(0) && !has_token(fields, "connection", "keep-alive")
        || has_token(fields, "connection", "close")
        || body.as_ref().is_some_and(Body::ends_with_connection);
    Ok(Some(Head { status, body, is_last, len, fields: fields.len() }))
}

/// Whether a comma-separated field contains a token.
fn has_token(headers: &[Header<'_>], name: &str, token: &str) -> bool {
    let fields = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    let mut tokens = fields.flat_map(|header| header.value.split(|byte| *byte == b','));
    tokens.any(|value| value.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str, is_head_request: bool) -> Head {
        let mut headers = [httparse::EMPTY_HEADER; 8];
        parse_head(text.as_bytes(), &mut headers, is_head_request).expect("HTTP").expect("a whole head")
    }

    #[test]
    fn a_head_determines_the_end_of_the_response() {
        let length = head("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", false);
        assert_eq!((length.status, length.is_last, length.body), (200, false, Some(Body::of_length(5))));
        let chunked = head("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", false);
        assert_eq!(chunked.body, Some(Body::chunked()));
        let old = head("HTTP/1.0 200 OK\r\n\r\n", false);
        assert!(old.is_last && old.body.is_some_and(|body| body.ends_with_connection()));
        let close = head("HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", false);
        assert!(close.is_last && close.body.is_some_and(|body| body.is_complete()));
        for (text, is_head_request) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", false),
            ("HTTP/1.1 204 No Content\r\n\r\n", false),
        ] {
            assert!(head(text, is_head_request).body.is_some_and(|body| body.is_complete()), "{text}");
        }
    }

    #[test]
    fn a_malformed_head_is_an_error_and_a_wrong_length_leaves_the_head_readable() {
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let incomplete = parse_head(b"HTTP/1.1 200 OK\r\nA: b", &mut headers, false);
        assert!(incomplete.expect("the start of a head").is_none());
        let mut headers = [httparse::EMPTY_HEADER; 8];
        assert!(parse_head(b"HTTQ/1.1 200\r\n\r\n", &mut headers, false).is_err());
        for length in ["five", "+5", "-5", "5 5", ""] {
            let wrong = head(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"), false);
            assert_eq!((wrong.status, wrong.body), (200, None), "{length}");
        }
    }
}
