//! Responses of application servers: records of FastCGI, and heads of CGI.

use bytes::BytesMut;
use http::Method;

use crate::cgi::fastcgi::{RecordFault, Records};
use crate::http1::HeadLimits;
use crate::http1::response::ResponseHead;

const LIMITS: HeadLimits = HeadLimits { size: 4096, lines: 20 };

/// Records of a server yield the same response, messages and error when split over reads; no more bytes of a response appear than
/// were received; an end of the response is an end.
pub fn fastcgi(bytes: &[u8]) {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let whole = read_records(bytes, bytes.len().max(1));
    assert_eq!(read_records(bytes, usize::from(step) + 1), whole);
    let (content, ..) = &whole;
    assert!(content.len() <= bytes.len());
}

type Read = (Vec<u8>, Option<(Vec<u8>, usize)>, bool, usize, Option<RecordFault>);

/// Reads records from pieces of `step` bytes: content, messages, whether the response has ended, bytes after it, and the error.
fn read_records(bytes: &[u8], step: usize) -> Read {
    let (mut records, mut input, mut out) = (Records::default(), BytesMut::new(), BytesMut::new());
    records.begin();
    let mut fault = None;
    for piece in bytes.chunks(step) {
        input.extend_from_slice(piece);
        fault = records.decode(&mut input, &mut out).err();
        if fault.is_some() {
            break;
        }
        assert!(records.is_idle() || input.len() < 8);
    }
    let rest = if fault.is_some() { 0 } else { input.len() };
    (out.to_vec(), records.take_messages(), records.is_idle(), rest, fault)
}

/// A head of CGI is the same, or an error, when split over reads, keeps to its limits, and has a final status.
pub fn cgi_head(bytes: &[u8]) {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let whole = read_head(bytes, bytes.len().max(1));
    assert_eq!(read_head(bytes, usize::from(step) + 1), whole);
    if let Some(Some((status, lines, _))) = whole {
        assert!((200..=999).contains(&status) && lines.len() <= LIMITS.lines);
    }
}

type Head = Option<(u16, Vec<(String, Vec<u8>)>, usize)>;

/// Reads a head from pieces of `step` bytes: status, headers, and the number of bytes after it. `None` for an error.
fn read_head(bytes: &[u8], step: usize) -> Option<Head> {
    let (mut input, mut taken) = (BytesMut::new(), 0);
    for piece in bytes.chunks(step) {
        input.extend_from_slice(piece);
        taken += piece.len();
        if let Some(head) = ResponseHead::take_cgi(&mut input, &Method::GET, LIMITS).ok()? {
            let lines = head.headers.iter();
            let lines = lines.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
            return Some(Some((head.status.as_u16(), lines, bytes.len() - taken + input.len())));
        }
    }
    Some(None)
}
