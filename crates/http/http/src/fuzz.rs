//! Properties of arbitrary HTTP/1.1 messages, paths, conditions and ranges, checked by tests and by libFuzzer.

mod applications;
mod conditions;
mod requests;
mod response;

use http::HeaderValue;
use http::uri::PathAndQuery;

use crate::message::HeaderList;
use crate::path::RequestPath;
use crate::trace_context::{TRACEPARENT, TRACESTATE, TraceContext};

pub use applications::{cgi_head, fastcgi};
pub use conditions::conditions;
pub use requests::requests as request;
pub use response::response;

/// A path has the same meaning for routes as for a server that decodes the forwarded path once, merges slashes and drops
/// parameters; reading the forwarded path again does not change it.
pub fn path(bytes: &[u8]) {
    let Ok(target) = PathAndQuery::try_from(bytes) else { return };
    let Ok(path) = RequestPath::read(target.path()) else { return };
    let again = RequestPath::read(&path.forwarded).expect("what is forwarded is unambiguous");
    assert_eq!((&again.decoded, &again.forwarded), (&path.decoded, &path.forwarded));
    assert_eq!(trimmed(&path.decoded), trimmed(&as_a_server_reads(&path.forwarded)));
    assert!(!path.decoded.contains(&b'\\') && !path.decoded.iter().any(u8::is_ascii_control));
    let mut segments = path.decoded.split(|byte| *byte == b'/');
    assert!(segments.all(|segment| segment != b"." && segment != b".." && !segment.contains(&b';')));
    if let Ok(below) = path.below("/a") {
        assert!(below.starts_with('/'));
    }
}

/// The first line is `traceparent`, the second `tracestate`. A trace that is continued is read again with the same ID and the
/// written operation, and the state stays as it was or is removed.
pub fn trace_context(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n').map(HeaderValue::from_bytes);
    let Some(Ok(parent)) = lines.next() else { return };
    let mut headers = HeaderList::from_iter([(TRACEPARENT, parent)]);
    let state = lines.next().and_then(Result::ok);
    headers.extend(state.clone().map(|state| (TRACESTATE, state)));
    let Some(trace) = TraceContext::of(&headers) else { return };
    trace.write(7, true, &mut headers);
    let again = TraceContext::of(&headers).expect("what is written can be read");
    assert_eq!((again.id, again.parent()), (trace.id, Some(7)));
    assert_eq!(again.is_recorded(), trace.is_recorded());
    assert!(headers.get(TRACESTATE).is_none_or(|kept| Some(kept) == state.as_ref()));
}

fn as_a_server_reads(path: &str) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        decoded.push(match (first, after) {
            (b'%', [high, low, beyond @ ..]) => {
                rest = beyond;
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("digits");
                u8::from_str_radix(digits, 16).expect("hexadecimal")
            }
            _ => *first,
        });
    }
    let names = decoded.split(|byte| *byte == b'/').map(|segment| {
        let end = segment.iter().position(|byte| *byte == b';').unwrap_or(segment.len());
        &segment[..end]
    });
    names.filter(|name| !name.is_empty()).flat_map(|name| [b"/", name].concat()).collect()
}

fn trimmed(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_trace_context() {
        drive("trace_context", &[], super::trace_context);
    }

    #[test]
    fn fuzz_conditions() {
        let words: &[&[u8]] = &[
            b"Range: bytes=",
            b"If-Match: ",
            b"If-None-Match: ",
            b"If-Range: ",
            b"If-Modified-Since: ",
            b"If-Unmodified-Since: ",
            b"Sun, 06 Nov 1994 08:49:37 GMT",
            b"Sunday, 06-Nov-94 08:49:37 GMT",
            b"Sun Nov  6 08:49:37 1994",
            b"\"a,b\"",
            b"W/",
            b"18446744073709551616",
            b"0-",
            b"-1",
            b"9-9",
            b"*",
            b",",
            b"\"",
            b"\n",
        ];
        drive("conditions", words, super::conditions);
    }

    #[test]
    fn fuzz_path() {
        let words: &[&[u8]] = &[
            b"/", b"..", b".", b";", b"%2f", b"%5C", b"%2e", b"%3b", b"%25", b"//", b"/../", b"admin", b"\\",
        ];
        drive("path", words, super::path);
    }

    #[test]
    fn fuzz_request() {
        let lines: &[&[u8]] = &[
            b"https://b.example",
            b" HTTP/1.0\n",
            b"[::1]:1",
            b"//",
            b"*",
            b"@",
            b"GET / HTTP/1.1\r\n",
            b"POST /a HTTP/1.1\r\nHost: a\r\n",
            b"Content-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Transfer-Encoding: gzip, chunked\r\n",
            b"Connection: close\r\n",
            b"Expect: 100-continue\r\n",
            b"\r\n\r\n",
            b"5\r\nhello\r\n",
            b"0\r\n\r\n",
            b"0\r\na: b\r\n\r\n",
            b";a=b",
            b"CONNECT a:1",
        ];
        drive("request", lines, super::request);
    }

    #[test]
    fn fuzz_fastcgi() {
        let words: &[&[u8]] = &[
            b"\x01\x06\0\x01\0\x05\x03\0hello...",
            b"\x01\x06\0\x01\0\0\0\0",
            b"\x01\x07\0\x01\0\x04\0\0oops",
            b"\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0",
            b"\x01\x03\0\x01\0\x08\x01\0\0\0\0\x01\x02\0\0\0.",
            b"\x01\x06\0\x02",
            b"\xff\xff",
        ];
        drive("fastcgi", words, super::fastcgi);
    }

    #[test]
    fn fuzz_cgi_head() {
        let words: &[&[u8]] = &[
            b"Status: 404 Not Found\r\n",
            b"Status: 200\n",
            b"Location: /a\r\n",
            b"Content-Length: 5\r\n",
            b"Content-Type: text/html\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"\r\n\r\n",
            b"\n\n",
            b"Set-Cookie: a=b\r\n",
            b": ",
        ];
        drive("cgi_head", words, super::cgi_head);
    }

    #[test]
    fn fuzz_response() {
        let words: &[&[u8]] = &[
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.0 ",
            b"Content-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: close\r\n",
            b"\r\n\r\n",
            b"\r\n",
            b"\n",
            b"5\r\nhello\r\n",
            b"0\r\n\r\n",
            b";a=b",
            b"0\r\na: b\r\n\r\n",
            b"204",
            b"103",
            b", ",
        ];
        drive("response", words, super::response);
    }
}
