//! Characters of untrusted text that must not reach a terminal, a page or a log unchanged.

/// Whether a character changes how other characters are shown, or is invisible: control characters (C0, DEL and C1) and
/// those in Unicode's categories Cf, Zl and Zp, with the characters for direction (CVE-2021-42574).
pub fn changes_display(letter: char) -> bool {
    letter.is_control() || is_format(letter)
}

/// Escapes `text` for HTML, SVG and other XML, inside and outside of attributes. Control characters stay.
pub fn escape_markup(text: &str) -> String {
    // `&` first: later it would escape the entities of the other characters once more.
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const fn is_format(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}
