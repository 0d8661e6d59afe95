//! Heads of responses from application servers (RFC 3875 section 6): header lines with `Status` in place of a status line.

use bytes::{Bytes, BytesMut};
use http::{HeaderName, Method, StatusCode, header};

use super::{Facts, Line, ResponseHead};
use crate::http1::shared_head::SharedHead;
use crate::http1::{HeadLimits, LINES, MalformedResponse, place};
use crate::message::HeaderList;

/// The status of a response, and its reason, which is ignored.
const STATUS: HeaderName = HeaderName::from_static("status");

/// Begin of a status line, which some servers of uwsgi and SCGI send.
const HTTP: &[u8] = b"HTTP/";

impl ResponseHead {
    /// Takes the head of a CGI response to a request by `method` from the front of `input`; `None` if it is incomplete.
    ///
    /// Without `Status`, the status is `302` with `Location` and else `200`, as in nginx. A status line of HTTP/1.1 is accepted
    /// instead. The connection does not persist.
    ///
    /// # Errors
    ///
    /// [`MalformedResponse::HeadTooLarge`] above `limits`; [`MalformedResponse::Status`] for an interim response, which an
    /// application cannot send; the other errors for bytes that cannot become a head.
    pub fn take_cgi(
        input: &mut BytesMut,
        method: &Method,
        limits: HeadLimits,
    ) -> Result<Option<Self>, MalformedResponse> {
        let Some((stated, start)) = status_line(input, limits.size)? else { return Ok(None) };
        let Some((length, lines)) = lines(&input[start..], limits)? else { return Ok(None) };
        let head: Bytes = input.split_to(start + length).split_off(start).freeze();
        let mut facts = Facts::new();
        let mut headers = facts.read(&SharedHead::new(head), &lines)?;
        // RFC 3875 has no transfer codings: the body ends with its length or with the response.
        headers.remove(header::TRANSFER_ENCODING);
        let status = status(stated.as_ref(), &mut headers)?;
        facts.is_chunked = None;
        let body = facts.body(status, &mut headers, method, false)?;
        Ok(Some(Self { status, headers, body, persists: false }))
    }
}

/// The code of a status line and its length; no code and 0 for a head without one, `None` if it is incomplete. Servers repeat the
/// version of the request, so it can be any.
fn status_line(input: &[u8], limit: usize) -> Result<Option<(Option<Bytes>, usize)>, MalformedResponse> {
    let common = input.len().min(HTTP.len());
    // A short input that may still become `HTTP/` waits for the end of its line.
    if input[..common] != HTTP[..common] {
        return Ok(Some((None, 0)));
    }
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return if input.len() < limit { Ok(None) } else { Err(MalformedResponse::HeadTooLarge) };
    };
    let code = input[..end].trim_ascii_end().split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    Ok(Some((Some(Bytes::copy_from_slice(code)), end + 1)))
}

/// Length of a head, and the positions of its lines; `None` if it is incomplete.
fn lines(input: &[u8], limits: HeadLimits) -> Result<Option<(usize, Vec<Line>)>, MalformedResponse> {
    let mut usual = [httparse::EMPTY_HEADER; LINES];
    let mut more = Vec::new();
    let parsed = usual.get_mut(..limits.lines).unwrap_or_else(|| {
        more.resize(limits.lines, httparse::EMPTY_HEADER);
        &mut more
    });
    match httparse::parse_headers(input, parsed) {
        Ok(httparse::Status::Complete((length, headers))) if length <= limits.size => {
            let line = |header: &httparse::Header<'_>| Line {
                name: place(header.name.as_bytes(), input),
                value: place(header.value, input),
            };
            Ok(Some((length, headers.iter().map(line).collect())))
        }
        Ok(httparse::Status::Partial) if input.len() < limits.size => Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => Err(MalformedResponse::HeadTooLarge),
        Err(error) => Err(MalformedResponse::Head(error)),
    }
}

/// The status: that of the status line, or of `Status`, which is removed from `headers`, or by `Location`.
fn status(stated: Option<&Bytes>, headers: &mut HeaderList) -> Result<StatusCode, MalformedResponse> {
    let field = headers.remove(STATUS);
    let code = match (stated, &field) {
        (Some(code), _) => code,
        (None, Some(status)) => status.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default(),
        (None, None) if headers.contains_key(header::LOCATION) => return Ok(StatusCode::FOUND),
        (None, None) => return Ok(StatusCode::OK),
    };
    let status = StatusCode::from_bytes(code).map_err(|_| MalformedResponse::Status)?;
    if status.is_informational() { Err(MalformedResponse::Status) } else { Ok(status) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::body::BodyReader;

    const LIMITS: HeadLimits = HeadLimits { size: 1000, lines: 10 };

    fn take(text: &str, method: &Method) -> Result<Option<(ResponseHead, BytesMut)>, MalformedResponse> {
        let mut input = BytesMut::from(text);
        Ok(ResponseHead::take_cgi(&mut input, method, LIMITS)?.map(|head| (head, input)))
    }

    fn head(text: &str) -> ResponseHead {
        take(text, &Method::GET).expect("a head").expect("all of it").0
    }

    #[test]
    fn a_head_is_taken_once_all_of_it_has_come() {
        let text = "Status: 404 Not Found\r\nContent-Length: 5\nX-A: 1\r\n\r\nhello";
        for length in 0..text.len() - 5 {
            assert!(take(&text[..length], &Method::GET).expect("no error").is_none(), "{length}");
        }
        let (head, rest) = take(text, &Method::GET).expect("a head").expect("all of it");
        assert_eq!((head.status, head.body.left(), head.persists), (StatusCode::NOT_FOUND, Some(5), false));
        assert_eq!(
            head.headers.names().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["content-length", "x-a"]
        );
        assert_eq!(&rest[..], b"hello");
    }

    #[test]
    fn a_missing_status_follows_from_the_location() {
        assert_eq!(head("X-A: 1\r\n\r\n").status, StatusCode::OK);
        assert_eq!(head("\r\n").status, StatusCode::OK);
        assert_eq!(head("Location: https://a.test/\r\n\r\n").status, StatusCode::FOUND);
        let local = head("Location: /b\r\nStatus: 301\r\n\r\n");
        assert_eq!(
            (local.status, &local.headers["location"]),
            (StatusCode::MOVED_PERMANENTLY, &"/b".parse().expect("a value"))
        );
        for line in ["HTTP/1.1 201 Created\r\n", "HTTP/2.0 201\n", "HTTP/3 201 Created\r\nStatus: 404\r\n"] {
            assert_eq!(head(&format!("{line}\r\n")).status, StatusCode::CREATED, "{line}");
        }
    }

    #[test]
    fn the_body_ends_by_its_length_or_with_the_response() {
        for open in ["X-A: 1\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"] {
            assert!(matches!(head(open).body, BodyReader::UntilClose));
        }
        assert_eq!(head("Status: 304\r\n\r\n").body.left(), Some(0));
        let (head, _) = take("X-A: 1\r\n\r\n", &Method::HEAD).expect("a head").expect("all of it");
        assert!(head.body.is_ended());
    }

    #[test]
    fn what_is_no_head_is_refused() {
        let refused = |text: &str| take(text, &Method::GET).expect_err("no head");
        for status in ["", "2", "abc", "99", "101", "1000", "-200"] {
            assert_eq!(refused(&format!("Status: {status}\r\n\r\n")), MalformedResponse::Status, "{status}");
        }
        assert_eq!(refused("HTTP/1.1 101 Switch\r\n\r\n"), MalformedResponse::Status);
        assert!(matches!(refused("<html>\r\n"), MalformedResponse::Head(_)));
        assert!(matches!(refused("A: b\0\r\n"), MalformedResponse::Head(_)));
        assert_eq!(refused(&"A: b\r\n".repeat(11)), MalformedResponse::HeadTooLarge);
        assert_eq!(refused(&format!("A: {}", "x".repeat(1000))), MalformedResponse::HeadTooLarge);
        assert_eq!(refused("Content-Length: 4\r\nContent-Length: 5\r\n\r\n"), MalformedResponse::Length);
    }
}
