//! Text from strangers made safe for terminals and pages.

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
    let is_hidden = |letter: char| letter.is_control() || is_format(letter);
    text.chars().take(most).map(|letter| if is_hidden(letter) { '\u{fffd}' } else { letter }).collect()
}

/// Whether a character is in Unicode's categories Cf, Zl or Zp: invisible, and able to reverse or break the text beside it.
const fn is_format(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
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
