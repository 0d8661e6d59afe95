//! JSON documents for programs that read results.

use std::time::SystemTime;

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

/// `report` as an indented JSON document with a line break at its end. A float that is not finite becomes null.
///
/// # Panics
///
/// If a map in `report` has keys that are not strings.
pub fn document(report: &impl Serialize) -> String {
    serde_json::to_string_pretty(report).expect("maps have strings as keys, and floats may be null") + "\n"
}

/// `time` in UTC in the format of RFC 3339, to the second.
pub fn timestamp(time: SystemTime) -> String {
    // `Rfc3339` writes a fraction unless it is 0.
    let time = OffsetDateTime::from(time).replace_nanosecond(0).expect("zero is a nanosecond");
    time.format(&Rfc3339).expect("a year of four digits")
}

/// `time` in UTC in the format of RFC 3339, to the microsecond.
pub fn timestamp_micros(time: SystemTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    OffsetDateTime::from(time).format(format).expect("a year of four digits")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_document_is_indented_and_has_no_invalid_number() {
        assert_eq!(document(&[f64::NAN, 1.5]), "[\n  null,\n  1.5\n]\n");
    }

    #[test]
    fn a_timestamp_has_whole_seconds() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_000_750);
        assert_eq!(timestamp(time), "2027-01-15T08:00:00Z");
        assert_eq!(timestamp_micros(time), "2027-01-15T08:00:00.750000Z");
    }
}
