//! Conditions of requests (RFC 9110 section 13), evaluated for the representation that would be sent.
//!
//! The lines of `If-Match` and of `If-None-Match` are one list each (section 5.3). Members that are not entity tags match nothing.
//! Dates have one of the three formats of section 5.6.7; invalid or repeated ones are ignored.

use std::time::{Duration, SystemTime};

use http::{HeaderName, HeaderValue, header};

use crate::message::HeaderList;

/// Headers of a request about a part of a representation, or about a copy that the client has: without them, the response is the
/// whole representation.
pub const OF_COPIES: [HeaderName; 6] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// Validators of the representation that would be sent (RFC 9110 section 8.8).
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// `ETag`, with its quotes.
    pub tag: Option<&'a [u8]>,
    /// `Last-Modified`.
    pub modified: Option<SystemTime>,
}

/// Result of the conditions of a request with `GET` or `HEAD`, from [`Validators::evaluate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is performed.
    Perform,
    /// The client has the representation: status `304`.
    NotModified,
    /// A precondition is false: status `412`.
    Failed,
}

impl Validators<'_> {
    /// Evaluates the conditions in `headers`, in the order of RFC 9110 section 13.2.2.
    pub fn evaluate(&self, headers: &HeaderList) -> Verdict {
        // RFC 9110 sections 13.1.3 and 13.1.4: a date is ignored beside the entity tags of its direction.
        if headers.contains_key(header::IF_MATCH) {
            if !self.matches(headers.get_all(header::IF_MATCH), Comparison::Strong) {
                return Verdict::Failed;
            }
        } else if self.was_modified_since(headers, &header::IF_UNMODIFIED_SINCE) == Some(true) {
            return Verdict::Failed;
        }
        let is_known = if headers.contains_key(header::IF_NONE_MATCH) {
            self.matches(headers.get_all(header::IF_NONE_MATCH), Comparison::Weak)
        } else {
            self.was_modified_since(headers, &header::IF_MODIFIED_SINCE) == Some(false)
        };
        if is_known { Verdict::NotModified } else { Verdict::Perform }
    }

    /// Whether a range of the representation may be sent: `If-Range` is absent, or names it (RFC 9110 section 13.1.5).
    pub fn permit_range(&self, headers: &HeaderList, now: SystemTime) -> bool {
        let mut lines = headers.get_all(header::IF_RANGE);
        let condition = match (lines.next(), lines.next()) {
            (None, _) => return true,
            (Some(condition), None) => condition.as_bytes(),
            // RFC 9110 section 13.1.5: several validators are invalid, and the whole representation is always
            // correct.
            (Some(_), Some(_)) => return false,
        };
        // An entity tag ends with a quote, and no date does.
        if condition.ends_with(b"\"") {
            return self.tag.is_some_and(|tag| Comparison::Strong.are_equal(tag, condition));
        }
        // RFC 9110 section 8.8.2.2: a date is strong only after its second has passed.
        let is_strong = |modified| now >= modified + Duration::from_secs(1);
        let date = std::str::from_utf8(condition).ok().and_then(|text| httpdate::parse_http_date(text).ok());
        // RFC 9110 section 13.1.5: only the exact date matches. An earlier or later one proves nothing.
        date.is_some() && self.modified == date && date.is_some_and(is_strong)
    }

    /// Whether a member of the list in `lines` is the tag, or the list is `*`, which any representation matches.
    fn matches<'v>(&self, lines: impl IntoIterator<Item = &'v HeaderValue>, comparison: Comparison) -> bool {
        let mut lines = lines.into_iter();
        let (first, second) = (lines.next(), lines.next());
        // RFC 9110 section 13.1.1: `*` is valid only alone.
        if second.is_none() && first.is_some_and(|line| line.as_bytes().trim_ascii() == b"*") {
            return true;
        }
        let is_own = |tag| self.tag.is_some_and(|own| comparison.are_equal(own, tag));
        let lines = first.into_iter().chain(second).chain(lines);
        lines.flat_map(|line| Tags(line.as_bytes())).any(is_own)
    }

    /// Whether the representation is newer than the date in `name`; `None` if the condition is absent, invalid, or impossible to
    /// evaluate.
    fn was_modified_since(&self, headers: &HeaderList, name: &HeaderName) -> Option<bool> {
        let mut lines = headers.get_all(name);
        // RFC 9110 sections 13.1.3 and 13.1.4: more than one member is invalid.
        let (Some(line), None) = (lines.next(), lines.next()) else { return None };
        let date = httpdate::parse_http_date(line.to_str().ok()?).ok()?;
        Some(self.modified? > date)
    }
}

/// Whether the client has the representation with `tag`, by the lines of `If-None-Match`.
pub fn is_known<'v>(lines: impl IntoIterator<Item = &'v HeaderValue>, tag: &[u8]) -> bool {
    let validators = Validators { tag: Some(tag), modified: None };
    validators.matches(lines, Comparison::Weak)
}

/// Comparison of entity tags (RFC 9110 section 8.8.3.2).
#[derive(Clone, Copy, Debug)]
enum Comparison {
    Strong,
    Weak,
}

impl Comparison {
    fn are_equal(self, one: &[u8], other: &[u8]) -> bool {
        match self {
            Self::Strong => one == other && !one.starts_with(b"W/"),
            Self::Weak => opaque(one) == opaque(other),
        }
    }
}

fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The entity tags in a line of a list, with quotes. Commas inside quotes separate nothing (RFC 9110 section 8.8.3).
#[derive(Clone, Debug)]
pub struct Tags<'a>(pub &'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.0.is_empty() {
            let (member, rest) = first_member(self.0);
            self.0 = rest;
            if is_tag(member) {
                return Some(member);
            }
        }
        None
    }
}

fn is_tag(member: &[u8]) -> bool {
    let inner = opaque(member).strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    inner.is_some_and(|inner| !inner.contains(&b'"'))
}

/// The first member of a list without white space around it, and the remainder after its comma.
fn first_member(list: &[u8]) -> (&[u8], &[u8]) {
    let mut is_quoted = false;
    let end = list.iter().position(|byte| {
        // RFC 9110 section 8.8.3: entity tags have no escapes, so each quote begins or ends one.
        is_quoted ^= *byte == b'"';
        *byte == b',' && !is_quoted
    });
    let (member, rest) = end.map_or((list, &b""[..]), |end| (&list[..end], &list[end + 1..]));
    (member.trim_ascii(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn headers(lines: &[(&'static str, &str)]) -> HeaderList {
        let mut headers = HeaderList::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        }
        headers
    }

    fn then() -> SystemTime {
        httpdate::parse_http_date(THEN).expect("a date")
    }

    fn verdict(lines: &[(&'static str, &str)]) -> Verdict {
        let validators = Validators { tag: Some(b"\"a,b\""), modified: Some(then()) };
        validators.evaluate(&headers(lines))
    }

    #[test]
    fn if_none_match_compares_weakly_and_joins_its_lines() {
        let known = |values: &[&str]| {
            let lines: Vec<_> = values.iter().map(|value| ("if-none-match", *value)).collect();
            verdict(&lines) == Verdict::NotModified
        };
        for values in [
            &["\"a,b\""][..],
            &["W/\"a,b\""],
            &["*"],
            &[" * "],
            &["\"x\", \"a,b\""],
            &["\"x\",\"y,\" ,\t W/\"a,b\""],
            &[",, ,\"a,b\","],
            &["\"x\"", "\"a,b\""],
            &["\"a,b\"", "\"x\""],
            &["unquoted, \"a,b\""],
        ] {
            assert!(known(values), "{values:?}");
        }
        for values in [
            &["\"a\""][..],
            &["\"a", "b\""],
            &["a,b"],
            &["w/\"a,b\""],
            &["\"x\", *"],
            &["*", "*"],
            &["\"x\"\"a,b\""],
            &[""],
        ] {
            assert!(!known(values), "{values:?}");
        }
    }

    #[test]
    fn if_match_compares_strongly_and_joins_its_lines() {
        let holds = |values: &[&str]| {
            let lines: Vec<_> = values.iter().map(|value| ("if-match", *value)).collect();
            verdict(&lines) == Verdict::Perform
        };
        for values in [&["\"a,b\""][..], &["*"], &["\"x\"", "\"a,b\""], &["W/\"a,b\", \"a,b\""]] {
            assert!(holds(values), "{values:?}");
        }
        for values in [&["W/\"a,b\""][..], &["\"x\""], &[""], &["\"x\"", "\"y\""]] {
            assert!(!holds(values), "{values:?}");
        }
        let weak = Validators { tag: Some(b"W/\"x\""), modified: None };
        assert_eq!(weak.evaluate(&headers(&[("if-match", "W/\"x\"")])), Verdict::Failed);
        let without = Validators { tag: None, modified: None };
        assert_eq!(without.evaluate(&headers(&[("if-match", "*")])), Verdict::Perform);
    }

    #[test]
    fn dates_are_compared_in_all_formats_and_ignored_if_invalid() {
        for date in [
            THEN,
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Fri, 01 Jan 2100 00:00:00 GMT",
        ] {
            assert_eq!(verdict(&[("if-modified-since", date)]), Verdict::NotModified, "{date}");
            assert_eq!(verdict(&[("if-unmodified-since", date)]), Verdict::Perform, "{date}");
        }
        let earlier = "Sun, 06 Nov 1994 08:49:36 GMT";
        assert_eq!(verdict(&[("if-modified-since", earlier)]), Verdict::Perform);
        assert_eq!(verdict(&[("if-unmodified-since", earlier)]), Verdict::Failed);
        for invalid in
            ["", "0", "yesterday", "Mon, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 CET"]
        {
            assert_eq!(verdict(&[("if-modified-since", invalid)]), Verdict::Perform, "{invalid}");
            assert_eq!(verdict(&[("if-unmodified-since", invalid)]), Verdict::Perform, "{invalid}");
        }
        let twice = |name| [(name, earlier), (name, earlier)];
        assert_eq!(verdict(&twice("if-unmodified-since")), Verdict::Perform);
        assert_eq!(verdict(&[("if-modified-since", THEN), ("if-modified-since", THEN)]), Verdict::Perform);
    }

    #[test]
    fn conditions_have_an_order() {
        let (own, other) = ("\"a,b\"", "\"x\"");
        let earlier = "Sun, 06 Nov 1994 08:49:36 GMT";
        for (lines, expected) in [
            (&[("if-match", own), ("if-unmodified-since", earlier)][..], Verdict::Perform),
            (&[("if-match", other), ("if-unmodified-since", THEN)], Verdict::Failed),
            (&[("if-none-match", other), ("if-modified-since", THEN)], Verdict::Perform),
            (&[("if-none-match", own), ("if-modified-since", earlier)], Verdict::NotModified),
            (&[("if-match", other), ("if-none-match", own)], Verdict::Failed),
            (&[("if-match", own), ("if-none-match", own)], Verdict::NotModified),
            (&[("if-unmodified-since", earlier), ("if-none-match", own)], Verdict::Failed),
            (&[("if-none-match", "invalid"), ("if-modified-since", THEN)], Verdict::Perform),
        ] {
            assert_eq!(verdict(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn if_range_needs_a_strong_validator() {
        let day = Duration::from_hours(24);
        let permits = |lines: &[&str], now| {
            let validators = Validators { tag: Some(b"\"a\""), modified: Some(then()) };
            let lines: Vec<_> = lines.iter().map(|line| ("if-range", *line)).collect();
            validators.permit_range(&headers(&lines), now)
        };
        let now = then() + day;
        for lines in [&[][..], &["\"a\""], &[THEN], &["Sun Nov  6 08:49:37 1994"]] {
            assert!(permits(lines, now), "{lines:?}");
        }
        for lines in [
            &["\"b\""][..],
            &["W/\"a\""],
            &["\"a\", \"b\""],
            &["*"],
            &["Sun, 06 Nov 1994 08:49:38 GMT"],
            &["Sun, 06 Nov 1994 08:49:36 GMT"],
            &["invalid"],
            &[""],
            &["\"a\"", "\"a\""],
        ] {
            assert!(!permits(lines, now), "{lines:?}");
        }
        let tenths = |tenths: u64| then() + Duration::from_millis(100 * tenths);
        assert!(!permits(&[THEN], tenths(9)), "the file may change in the same second");
        assert!(permits(&[THEN], tenths(10)));
        let without = Validators { tag: None, modified: None };
        assert!(!without.permit_range(&headers(&[("if-range", "invalid")]), now));
    }

    #[test]
    fn the_tag_of_a_fixed_response_is_known_by_its_list() {
        assert!(is_known([&HeaderValue::from_static("\"x\", W/\"1\"")], b"\"1\""));
        assert!(!is_known([&HeaderValue::from_static("\"11\"")], b"\"1\""));
    }
}
