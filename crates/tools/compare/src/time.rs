//! Parser for durations.

use std::time::Duration;

/// Parses `60s`, `1.5s`, `200ms`, `50us`, `2m`, `2min` or `1h`; a number without a unit is in seconds.
pub fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        // A number alone is in seconds, as in the options of other load generators, so that their command lines
        // can be used again.
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    // `from_secs_f64` would panic for a negative or too large number.
    Duration::try_from_secs_f64(digits.parse::<f64>().ok()? * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let seconds = Duration::from_secs_f64;
        for (text, expected) in [
            ("60s", 60.0),
            ("1.5s", 1.5),
            ("200ms", 0.2),
            ("50us", 5e-5),
            ("2m", 120.0),
            ("3", 3.0),
            ("1h", 3600.0),
        ] {
            assert_eq!(duration(text), Some(seconds(expected)), "{text}");
        }
        for text in ["", "s", "-1s", "1d", "1 s", "ms", "infs", "1e400s"] {
            assert_eq!(duration(text), None, "{text:?}");
        }
    }
}
