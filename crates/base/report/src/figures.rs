//! Formats numbers: thousands separators, units by magnitude, three significant digits.

use std::time::Duration;

/// A whole number: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with three significant digits or more: `0.0123`, `1.23`, `45.6`, `1,235`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let size = value.abs();
    // The bounds are where rounding adds a digit: 9.996 becomes `10.0` and not `10.00`.
    let decimals: usize = match size {
        _ if size >= 99.95 || size == 0.0 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ if size >= 0.0995 => 3,
        _ => 4,
    };
    if decimals == 0 {
        // `count` has no sign: as a digit, it would shift the separators.
        let whole = count(size.round() as u64);
        return if value < 0.0 { format!("-{whole}") } else { whole };
    }
    format!("{value:.decimals$}")
}

/// A number without trailing zeros: `0.05`, `1.5`, `20`, `4,000`.
pub fn tick(value: f64) -> String {
    let text = number(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A latency or a processor time: `412 µs`, `3.21 ms`, `1.52 s`.
pub fn microseconds(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "–".to_owned(),
        _ if value < 1e3 => format!("{} µs", number(value)),
        _ if value < 1e6 => format!("{} ms", number(value / 1e3)),
        _ => format!("{} s", number(value / 1e6)),
    }
}

/// A time as [`microseconds`], or in minutes from two minutes on: `9 min 05 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 120.0 {
        return microseconds(seconds * 1e6);
    }
    let whole = seconds.round() as u64;
    format!("{} min {:02} s", whole / 60, whole % 60)
}

/// Bytes: `512 B`, `1.50 KiB`, `2.00 MiB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = value;
    let mut unit = 0;
    while size.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{} {}", number(size), UNITS[unit])
}

/// `part` of `whole` in percent; `–` if `whole` is 0.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "–".to_owned() } else { percent(part as f64 / whole as f64) }
}

/// A fraction in percent: `0.1 %`, `99 %`. Only 1 and 0 give `100 %` and `0 %`; values close to them give `>99.9 %` and
/// `<0.1 %`.
pub fn percent(fraction: f64) -> String {
    let value = fraction * 100.0;
    match value {
        _ if !value.is_finite() => "–".to_owned(),
        _ if value > 0.0 && value < 0.05 => "<0.1 %".to_owned(),
        _ if value > 99.9 && value < 100.0 => ">99.9 %".to_owned(),
        _ if value > 0.0 && value < 10.0 || value > 99.0 && value < 100.0 => format!("{value:.1} %"),
        _ => format!("{value:.0} %"),
    }
}

/// Truncates `text` to `width` characters and marks the cut with `…`.
pub fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    // A space before the mark would look like the end of the text.
    short.truncate(short.trim_end().len());
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let all = [0, 999, 1000, 12_345, 1_234_567].map(count);
        assert_eq!(all, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let all = [0.0, 0.01234, 0.1234, 1.0, 9.994, 9.996, 45.64, 99.94, 99.96, 1234.6, -1234.6].map(number);
        assert_eq!(
            all,
            ["0", "0.0123", "0.123", "1.00", "9.99", "10.0", "45.6", "99.9", "100", "1,235", "-1,235"]
        );
        assert_eq!(number(f64::NAN), "–");
    }

    #[test]
    fn ticks_have_no_empty_digits() {
        assert_eq!([0.0, 0.05, 1.5, 20.0, 4000.0].map(tick), ["0", "0.05", "1.5", "20", "4,000"]);
    }

    #[test]
    fn times_have_the_unit_of_their_size() {
        let all = [412.0, 3210.0, 1_520_000.0, 0.0].map(microseconds);
        assert_eq!(all, ["412 µs", "3.21 ms", "1.52 s", "0 µs"]);
        assert_eq!(duration(Duration::from_secs(545)), "9 min 05 s");
        assert_eq!(duration(Duration::from_millis(1500)), "1.50 s");
    }

    #[test]
    fn bytes_have_the_unit_of_their_size() {
        let all = [512.0, 1536.0, 2_097_152.0].map(bytes);
        assert_eq!(all, ["512 B", "1.50 KiB", "2.00 MiB"]);
    }

    #[test]
    fn a_share_never_hides_the_last_failure() {
        assert_eq!(share(0, 0), "–");
        let all = [(1, 100_000), (99_999, 100_000), (5, 1000), (1, 2), (995, 1000), (3, 3), (0, 9)];
        let all = all.map(|(part, whole)| share(part, whole));
        assert_eq!(all, ["<0.1 %", ">99.9 %", "0.5 %", "50 %", "99.5 %", "100 %", "0 %"]);
    }

    #[test]
    fn long_text_is_cut_and_marked() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("longer text", 8), "longer…");
    }
}
