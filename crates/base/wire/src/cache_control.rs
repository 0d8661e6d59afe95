//! Directives of `Cache-Control` (RFC 9111 section 5.2).

use std::time::Duration;

/// Maximum of a number of seconds: larger numbers count as this one (RFC 9111 section 1.2.2).
const MAX_SECONDS: u64 = 1 << 31;

/// A directive of `Cache-Control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directive<'a> {
    name: &'a [u8],
    argument: Option<&'a [u8]>,
}

impl<'a> Directive<'a> {
    /// The directives of a field value, in order. Empty elements are skipped. Commas in a quoted argument are part of it.
    pub fn all(value: &'a [u8]) -> impl Iterator<Item = Self> {
        let mut rest = value;
        std::iter::from_fn(move || {
            while !rest.is_empty() {
                let (element, after) = first_element(rest);
                rest = after;
                let element = element.trim_ascii();
                if !element.is_empty() {
                    return Some(Self::read(element));
                }
            }
            None
        })
    }

    fn read(element: &'a [u8]) -> Self {
        let Some(at) = element.iter().position(|byte| *byte == b'=') else {
            return Self { name: element, argument: None };
        };
        let argument = &element[at + 1..];
        // A number or a name has no escaped characters, so their backslashes remain.
        let unquoted = argument.strip_prefix(b"\"").map(|rest| rest.strip_suffix(b"\"").unwrap_or(rest));
        Self { name: &element[..at], argument: Some(unquoted.unwrap_or(argument)) }
    }

    /// Whether the directive has this name, with or without an argument. Case is ignored.
    pub fn is_named(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Whether the directive has this name and no argument: `private`, but not `private="set-cookie"`, which concerns only
    /// the listed fields.
    pub fn is(&self, name: &str) -> bool {
        self.argument.is_none() && self.is_named(name)
    }

    /// The argument as a time. An argument that is missing or not a number is zero, so that the response is stale
    /// (RFC 9111 section 4.2.1).
    pub fn time(&self) -> Duration {
        let digits = self.argument.filter(|text| !text.is_empty() && text.iter().all(u8::is_ascii_digit));
        let seconds = digits.map(|digits| {
            // The cap in each step keeps a number of any length from an overflow.
            digits.iter().fold(0, |sum: u64, digit| (sum * 10 + u64::from(digit - b'0')).min(MAX_SECONDS))
        });
        Duration::from_secs(seconds.unwrap_or_default())
    }
}

/// The time of the first `max-age` in the values of all `Cache-Control` fields of a response (RFC 9111 section 5.2.2.1);
/// `None` without one.
pub fn max_age<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> Option<Duration> {
    // RFC 9111 section 4.2.1: of several `max-age`, the first one may count.
    let mut directives = values.into_iter().flat_map(Directive::all);
    directives.find(|directive| directive.is_named("max-age")).map(|directive| directive.time())
}

/// The bytes before the first comma outside of quotes, and the bytes after it.
fn first_element(value: &[u8]) -> (&[u8], &[u8]) {
    let end = unquoted_end(value, b',');
    (&value[..end], value.get(end + 1..).unwrap_or_default())
}

/// Position of the first `separator` outside of quoted strings (RFC 9110 section 5.6.4), or the length of `value`.
pub fn unquoted_end(value: &[u8], separator: u8) -> usize {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in value.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ if *byte == separator && !is_quoted => return at,
            _ => {}
        }
    }
    value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(values: &[&str]) -> Option<u64> {
        max_age(values.iter().map(|value| value.as_bytes())).map(|age| age.as_secs())
    }

    #[test]
    fn directives_are_read_without_case_and_with_quotes() {
        let value = b", Private , no-cache=\"Set-Cookie, no-store\\\", public\",Max-Age=\"60\" ,, x=";
        let all: Vec<_> = Directive::all(value).collect();
        assert_eq!(all.len(), 4, "{all:?}");
        assert!(all[0].is("private") && all[0].is_named("private"));
        assert!(all[1].is_named("no-cache") && !all[1].is("no-cache"));
        assert_eq!(all[2].time(), Duration::from_mins(1));
        assert!(all[3].is_named("X") && all[3].time().is_zero());
        assert_eq!(Directive::all(b" , ,").count(), 0);
    }

    #[test]
    fn the_first_maximum_age_counts_and_a_wrong_one_is_none() {
        assert_eq!(age(&["public, max-age=60, no-transform, max-age=9"]), Some(60));
        assert_eq!(age(&["public", "MAX-AGE=7"]), Some(7));
        assert_eq!(age(&["max-age=soon"]), Some(0));
        assert_eq!(age(&["max-age"]), Some(0));
        assert_eq!(age(&["max-age=-1"]), Some(0));
        assert_eq!(age(&["max-age=1.5"]), Some(0));
        assert_eq!(age(&["s-maxage=5, x-max-age=3"]), None);
        assert_eq!(age(&["ext=\"a, max-age=5\""]), None);
        assert_eq!(age(&[]), None);
    }

    #[test]
    fn a_large_number_of_seconds_is_the_largest_time() {
        for digits in ["2147483648", "99999999999", &"9".repeat(1000)] {
            assert_eq!(age(&[&format!("max-age={digits}")]), Some(1 << 31), "{digits}");
        }
    }
}
