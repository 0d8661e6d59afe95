//! The characters of a URL as its document writes them.

/// How characters are written where a URL is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// As they are: in headers and in style sheets, where an escape is not understood.
    Plain,
    /// With character references.
    Html,
    /// With `\/`.
    Json,
}

/// One character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Its value; `None` if it is not understood.
    pub(crate) byte: Option<u8>,
    /// Where it starts and ends.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Longer references are not understood.
const REFERENCE: usize = 12;

impl Syntax {
    /// The characters of `text`; bytes of 128 and more are each their own.
    pub(crate) fn units(self, text: &[u8]) -> Units<'_> {
        Units { syntax: self, text, at: 0 }
    }
}

/// See [`Syntax::units`].
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
            (Syntax::Json, b'\\') => (None, 1),
            _ => (Some(first), 1),
        };
        self.at = start + length;
        Some(Unit { byte, start, end: self.at })
    }
}

/// What a character reference of HTML stands for, and its length. An ampersand that begins none is itself.
fn reference(text: &[u8]) -> (Option<u8>, usize) {
    // An ampersand by itself.
    let begins = text.get(1).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'#');
    if !begins {
        return (Some(b'&'), 1);
    }
    let Some(length) = text.iter().take(REFERENCE).position(|byte| *byte == b';') else {
        // `&sol` without the semicolon might be one.
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

/// A reference to an ASCII character.
fn number(digits: &[u8], radix: u32) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    let number = u32::from_str_radix(digits, radix).ok()?;
    u8::try_from(number).ok().filter(|byte| byte.is_ascii() && *byte != 0)
}

/// The characters of an attribute, and where each starts and the last ends.
pub(crate) fn decoded(value: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::with_capacity(value.len());
    let mut starts = Vec::with_capacity(value.len() + 1);
    for unit in Syntax::Html.units(value) {
        // What is not understood is no character that style sheets separate anything with.
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
