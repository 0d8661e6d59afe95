//! Trace context (W3C Recommendation "Trace Context", level 2): the headers `traceparent` and `tracestate`.

use std::fmt;

use http::{HeaderName, HeaderValue};

use crate::message::HeaderList;

/// Header with the IDs of the trace and of the caller's operation (section 3.2).
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Header with the states of tracing systems.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Maximum number of members of `tracestate` (section 3.3.1.1), and of its bytes. Systems have to pass on 512 bytes at least.
const MOST_MEMBERS: usize = 32;
const LONGEST_STATE: usize = 4 << 10;

/// The caller has recorded the trace.
const SAMPLED: u8 = 1;

/// The last seven bytes of the trace ID are random.
const RANDOM: u8 = 2;

/// ID of a trace. Not zero. Displays as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(u128);

impl TraceId {
    /// An ID of random bits.
    pub fn new(bits: u128) -> Self {
        Self(bits.max(1))
    }

    /// The bits of the ID.
    pub fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A trace and the flags of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub id: TraceId,
    /// ID of the caller's operation; 0 for a new trace.
    parent: u64,
    flags: u8,
}

impl TraceContext {
    /// A new trace that is to be recorded, with an ID of random bits.
    pub fn new(bits: u128) -> Self {
        Self { id: TraceId::new(bits), parent: 0, flags: SAMPLED | RANDOM }
    }

    /// The same trace, which is not to be recorded.
    #[must_use]
    pub fn unrecorded(self) -> Self {
        Self { flags: self.flags & !SAMPLED, ..self }
    }

    /// ID of the caller's operation; `None` for a new trace.
    pub fn parent(self) -> Option<u64> {
        Some(self.parent).filter(|parent| *parent != 0)
    }

    /// Whether the trace is to be recorded.
    pub fn is_recorded(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The trace of a request. `None` without a valid `traceparent`; several ones are not valid.
    pub fn of(headers: &HeaderList) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT);
        let value = values.next().filter(|_| values.next().is_none())?;
        Self::read(value.as_bytes())
    }

    /// Reads `traceparent` (section 3.2). Of a later version than 00, the known fields are read.
    fn read(value: &[u8]) -> Option<Self> {
        let (version, rest) = number(value, 2)?;
        let (id, rest) = number(after_dash(rest)?, 32)?;
        let (parent, rest) = number(after_dash(rest)?, 16)?;
        let (flags, rest) = number(after_dash(rest)?, 2)?;
        let is_complete = if version == 0 { rest.is_empty() } else { matches!(rest, [] | [b'-', ..]) };
        if version == 0xff || !is_complete || id == 0 || parent == 0 {
            return None;
        }
        // Other flags are unknown and are not passed on (section 3.2.2.5).
        let parent = u64::try_from(parent).ok()?;
        Some(Self { id: TraceId(id), parent, flags: u8::try_from(flags).ok()? & (SAMPLED | RANDOM) })
    }

    /// Writes the headers for the next server: this trace with the ID of an operation, which is not zero. A `tracestate` that is
    /// not valid, or belongs to another trace, is removed.
    pub fn write(self, operation: u64, is_continued: bool, headers: &mut HeaderList) {
        let value = format!("00-{}-{:016x}-{:02x}", self.id, operation.max(1), self.flags);
        headers.insert(TRACEPARENT, HeaderValue::try_from(value).expect("hexadecimal digits"));
        if !is_continued || !is_valid_state(headers) {
            headers.remove(TRACESTATE);
        }
    }
}

/// A number of `length` lower-case hexadecimal digits, and the bytes after it.
fn number(value: &[u8], length: usize) -> Option<(u128, &[u8])> {
    let (digits, rest) = value.split_at_checked(length)?;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| is_digit(&byte)))?;
    Some((u128::from_str_radix(digits, 16).ok()?, rest))
}

fn after_dash(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"-")
}

/// Section 3.3.1: a list of `key=value`, of which no key occurs twice.
fn is_valid_state(headers: &HeaderList) -> bool {
    let values = || headers.get_all(TRACESTATE).map(HeaderValue::as_bytes);
    if values().map(<[u8]>::len).sum::<usize>() > LONGEST_STATE {
        return false;
    }
    let mut keys: Vec<&[u8]> = Vec::new();
    for member in values().flat_map(|value| value.split(|byte| *byte == b',')) {
        let member = member.trim_ascii();
        if member.is_empty() {
            continue;
        }
        let Some(end) = member.iter().position(|byte| *byte == b'=') else { return false };
        let (key, value) = (&member[..end], &member[end + 1..]);
        if keys.len() == MOST_MEMBERS || !is_key(key) || !is_value(value) || keys.contains(&key) {
            return false;
        }
        keys.push(key);
    }
    true
}

/// Section 3.3.1.3.1.
fn is_key(key: &[u8]) -> bool {
    let is_part = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let begins = |first: &u8| matches!(first, b'a'..=b'z' | b'0'..=b'9');
    key.len() <= 256 && key.first().is_some_and(begins) && key.iter().all(is_part)
}

/// Section 3.3.1.3.2.
fn is_value(value: &[u8]) -> bool {
    let is_part = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    (1..=256).contains(&value.len()) && value.iter().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(lines: &[(&'static str, &str)]) -> HeaderList {
        let mut headers = HeaderList::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn a_valid_trace_is_continued_with_another_operation() {
        for (parent, flags) in [
            (PARENT.to_owned(), "01"),
            (PARENT.replace("-01", "-00"), "00"),
            (PARENT.replace("-01", "-03"), "03"),
            (PARENT.replace("-01", "-ff"), "03"),
            (PARENT.replacen("00-", "cc-", 1), "01"),
            (format!("{}-more", PARENT.replacen("00-", "01-", 1)), "01"),
        ] {
            let mut headers =
                headers(&[("traceparent", &parent), ("tracestate", "a=b,c@d=e"), ("tracestate", "f=g")]);
            let trace = TraceContext::of(&headers).expect("a trace");
            assert_eq!(trace.id.to_string(), "0af7651916cd43dd8448eb211c80319c");
            trace.write(0xab, true, &mut headers);
            let expected = format!("00-0af7651916cd43dd8448eb211c80319c-00000000000000ab-{flags}");
            assert_eq!(headers[TRACEPARENT], expected);
            assert_eq!(headers.get_all(TRACESTATE).count(), 2);
        }
    }

    #[test]
    fn an_invalid_trace_is_not_continued() {
        for parent in [
            "",
            "00",
            &PARENT.to_uppercase(),
            &format!("{PARENT}-more"),
            &format!("{PARENT}0"),
            &PARENT.replacen("00-", "ff-", 1),
            &PARENT.replacen("00-", "0g-", 1),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            &PARENT.replace("b7ad6b7169203331", "0000000000000000"),
            &PARENT.replace('-', "_"),
            &PARENT.replace("-01", "-+1"),
            &format!("{}.", PARENT.replacen("00-", "01-", 1)),
        ] {
            assert_eq!(TraceContext::of(&headers(&[("traceparent", parent)])), None, "{parent}");
        }
        assert_eq!(TraceContext::of(&headers(&[("traceparent", PARENT), ("traceparent", PARENT)])), None);
        let mut headers = headers(&[("tracestate", "a=b")]);
        TraceContext::new(0).write(0, false, &mut headers);
        assert_eq!(headers[TRACEPARENT], "00-00000000000000000000000000000001-0000000000000001-03");
        assert!(!headers.contains_key(TRACESTATE));
    }

    #[test]
    fn an_invalid_state_is_removed() {
        let members: Vec<_> = (0..40).map(|number| format!("k{number}=v")).collect();
        for (state, is_kept) in [
            ("a=b, ,c=d ", true),
            ("0a=b", true),
            ("a=b c", true),
            (&members[..32].join(","), true),
            (&members.join(","), false),
            ("a", false),
            ("=b", false),
            ("a=", false),
            ("A=b", false),
            ("a=b,a=c", false),
            ("a=b=c", false),
            (&format!("a={}", "x".repeat(257)), false),
            (&format!("{}=a", "x".repeat(257)), false),
        ] {
            let mut headers = headers(&[("traceparent", PARENT), ("tracestate", state)]);
            TraceContext::of(&headers).expect("a trace").write(1, true, &mut headers);
            assert_eq!(headers.contains_key(TRACESTATE), is_kept, "{state}");
        }
    }
}
