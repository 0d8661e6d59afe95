//! Decoding of the characters of a URL from the syntax of its document.

/// Syntax of the text around a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// No escapes: headers and style sheets.
    Plain,
    /// Character references.
    Html,
    /// JSON, of which only the escape `\/` is decoded.
    Json,
}

/// One character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Its value; `None` for an unknown escape.
    pub(crate) byte: Option<u8>,
    /// Byte range in the text.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Longest character reference that is decoded.
const REFERENCE: usize = 12;

impl Syntax {
    /// Iterates over the characters of `text`. Bytes above 127 are characters of their own.
    pub(crate) fn units(self, text: &[u8]) -> Units<'_> {
        Units { syntax: self, text, at: 0 }
    }
}

/// Iterator of [`Syntax::units`].
#[derive(Clone, Debug)]
pub(crate) struct Units<'t> {
    syntax: Syntax,
    text: &'t [u8],
    at: usize,
}

impl Iterator for Units<'_> {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        let start = self.at;
        let first = *self.text.get(start)?;
        let rest = &self.text[start..];
        let (byte, length) = match (self.syntax, first) {
            (Syntax::Html, b'&') => reference(rest),
            (Syntax::Json, b'\\') if rest.get(1) == Some(&b'/') => (Some(b'/'), 2),
            // Other escapes, such as `\u0068`, could be any character, so the URL stays unchanged.
            (Syntax::Json, b'\\') => (None, 1),
            _ => (Some(first), 1),
        };
        self.at = start + length;
        Some(Unit { byte, start, end: self.at })
    }
}

/// Decodes a character reference of HTML and returns its length. An ampersand that begins none stands for itself.
fn reference(text: &[u8]) -> (Option<u8>, usize) {
    // A lone ampersand.
    let begins = text.get(1).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'#');
    if !begins {
        return (Some(b'&'), 1);
    }
    let Some(length) = text.iter().take(REFERENCE).position(|byte| *byte == b';') else {
        // `&sol` without a semicolon may be a reference too.
        return (None, 1);
    };
    let name = &text[1..length];
    let byte = match name {
        b"amp" => Some(b'&'),
        b"quot" => Some(b'"'),
        b"apos" => Some(b'\''),
        b"lt" => Some(b'<'),
        b"gt" => Some(b'>'),
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16),
        [b'#', digits @ ..] => number(digits, 10),
        _ => return (None, 1),
    };
    (byte, length + 1)
}

/// Decodes the number of a reference to an ASCII character.
fn number(digits: &[u8], radix: u32) -> Option<u8> {
    // `from_str_radix` accepts a sign.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    let number = u32::from_str_radix(digits, radix).ok()?;
    // HTML section 13.2.5.80: references to 0, and to 128 to 159, are other characters than their number.
    u8::try_from(number).ok().filter(|byte| byte.is_ascii() && *byte != 0)
}

/// Decodes an attribute's value. Returns its characters and their positions, with the end of the value last.
pub(crate) fn decoded(value: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::with_capacity(value.len());
    let mut starts = Vec::with_capacity(value.len() + 1);
    for unit in Syntax::Html.units(value) {
        // An unknown reference becomes a byte that is no delimiter in CSS.
        bytes.push(unit.byte.unwrap_or(0x80));
        starts.push(unit.start);
    }
    starts.push(value.len());
    (bytes, starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(syntax: Syntax, text: &str) -> String {
        syntax.units(text.as_bytes()).map(|unit| unit.byte.map_or('?', char::from)).collect()
    }

    #[test]
    fn references_stand_for_their_characters() {
        assert_eq!(read(Syntax::Html, "a&#x2F;&#47;&amp;&quot;&#0047;"), "a//&\"/");
        assert_eq!(read(Syntax::Html, "&sol;&"), "?sol;&");
        assert_eq!(read(Syntax::Html, "& x; &"), "& x; &");
        assert_eq!(read(Syntax::Html, "&sol"), "?sol");
        assert_eq!(read(Syntax::Html, "&#x;&#0;&#300;"), "???");
        assert_eq!(read(Syntax::Json, "https:\\/\\/a\\u002f"), "https://a?u002f");
        assert_eq!(read(Syntax::Plain, "&#47;\\/"), "&#47;\\/");
    }
}
