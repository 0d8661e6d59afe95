//! The part of a file that a request selects by its conditions (RFC 9110 section 13) and ranges (section 14).
//!
//! `ServeDir` gets no condition and at most one range per lookup, whose positions are known to be inside the file, since it
//! understands only some forms of both. Conditions are evaluated for the file that it has found.

use std::ops::RangeInclusive;
use std::time::SystemTime;

use brisk_http::conditional::{Validators, Verdict};
use brisk_http::message::{HeaderList, RequestParts, Response};
use brisk_http::ranges::{Ranges, Selection};
use brisk_transform::body::Body;
use http::{HeaderValue, StatusCode, header};

use super::{Files, multipart, status};

/// Responds to `request` with a file of `files`, looked up with `asked`. `ranges` are those of the request, and `kind` is the media type
/// in place of the usual one.
pub(super) async fn answer(
    files: &Files,
    request: &RequestParts,
    mut asked: http::Request<()>,
    (ranges, kind): (Option<&Ranges>, Option<&HeaderValue>),
) -> Response<Body> {
    // Most ranges are inside of the file and unconditional, so the first lookup suffices.
    let is_likely = !request.headers.contains_key(header::IF_RANGE);
    let mut part = ranges.filter(|_| is_likely).and_then(Ranges::only);
    // A file that changes between lookups is sent as a whole in the end.
    for ranges in [ranges, ranges, None] {
        let wanted = part.take().filter(|_| ranges.is_some());
        // The range of the former lookup must not stay.
        asked.headers_mut().remove(header::RANGE);
        if let Some(range) = &wanted {
            asked.headers_mut().insert(header::RANGE, range_value(range));
        }
        let mut response = files.find(asked.clone()).await;
        let Some(found) = Found::of(&mut response, kind) else { return response };
        match found.select(request, ranges) {
            Selected::Status(status) => return without_body(status, &found, response),
            Selected::Whole if response.status() == StatusCode::OK => return response,
            Selected::Part(range) if found.part.as_ref() == Some(&range) => return response,
            Selected::Part(range) => part = Some(range),
            Selected::Parts(parts) if response.status() == StatusCode::OK => {
                return multipart::answer(files, &asked, (found, response), &parts);
            }
            Selected::Whole | Selected::Parts(_) => {}
        }
    }
    status(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The file that a lookup has found.
#[derive(Debug)]
pub(super) struct Found {
    tag: Option<HeaderValue>,
    modified: Option<SystemTime>,
    pub(super) length: u64,
    /// The positions in the response, if it has a part of the file.
    pub(super) part: Option<RangeInclusive<u64>>,
    /// Whether it is a compressed copy.
    is_encoded: bool,
    now: SystemTime,
}

/// Response to a request for a file.
#[derive(Debug)]
enum Selected {
    Whole,
    Part(RangeInclusive<u64>),
    Parts(Vec<RangeInclusive<u64>>),
    /// A status without the file: `304`, `412` or `416`.
    Status(StatusCode),
}

impl Found {
    /// Reads and completes the headers of a response, with `kind` in place of the usual media type; `None` if it has no file.
    pub(super) fn of(response: &mut Response<Body>, kind: Option<&HeaderValue>) -> Option<Self> {
        let (length, part) = match response.status() {
            StatusCode::OK => (number(response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?)?, None),
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                content_range(response.headers())?
            }
            _ => return None,
        };
        let headers = response.headers_mut();
        // Before the tag is read below: the tag of a copy differs from that of the file.
        mark_coding(headers);
        if let Some(kind) = kind {
            headers.insert(header::CONTENT_TYPE, kind.clone());
        }
        let now = SystemTime::now();
        let modified = headers.get(header::LAST_MODIFIED).and_then(|date| date.to_str().ok());
        let modified = modified.and_then(|date| httpdate::parse_http_date(date).ok());
        // RFC 9110 section 8.8.2.1: a time in the future is replaced by that of the response.
        if modified.is_some_and(|modified| modified > now)
            && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(now))
        {
            headers.insert(header::LAST_MODIFIED, date);
        }
        let (tag, is_encoded) =
            (headers.get(header::ETAG).cloned(), headers.contains_key(header::CONTENT_ENCODING));
        Some(Self { tag, modified, length, part, is_encoded, now })
    }

    /// Whether two lookups have found the same content.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        (&self.tag, self.modified, self.length) == (&other.tag, other.modified, other.length)
    }

    fn select(&self, request: &RequestParts, ranges: Option<&Ranges>) -> Selected {
        let tag = self.tag.as_ref().map(HeaderValue::as_bytes);
        let validators = Validators { tag, modified: self.modified };
        match validators.evaluate(&request.headers) {
            Verdict::Perform => {}
            Verdict::NotModified => return Selected::Status(StatusCode::NOT_MODIFIED),
            Verdict::Failed => return Selected::Status(StatusCode::PRECONDITION_FAILED),
        }
        let ranges = ranges.filter(|_| validators.permit_range(&request.headers, self.now));
        match ranges.map(|ranges| ranges.select(self.length)) {
            None | Some(Selection::Whole) => Selected::Whole,
            Some(Selection::Part(range)) => Selected::Part(range),
            // The headers of a part have no coding.
            Some(Selection::Parts(_)) if self.is_encoded => Selected::Whole,
            Some(Selection::Parts(parts)) => Selected::Parts(parts),
            Some(Selection::Unsatisfiable) => Selected::Status(StatusCode::RANGE_NOT_SATISFIABLE),
        }
    }
}

/// The response with `status` in place of the file.
fn without_body(status: StatusCode, found: &Found, response: Response<Body>) -> Response<Body> {
    let (mut parts, _) = response.into_parts();
    parts.status = status;
    // RFC 9110 section 15.4.5: a 304 has the validators and `Vary`, but no metadata of the content.
    for name in [
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::ACCEPT_RANGES,
    ] {
        parts.headers.remove(name);
    }
    match status {
        StatusCode::RANGE_NOT_SATISFIABLE => {
            let range = HeaderValue::try_from(format!("bytes */{}", found.length)).expect("digits");
            parts.headers.insert(header::CONTENT_RANGE, range);
            parts.headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        }
        StatusCode::PRECONDITION_FAILED => parts.headers.clear(),
        _ => {}
    }
    Response::from_parts(parts, Body::Empty)
}

/// Adds the content coding of a copy to its tag. Copies may have the time and the length of each other or of the file, from
/// which `ServeDir` forms tags, but different content has different strong tags (RFC 9110 section 8.8.3.3).
fn mark_coding(headers: &mut HeaderList) {
    let (Some(coding), Some(tag)) = (headers.get(header::CONTENT_ENCODING), headers.get(header::ETAG)) else {
        return;
    };
    let Some(opaque) = tag.as_bytes().strip_suffix(b"\"") else { return };
    if let Ok(tag) = HeaderValue::from_bytes(&[opaque, b"-", coding.as_bytes(), b"\""].concat()) {
        headers.insert(header::ETAG, tag);
    }
}

pub(super) fn range_value(range: &RangeInclusive<u64>) -> HeaderValue {
    HeaderValue::try_from(format!("bytes={}-{}", range.start(), range.end())).expect("digits")
}

/// Length of the file and positions in the response, from `Content-Range` (RFC 9110 section 14.4).
fn content_range(headers: &HeaderList) -> Option<(u64, Option<RangeInclusive<u64>>)> {
    let value = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, length) = value.strip_prefix("bytes ")?.split_once('/')?;
    // A 416 has `*` in place of positions.
    let part = range.split_once('-').and_then(|(first, last)| Some(number(first)?..=number(last)?));
    Some((number(length)?, part))
}

fn number(digits: &str) -> Option<u64> {
    digits.parse().ok()
}
