//! Times of the starts of requests, in the forms that programs write.
//!
//! HAR 1.2 requires `2026-11-28T10:00:00.000+01:00` (ISO 8601). Some programs write no zone, a zone without a colon, or a space
//! in place of the `T`. Only differences of times matter, so a time without a zone is taken as UTC.

use serde_json::Value;
use time::{Date, Month, Time, UtcOffset};

/// Nanoseconds per second.
const SECOND: i128 = 1_000_000_000;

/// Nanoseconds since an arbitrary day; `None` if the value is no time.
pub(super) fn nanoseconds(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => of_text(text.trim()),
        // Milliseconds since 1970, as scripts note them.
        Value::Number(number) => {
            // The bound excludes `NaN` and numbers that are no time: 1e15 ms is the year 33,658.
            let millis = number.as_f64().filter(|millis| millis.abs() < 1e15)?;
            Some((millis * 1e6) as i128)
        }
        _ => None,
    }
}

fn of_text(text: &str) -> Option<i128> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let year = parts.next()?.parse().ok()?;
    let month = Month::try_from(parts.next()?.parse::<u8>().ok()?).ok()?;
    let date = Date::from_calendar_date(year, month, parts.next()?.parse().ok()?).ok()?;
    let rest = rest.trim_start();
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && !":.,".contains(letter));
    let (clock, zone) = rest.split_at(end.unwrap_or(rest.len()));
    let days = i128::from(date.to_julian_day());
    let offset = zone_seconds(zone.trim())?;
    (parts.next().is_none()).then_some((days * 86_400 - i128::from(offset)) * SECOND + of_clock(clock)?)
}

/// Nanoseconds since midnight of `10:00`, `10:00:00` or `10:00:00.123`.
fn of_clock(text: &str) -> Option<i128> {
    let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, ""));
    let mut parts = whole.split(':');
    let mut next = |usual: &'static str| parts.next().unwrap_or(usual).parse::<u8>().ok();
    let (hour, minute, second) = (next("")?, next("")?, next("0")?);
    // A leap second counts as the second before.
    let time = Time::from_hms(hour, minute, second.min(59)).ok().filter(|_| second <= 60)?;
    if parts.next().is_some() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanos = nanos.fold(0_i128, |nanos, digit| nanos * 10 + i128::from(digit - b'0'));
    let (hour, minute, second) = time.as_hms();
    Some((i128::from(hour) * 3600 + i128::from(minute) * 60 + i128::from(second)) * SECOND + nanos)
}

/// Seconds east of UTC of `Z`, `+01:00`, `+0100`, `+01`, or of a missing zone.
fn zone_seconds(zone: &str) -> Option<i32> {
    if ["", "Z", "UTC", "GMT"].iter().any(|utc| zone.eq_ignore_ascii_case(utc)) {
        return Some(0);
    }
    let sign = match zone.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = zone[1..].chars().filter(|letter| *letter != ':').collect();
    if ![2, 4].contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |text: &str| text.parse::<i8>().ok();
    let minutes = if digits.len() == 4 { number(&digits[2..])? } else { 0 };
    let offset = UtcOffset::from_hms(sign * number(&digits[..2])?, sign * minutes, 0).ok()?;
    Some(offset.whole_seconds())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_of_all_programs_are_read() {
        let utc = nanoseconds(&json!("2026-11-28T09:00:00.25Z")).expect("a time");
        for text in [
            "2026-11-28T10:00:00.250+01:00",
            "2026-11-28T10:00:00.250+0100",
            "2026-11-28T10:00:00.250+01",
            "2026-11-28 10:00:00.250 +0100",
            "2026-11-28T03:30:00.25000000000000-05:30",
            "2026-11-28T09:00:00,25",
            "2026-11-28 09:00:00.250 UTC",
            " 2026-11-28t09:00:00.2500000z ",
        ] {
            assert_eq!(nanoseconds(&json!(text)), Some(utc), "{text}");
        }
        let minute = nanoseconds(&json!("2026-11-28T09:00")).expect("a time");
        assert_eq!(utc - minute, SECOND / 4);
        assert_eq!(nanoseconds(&json!("2026-12-31T23:59:60Z")), nanoseconds(&json!("2026-12-31T23:59:59Z")));
        let millis = [1_790_000_000_500_i64, 1_790_000_000_000].map(|millis| nanoseconds(&json!(millis)));
        assert_eq!(millis[0].zip(millis[1]).map(|(one, two)| one - two), Some(SECOND / 2));
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "T",
            "yesterday",
            "2026-11-28",
            "2026-13-28T10:00:00Z",
            "2026-11-31T10:00:00Z",
            "2026-11-28T25:00:00Z",
            "2026-11-28T10:00:00+1:00",
            "2026-11-28T10:00:00+ö",
            "2026-11-28T10:00:00.5.5",
            "2026-11-28T10:00:00:00",
            "2026-11-28-01T10:00:00Z",
            "2026-11-28T10:00:00 CET",
        ] {
            assert_eq!(nanoseconds(&json!(text)), None, "{text}");
        }
        assert_eq!([json!(null), json!(1e300), json!([])].map(|value| nanoseconds(&value)), [None; 3]);
    }
}
