//! Text from strangers made safe for terminals and pages.

use brisk_telemetry::changes_display;

/// Characters kept of a name.
const NAME: usize = 200;

/// Characters kept of the value of a header field.
const VALUE: usize = 2000;

/// The first 200 characters of a name, with control and format characters replaced by U+FFFD.
pub fn printable(text: &str) -> String {
    cleaned(text, NAME)
}

/// The same for the value of a header field, of which 2,000 characters are kept.
pub fn printable_value(text: &str) -> String {
    cleaned(text, VALUE)
}

fn cleaned(text: &str, most: usize) -> String {
    // Replaced and not removed: a name with invisible characters must not look like another name.
    text.chars().take(most).map(|letter| if changes_display(letter) { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_control_characters_and_an_end() {
        assert_eq!(printable("a\x1b[2Jb"), "a\u{fffd}[2Jb");
        let turned = "a\u{202e}b\u{2066}c\u{2028}d\u{2029}e\u{200b}f\u{feff}é→";
        assert_eq!(printable(turned), "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f\u{fffd}é→");
        assert_eq!(printable_value(turned), printable(turned));
        assert_eq!(printable(&"x".repeat(5000)).len(), NAME);
    }
}
