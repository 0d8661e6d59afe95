//! Durations and sizes as Caddy writes them.

use std::path::Path;

use crate::toml;

/// A duration in milliseconds: Go's form, and `d` for days. `1m30s` is 90000, and times below a millisecond are one.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    let (mut total, mut rest) = (0.0_f64, text);
    while !rest.is_empty() {
        let digits = rest.find(|next: char| !next.is_ascii_digit() && next != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let units = [
            ("ms", 1.0),
            ("us", 0.001),
            ("µs", 0.001),
            ("ns", 0.000_001),
            ("s", 1e3),
            ("m", 6e4),
            ("h", 3.6e6),
            ("d", 8.64e7),
        ];
        let (unit, factor) =
            units.iter().find(|(unit, _)| rest.starts_with(unit)).or((text == "0").then_some(&("", 0.0)))?;
        rest = &rest[unit.len()..];
        total += number * factor;
    }
    // An empty text is no duration, although the loop accepts it.
    let is_right = !text.is_empty() && total.is_finite() && total < 1e15;
    // Within the bound above, the conversion is exact enough and has no sign.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    is_right.then(|| total.ceil() as u64)
}

/// A duration as brisk has it, from `least` to `most` milliseconds.
pub(crate) fn duration(text: &str, least: u64, most: u64) -> Option<String> {
    milliseconds(text).map(|time| toml::duration(time.clamp(least, most)))
}

/// A size in bytes: `10MB`, `4KiB`, `100`, `1.5 GB`.
pub(crate) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|next: char| !next.is_ascii_digit() && next != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = text[end..].trim().to_ascii_lowercase();
    let factor = match unit.as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "ki" | "kib" => 1024.0,
        "mi" | "mib" => 1024.0 * 1024.0,
        "gi" | "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number * factor;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    (bytes.is_finite() && bytes < 1e15).then_some(bytes as u64)
}

/// A size as brisk writes it, in decimal units where these are whole: `"10MB"` for 10000000.
pub(crate) fn written(bytes: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
    match units.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("\"{}{name}\"", bytes / unit),
        None => toml::size(bytes),
    }
}

/// The name of a table for an address or a file: `unix:/run/app.sock` gives `app`.
pub(crate) fn label(address: &str) -> String {
    let own = address.rsplit("://").next().unwrap_or(address);
    let own = if own.starts_with('/') || own.starts_with("unix") {
        Path::new(own).file_stem().unwrap_or_default().to_string_lossy().into_owned()
    } else {
        own.to_owned()
    };
    toml::name(&own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes() {
        for (text, time) in [
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("2d", Some(172_800_000)),
            ("500us", Some(1)),
            ("0", Some(0)),
            ("x", None),
            ("", None),
            ("5", None),
        ] {
            assert_eq!(milliseconds(text), time, "{text}");
        }
        for (text, bytes) in [
            ("10MB", Some(10_000_000)),
            ("4KiB", Some(4096)),
            ("100", Some(100)),
            ("1.5 GB", Some(1_500_000_000)),
            ("x", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
    }
}
