//! Timestamps of lines. Each thread formats a second once.

use std::cell::RefCell;
use std::io::Write;
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

const COMMON: &[BorrowedFormatItem<'_>] =
    format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");
const RFC3339: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]");

/// A second, formatted.
struct Stamp {
    second: u64,
    common: String,
    rfc3339: String,
}

thread_local! {
    // No line has this second, so the first line of a thread formats its own.
    static STAMP: RefCell<Stamp> = const { RefCell::new(Stamp { second: u64::MAX, common: String::new(), rfc3339: String::new() }) };
}

/// Appends `now` as the combined log format has it, `21/Nov/2025:02:22:10 +0000`, always in UTC.
pub(crate) fn common(line: &mut Vec<u8>, now: SystemTime) {
    with_stamp(since_1970(now).as_secs(), |stamp| line.extend_from_slice(stamp.common.as_bytes()));
}

/// Appends `now` as RFC 3339 has it, in UTC, with milliseconds: `2025-11-21T02:22:10.042Z`.
pub(crate) fn rfc3339(line: &mut Vec<u8>, now: SystemTime) {
    let since = since_1970(now);
    with_stamp(since.as_secs(), |stamp| line.extend_from_slice(stamp.rfc3339.as_bytes()));
    let millis = since.subsec_millis();
    let digit = |power: u32| b'0' + (millis / power % 10) as u8;
    line.extend_from_slice(&[b'.', digit(100), digit(10), digit(1), b'Z']);
}

/// Appends `time` as RFC 3339 has it, in UTC, with microseconds: `2025-11-21T02:22:10.042017Z`.
pub(crate) fn rfc3339_micros(line: &mut Vec<u8>, time: SystemTime) {
    let since = since_1970(time);
    with_stamp(since.as_secs(), |stamp| line.extend_from_slice(stamp.rfc3339.as_bytes()));
    // Writing to a vector cannot fail.
    let _ = write!(line, ".{:06}Z", since.subsec_micros());
}

fn since_1970(now: SystemTime) -> Duration {
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn with_stamp(second: u64, append: impl FnOnce(&Stamp)) {
    STAMP.with_borrow_mut(|stamp| {
        if stamp.second != second {
            *stamp = Stamp::new(second);
        }
        append(stamp);
    });
}

impl Stamp {
    fn new(second: u64) -> Self {
        let time =
            i64::try_from(second).ok().and_then(|second| OffsetDateTime::from_unix_timestamp(second).ok());
        let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let format = |items: &[BorrowedFormatItem<'_>]| time.format(items).unwrap_or_default();
        Self { second, common: format(COMMON), rfc3339: format(RFC3339) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(append: fn(&mut Vec<u8>, SystemTime), millis: u64) -> String {
        let mut line = Vec::new();
        append(&mut line, SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn both_formats_are_utc() {
        assert_eq!(formatted(common, 1_763_691_730_042), "21/Nov/2025:02:22:10 +0000");
        assert_eq!(formatted(rfc3339, 1_763_691_730_042), "2025-11-21T02:22:10.042Z");
        assert_eq!(formatted(rfc3339_micros, 1_763_691_730_042), "2025-11-21T02:22:10.042000Z");
    }

    #[test]
    fn a_new_second_is_formatted_anew_and_an_old_one_again() {
        assert_eq!(formatted(rfc3339, 999), "1970-01-01T00:00:00.999Z");
        assert_eq!(formatted(rfc3339, 1_000), "1970-01-01T00:00:01.000Z");
        assert_eq!(formatted(rfc3339, 7), "1970-01-01T00:00:00.007Z");
    }
}
