//! Conditions and ranges of requests for a file, compared with a model.
#![expect(
    clippy::match_bool,
    clippy::naive_bytecount,
    clippy::manual_ignore_case_cmp,
    clippy::option_option,
    clippy::nonminimal_bool,
    reason = "a model as plain as the RFC, beside the code that it judges"
)]

use std::time::{Duration, SystemTime};

use http::{HeaderName, HeaderValue, header};

use crate::conditional::{Validators, Verdict};
use crate::message::{HeaderList, Request};
use crate::ranges::{Ranges, Selection};

/// Tag of the file.
const TAG: &[u8] = b"\"a,b\"";
const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// The first line is the length of a file, the others are headers of a request. The conditions have the result of a model that
/// searches the tag in the text, and each byte is selected if a range contains its position.
pub fn conditions(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let length = lines.next().and_then(|line| std::str::from_utf8(line).ok()?.parse::<u8>().ok());
    let length = u64::from(length.unwrap_or(10));
    let mut request = Request::new(()).into_parts().0;
    request.headers = headers(lines);
    let headers = &request.headers;
    let modified = httpdate::parse_http_date(MODIFIED).expect("a date");
    let validators = Validators { tag: Some(TAG), modified: Some(modified) };
    assert_eq!(validators.evaluate(headers), expected(headers, modified));
    let now = modified + Duration::from_mins(1);
    assert_eq!(validators.permit_range(headers, now), permits_range(headers, modified));
    let sets: Vec<_> = headers.get_all(header::RANGE).collect();
    let wanted = if let [set] = sets[..] { wanted(set, length) } else { None };
    let selected = Ranges::of(&request).map(|ranges| ranges.select(length));
    assert_eq!(selected.is_some(), wanted.is_some());
    if let (Some(selected), Some(wanted)) = (selected, wanted) {
        check(selected, &wanted, length);
    }
}

fn headers<'a>(lines: impl Iterator<Item = &'a [u8]>) -> HeaderList {
    let mut headers = HeaderList::new();
    for line in lines.take(50) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

/// RFC 9110 section 13.2.2.
fn expected(headers: &HeaderList, modified: SystemTime) -> Verdict {
    let date = |name| date(headers, name);
    let is_failed = match headers.contains_key(header::IF_MATCH) {
        true => !lists_tag(headers, header::IF_MATCH, false),
        false => date(header::IF_UNMODIFIED_SINCE).is_some_and(|date| date < modified),
    };
    let is_known = match headers.contains_key(header::IF_NONE_MATCH) {
        true => lists_tag(headers, header::IF_NONE_MATCH, true),
        false => date(header::IF_MODIFIED_SINCE).is_some_and(|date| date >= modified),
    };
    match (is_failed, is_known) {
        (true, _) => Verdict::Failed,
        (false, true) => Verdict::NotModified,
        (false, false) => Verdict::Perform,
    }
}

fn date(headers: &HeaderList, name: HeaderName) -> Option<SystemTime> {
    let values: Vec<_> = headers.get_all(name).collect();
    let [value] = values[..] else { return None };
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

/// Whether the list has the tag between commas, outside of other quotes.
fn lists_tag(headers: &HeaderList, name: HeaderName, weak: bool) -> bool {
    let lines: Vec<_> = headers.get_all(name).map(HeaderValue::as_bytes).collect();
    if lines.len() == 1 && lines[0] == b"*" {
        return true;
    }
    lines.into_iter().any(|line| {
        memchr::memmem::find_iter(line, TAG).any(|at| {
            let (before, after) = (&line[..at], line[at + TAG.len()..].trim_ascii_start());
            let is_outside = before.iter().filter(|byte| **byte == b'"').count() % 2 == 0;
            let before = if weak { before.strip_suffix(b"W/").unwrap_or(before) } else { before };
            let before = before.trim_ascii_end();
            let is_first = before.is_empty() || before.ends_with(b",");
            is_outside && is_first && (after.is_empty() || after.starts_with(b","))
        })
    })
}

fn permits_range(headers: &HeaderList, modified: SystemTime) -> bool {
    let values: Vec<_> = headers.get_all(header::IF_RANGE).collect();
    match values[..] {
        [] => true,
        [value] => value == TAG || date(headers, header::IF_RANGE) == Some(modified),
        _ => false,
    }
}

/// The bytes that a set of ranges names, and whether one is a suffix with bytes; `None` if the set is invalid.
fn wanted(set: &HeaderValue, length: u64) -> Option<(Vec<bool>, bool)> {
    let (unit, set) = set.to_str().ok()?.split_once('=')?;
    let members: Vec<_> = set.split(',').map(str::trim).filter(|member| !member.is_empty()).collect();
    if unit.to_ascii_lowercase() != "bytes" || members.is_empty() || members.len() > 100 {
        return None;
    }
    let (mut bytes, mut has_suffix) = (vec![false; length as usize], false);
    for member in members {
        let (first, last) = member.split_once('-')?;
        let range = match (numeral(first)?, numeral(last)?) {
            (None, None) => return None,
            (None, Some(suffix)) => {
                has_suffix |= suffix > 0;
                u128::from(length).saturating_sub(suffix)..=u128::MAX
            }
            (Some(first), last) => first..=last.unwrap_or(u128::MAX),
        };
        if range.is_empty() {
            return None;
        }
        for (position, byte) in bytes.iter_mut().enumerate() {
            *byte |= range.contains(&(position as u128));
        }
    }
    Some((bytes, has_suffix))
}

/// The inner `None` is an empty text, the outer one a text with other characters. Above 64 bits all numbers are equal.
fn numeral(text: &str) -> Option<Option<u128>> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = text.trim_start_matches('0');
    let number = if digits.len() > 30 { u128::MAX } else { digits.parse().unwrap_or_default() };
    Some((!text.is_empty()).then_some(number.min(u128::from(u64::MAX))))
}

/// Number of parts of wanted bytes.
fn runs(bytes: &[bool]) -> usize {
    bytes.split(|is_wanted| !is_wanted).filter(|part| !part.is_empty()).count()
}

fn check(selected: Selection, (bytes, has_suffix): &(Vec<bool>, bool), length: u64) {
    match selected {
        Selection::Part(part) => {
            assert!(*part.end() < length);
            let mut bytes = (0_u64..).zip(bytes);
            assert!(bytes.all(|(position, is_wanted)| *is_wanted == part.contains(&position)));
        }
        Selection::Unsatisfiable => assert!(!bytes.contains(&true) && !(length == 0 && *has_suffix)),
        Selection::Whole if length == 0 => assert!(*has_suffix),
        Selection::Whole => assert!(runs(bytes) > 8),
        Selection::Parts(parts) => {
            assert!(parts.len() > 1 && parts.len() <= 8 && parts.len() == runs(bytes));
            let positions = parts.iter().cloned().flatten();
            assert_eq!(positions.clone().count(), bytes.iter().filter(|is_wanted| **is_wanted).count());
            assert!(positions.into_iter().all(|position| bytes[position as usize]));
        }
    }
}
