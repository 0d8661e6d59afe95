//! URLs in headers: `Link` (RFC 8288) and `Refresh`.

use crate::map::{Base, Edit, Map, apply};
use crate::text::Syntax;

/// The value of a `Link` header with its targets changed; `None` if none is. A target is between `<` and `>`, outside of quotes.
pub fn link(value: &str, base: Base, map: &Map) -> Option<String> {
    let bytes = value.as_bytes();
    let mut edits = Vec::new();
    let (mut at, mut is_quoted) = (0, false);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' if is_quoted => at += 1,
            b'<' if !is_quoted => {
                let length = memchr::memchr(b'>', &bytes[at..])?;
                let target = &bytes[at + 1..at + length];
                edits.extend(map.edit(base, target, Syntax::Plain).map(|edit| edit.at(at + 1)));
                at += length;
            }
            _ => {}
        }
        at += 1;
    }
    changed(value, &edits)
}

/// The value of a `Refresh` header with its URL changed; `None` if it is not.
pub fn refresh(value: &str, base: Base, map: &Map) -> Option<String> {
    changed(value, refresh_edit(value.as_bytes(), base, map, Syntax::Plain).as_slice())
}

/// The change of `5; url=...` (HTML section 4.2.5.3).
pub(crate) fn refresh_edit<'m>(value: &[u8], base: Base, map: &'m Map, syntax: Syntax) -> Option<Edit<'m>> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    let skip = |at: usize, skipped: &dyn Fn(&u8) -> bool| {
        at + value.get(at..).unwrap_or_default().iter().take_while(|byte| skipped(byte)).count()
    };
    let at = skip(0, &is_space);
    let number = skip(at, &|byte| byte.is_ascii_digit() || *byte == b'.');
    let separator = skip(number, &is_space);
    let mut start = skip(separator, &|byte| matches!(byte, b';' | b',') || byte.is_ascii_whitespace());
    if number == at || start == number {
        return None;
    }
    if value.get(start..start + 3).is_some_and(|word| word.eq_ignore_ascii_case(b"url")) {
        let equals = skip(start + 3, &is_space);
        if value.get(equals) == Some(&b'=') {
            start = skip(equals + 1, &is_space);
        }
    }
    let mut end = value.len();
    if let Some(quote @ (b'"' | b'\'')) = value.get(start) {
        start += 1;
        end = memchr::memchr(*quote, &value[start..]).map_or(end, |length| start + length);
    }
    map.edit(base, value.get(start..end)?, syntax).map(|edit| edit.at(start))
}

fn changed(value: &str, edits: &[Edit<'_>]) -> Option<String> {
    if edits.is_empty() {
        return None;
    }
    let mut output = Vec::with_capacity(value.len());
    apply(value.as_bytes(), edits, &mut output);
    String::from_utf8(output).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::map;

    #[test]
    fn targets_of_links_are_changed_and_no_parameters() {
        let link = |value: &str| link(value, Base::Own, &map());
        assert_eq!(
            link(
                "<https://static.example/a>; rel=preload; as=style, </b>;title=\"<https://static.example/>\""
            )
            .as_deref(),
            Some("</_s/a>; rel=preload; as=style, </b>;title=\"<https://static.example/>\"")
        );
        for same in
            ["</a>; rel=x", "<https://static.example/", "https://static.example/", "\"<//static.example/>"]
        {
            assert_eq!(link(same), None, "{same}");
        }
    }

    #[test]
    fn a_refresh_has_a_time_before_its_url() {
        let refresh = |value: &str| refresh(value, Base::Own, &map());
        for (value, changed) in [
            ("5; url=https://static.example/a", "5; url=/_s/a"),
            ("0;URL = \"https://static.example/a\"", "0;URL = \"/_s/a\""),
            (" 1.5 , https://static.example/a", " 1.5 , /_s/a"),
        ] {
            assert_eq!(refresh(value).as_deref(), Some(changed));
        }
        for same in ["5", "", "url=https://static.example/a", "5; url=/a", "5https://static.example/"] {
            assert_eq!(refresh(same), None, "{same}");
        }
    }
}
