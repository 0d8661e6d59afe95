//! Ranges of bytes that a request selects (RFC 9110 section 14).
//!
//! Ranges that overlap or touch are one part (section 15.3.7.2 permits to coalesce them). More than eight parts select the
//! whole representation: section 14.2 permits to ignore `Range`. Invalid ranges, other units and repeated headers are ignored as well.

use std::ops::RangeInclusive;

use http::{HeaderValue, Method, header};

use crate::message::RequestParts;

/// Maximum number of ranges in a set; a longer set is ignored (RFC 9110 section 17.15).
const MOST: usize = 100;

/// Maximum number of parts of a response; more are the whole representation.
const MOST_PARTS: usize = 8;

/// Ranges of a request, in any order. Not empty, and at most 100.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(Vec<RangeSpec>);

/// One range (RFC 9110 section 14.1.2). Numbers above 64 bits are the largest number, which is beyond the end of every file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeSpec {
    /// From the first position to the last one.
    Positions(u64, u64),
    /// The last bytes, of this number.
    Suffix(u64),
}

/// The part of a representation that ranges select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of it, as if there were no ranges: status `200`.
    Whole,
    /// The bytes at these positions: status `206`.
    Part(RangeInclusive<u64>),
    /// The bytes at several positions, 2 to 8 parts in the order of the request: status `206` with a multipart body.
    Parts(Vec<RangeInclusive<u64>>),
    /// None of the ranges is inside: status `416`.
    Unsatisfiable,
}

impl Ranges {
    /// The ranges of a request; `None` without a valid `Range`, and for methods other than `GET`.
    pub fn of(request: &RequestParts) -> Option<Self> {
        // RFC 9110 section 14.2: defined for GET only, ignored with other methods.
        if request.method != Method::GET {
            return None;
        }
        let mut lines = request.headers.get_all(header::RANGE);
        match (lines.next(), lines.next()) {
            (Some(line), None) => Self::parse(line),
            _ => None,
        }
    }

    fn parse(line: &HeaderValue) -> Option<Self> {
        let (unit, set) = line.to_str().ok()?.split_once('=')?;
        // RFC 9110 section 14.1: names of units are compared without case.
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let mut ranges = Vec::new();
        // RFC 9110 section 5.6.1.2: empty members of a list are ignored.
        let members = set.split(',').map(|member| member.trim_matches([' ', '\t']));
        for member in members.filter(|member| !member.is_empty()) {
            if ranges.len() == MOST {
                return None;
            }
            ranges.push(RangeSpec::parse(member)?);
        }
        (!ranges.is_empty()).then_some(Self(ranges))
    }

    /// The parts of a representation of `length` bytes.
    pub fn select(&self, length: u64) -> Selection {
        let mut parts: Vec<(u64, u64)> = Vec::new();
        for mut range in self.0.iter().filter_map(|range| range.within(length)) {
            // A range joins all parts that it overlaps or touches, at the place of the first one.
            let mut place = parts.len();
            let touches =
                |part: (u64, u64), range: (u64, u64)| part.0 <= range.1 + 1 && range.0 <= part.1 + 1;
            // At most 100 ranges, so a search of all parts for each range costs little.
            while let Some(found) = parts.iter().position(|part| touches(*part, range)) {
                let part = parts.remove(found);
                range = (part.0.min(range.0), part.1.max(range.1));
                place = place.min(found);
            }
            parts.insert(place, range);
        }
        if parts.is_empty() {
            // RFC 9110 section 14.1.2: a suffix is satisfiable even if there are no bytes, which no `Content-Range` can state.
            let has_suffix = self.0.iter().any(|range| matches!(range, RangeSpec::Suffix(1..)));
            return if has_suffix { Selection::Whole } else { Selection::Unsatisfiable };
        }
        match parts[..] {
            [(first, last)] => Selection::Part(first..=last),
            _ if parts.len() > MOST_PARTS => Selection::Whole,
            _ => Selection::Parts(parts.into_iter().map(|(first, last)| first..=last).collect()),
        }
    }

    /// The range, if it is the only one and its positions do not depend on the length except for the end.
    pub fn only(&self) -> Option<RangeInclusive<u64>> {
        match self.0[..] {
            [RangeSpec::Positions(first, last)] => Some(first..=last),
            _ => None,
        }
    }
}

impl RangeSpec {
    /// Parses `first-`, `first-last` or `-length`; `None` for others, and if `first` is greater than `last`.
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-')?;
        if first.is_empty() {
            return number(last).map(Self::Suffix);
        }
        let first = number(first)?;
        let last = if last.is_empty() { u64::MAX } else { number(last)? };
        (first <= last).then_some(Self::Positions(first, last))
    }

    /// First and last position in a representation of `length` bytes; `None` if the range is outside.
    fn within(self, length: u64) -> Option<(u64, u64)> {
        let end = length.checked_sub(1)?;
        match self {
            Self::Positions(first, last) => (first <= end).then_some((first, last.min(end))),
            Self::Suffix(0) => None,
            // RFC 9110 section 14.1.2: a suffix longer than the representation is all of it.
            Self::Suffix(suffix) => Some((length.saturating_sub(suffix), end)),
        }
    }
}

/// A number of any length (RFC 9110 section 14.1.1: numerals must not overflow).
fn number(digits: &str) -> Option<u64> {
    // `parse` alone would accept a sign.
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use crate::message::Request;

    use super::*;

    fn of(method: &str, lines: &[&str]) -> Option<Ranges> {
        let mut request = Request::builder().method(method);
        for line in lines {
            request = request.header("range", *line);
        }
        Ranges::of(&request.body(()).expect("a request").into_parts().0)
    }

    #[track_caller]
    fn selected(line: &str, length: u64) -> Selection {
        of("GET", &[line]).expect("valid ranges").select(length)
    }

    #[test]
    fn a_range_selects_a_part() {
        for (range, part) in [
            ("bytes=2-4", 2..=4),
            ("bytes=2-", 2..=9),
            ("bytes=0-99", 0..=9),
            ("bytes=9-9", 9..=9),
            ("bytes=-3", 7..=9),
            ("bytes=-10", 0..=9),
            ("bytes=-11", 0..=9),
            ("bytes=-99999999999999999999999", 0..=9),
            ("bytes=0-18446744073709551616", 0..=9),
            ("bytes=0-99999999999999999999999999999999999999999", 0..=9),
            ("bytes=00002-0000000000000000000000000000000000004", 2..=4),
            ("Bytes=2-4", 2..=4),
            ("bytes= ,\t2-4 ,,", 2..=4),
        ] {
            assert_eq!(selected(range, 10), Selection::Part(part), "{range}");
        }
    }

    #[test]
    fn ranges_outside_are_unsatisfiable() {
        for range in ["bytes=10-", "bytes=10-11", "bytes=-0", "bytes=18446744073709551616-", "bytes=10-11,-0"]
        {
            assert_eq!(selected(range, 10), Selection::Unsatisfiable, "{range}");
        }
    }

    #[test]
    fn an_empty_representation_has_no_position_but_a_suffix() {
        for (range, selection) in [
            ("bytes=0-", Selection::Unsatisfiable),
            ("bytes=0-0", Selection::Unsatisfiable),
            ("bytes=-0", Selection::Unsatisfiable),
            ("bytes=-1", Selection::Whole),
            ("bytes=0-,-5", Selection::Whole),
        ] {
            assert_eq!(selected(range, 0), selection, "{range}");
        }
    }

    #[test]
    fn several_ranges_are_parts_unless_they_overlap_or_touch() {
        for (range, selection) in [
            ("bytes=0-1,2-3", Selection::Part(0..=3)),
            ("bytes=5-8,0-2,1-5,6-6", Selection::Part(0..=8)),
            ("bytes=0-1,20-30", Selection::Part(0..=1)),
            ("bytes=-1,9-9", Selection::Part(9..=9)),
            ("bytes=0-1,3-4", Selection::Parts(vec![0..=1, 3..=4])),
            ("bytes=-1,0-0", Selection::Parts(vec![9..=9, 0..=0])),
            ("bytes=8-8,0-1,4-4,1-3,6-6,20-", Selection::Parts(vec![8..=8, 0..=4, 6..=6])),
            ("bytes=0-0,4-4,8-8,3-9", Selection::Parts(vec![0..=0, 3..=9])),
        ] {
            assert_eq!(selected(range, 10), selection, "{range}");
        }
    }

    #[test]
    fn more_than_eight_parts_select_the_whole() {
        let set = |number: u64| {
            let ranges: Vec<_> = (0..number).map(|part| format!("{0}-{0}", part * 2)).collect();
            selected(&format!("bytes={}", ranges.join(",")), 100)
        };
        assert!(matches!(set(8), Selection::Parts(parts) if parts.len() == 8));
        assert_eq!(set(9), Selection::Whole);
    }

    #[test]
    fn the_largest_length_does_not_overflow() {
        let range = "bytes=0-18446744073709551615,18446744073709551614-";
        assert_eq!(selected(range, u64::MAX), Selection::Part(0..=u64::MAX - 1));
    }

    #[test]
    fn other_units_invalid_sets_and_other_methods_have_no_ranges() {
        for line in [
            "lines=1-2",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=4-2",
            "bytes=a-b",
            "bytes=1-2-3",
            "bytes=+1-2",
            "bytes=1 -2",
            "bytes =1-2",
            " ",
            "bytes=0x1-",
            "bytes=1-2;3-4",
            "bytes=0-1,x",
            "bytes:1-2",
        ] {
            assert_eq!(of("GET", &[line]), None, "{line}");
        }
        assert_eq!(of("GET", &["bytes=0-1", "bytes=2-3"]), None, "not a list");
        assert_eq!(of("GET", &[]), None);
        for method in ["HEAD", "POST", "OPTIONS"] {
            assert_eq!(of(method, &["bytes=0-1"]), None, "{method}");
        }
    }

    #[test]
    fn a_set_has_at_most_a_hundred_ranges() {
        let set = |number| format!("bytes={}", vec!["0-1"; number].join(","));
        assert_eq!(selected(&set(100), 10), Selection::Part(0..=1));
        assert_eq!(of("GET", &[&set(101)]), None);
    }
}
