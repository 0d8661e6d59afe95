//! Rewriting of URLs in the headers `Link` (RFC 8288) and `Refresh`.

use crate::map::{Base, Edit, OriginMap, apply};
use crate::text::Syntax;

/// Applies `change` to a header value that need not be UTF-8. Bytes above 127 stay unchanged.
pub fn map_bytes(value: &[u8], change: impl Fn(&str) -> Option<String>) -> Option<Vec<u8>> {
    if value.is_ascii() {
        return change(std::str::from_utf8(value).ok()?).map(String::into_bytes);
    }
    // Each byte becomes one character (Latin-1) and is converted back afterwards.
    let text: String = value.iter().map(|byte| char::from(*byte)).collect();
    change(&text)?.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

/// Rewrites the targets of a `Link` header: text between `<` and `>` outside of quotes. `None` if nothing changes.
///
/// As in documents, `rel=canonical` stays unchanged, and style sheets with an `integrity` digest get the path of unchanged
/// resources, if their origin has one.
pub fn link(value: &str, base: Base, map: &OriginMap) -> Option<String> {
    let bytes = value.as_bytes();
    let mut edits = Vec::new();
    let (mut at, mut is_quoted) = (0, false);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => is_quoted = !is_quoted,
            // A quoted pair (RFC 9110 section 5.6.4): the next byte does not end the quotes.
            b'\\' if is_quoted => at += 1,
            b'<' if !is_quoted => {
                // A target without an end makes the rest of the value ambiguous, so the whole value stays unchanged.
                let length = memchr::memchr(b'>', &bytes[at..])?;
                let target = &bytes[at + 1..at + length];
                let edit = match LinkKind::of(parameters(&value[at + length + 1..])) {
                    LinkKind::Usual => map.edit(base, target, Syntax::Plain),
                    LinkKind::Digested => map.edit_unchanged(base, target, Syntax::Plain),
                    LinkKind::Canonical => None,
                };
                edits.extend(edit.map(|edit| edit.at(at + 1)));
                at += length;
            }
            _ => {}
        }
        at += 1;
    }
    changed(value, &edits)
}

/// The parameters of a link, up to the next link.
fn parameters(rest: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let end = rest.bytes().position(|byte| {
        is_quoted ^= byte == b'"' && !is_escaped;
        is_escaped = is_quoted && byte == b'\\' && !is_escaped;
        byte == b',' && !is_quoted
    });
    &rest[..end.unwrap_or(rest.len())]
}

/// The treatment of the URL of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// Rewritten as all URLs.
    Usual,
    /// A style sheet with an `integrity` digest, which a rewritten style sheet would not match.
    Digested,
    /// The canonical URL, by which search engines identify the page: stays.
    Canonical,
}

impl LinkKind {
    fn of(parameters: &str) -> Self {
        let values = |wanted: &'static str| {
            let parts = parameters.split(';').filter_map(|part| part.split_once('='));
            let named = parts.filter(move |(name, _)| name.trim_ascii().eq_ignore_ascii_case(wanted));
            named.map(|(_, value)| value.trim_ascii().trim_matches('"'))
        };
        let has = |name, word: &str| {
            values(name).flat_map(str::split_ascii_whitespace).any(|found| found.eq_ignore_ascii_case(word))
        };
        let is_style = has("rel", "stylesheet") || has("as", "style");
        if has("rel", "canonical") {
            Self::Canonical
        } else if is_style && values("integrity").any(|digest| !digest.is_empty()) {
            Self::Digested
        } else {
            Self::Usual
        }
    }
}

/// Rewrites the URL of a `Refresh` header. `None` if nothing changes.
pub fn refresh(value: &str, base: Base, map: &OriginMap) -> Option<String> {
    changed(value, refresh_edit(value.as_bytes(), base, map, Syntax::Plain).as_slice())
}

/// The [`Edit`] of a refresh value such as `5; url=...` (HTML section 4.2.5.3).
pub(crate) fn refresh_edit<'m>(
    value: &[u8],
    base: Base,
    map: &'m OriginMap,
    syntax: Syntax,
) -> Option<Edit<'m>> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    let skip = |at: usize, skipped: &dyn Fn(&u8) -> bool| {
        at + value.get(at..).unwrap_or_default().iter().take_while(|byte| skipped(byte)).count()
    };
    let at = skip(0, &is_space);
    let number = skip(at, &|byte| byte.is_ascii_digit() || *byte == b'.');
    let separator = skip(number, &is_space);
    let mut start = skip(separator, &|byte| matches!(byte, b';' | b',') || byte.is_ascii_whitespace());
    // HTML section 4.2.5.3: without a number, or without a separator after it, a refresh has no URL.
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
    fn style_sheets_with_a_digest_get_the_path_of_unchanged_resources() {
        let mut map = map();
        map.origins[0].unchanged = Some(map.origins[0].prefix.unchanged());
        let own = |value: &str| link(value, Base::Own, &map);
        let sheet = "<https://static.example/a.css>; rel=preload; as=style; integrity=\"sha384-x\"";
        assert_eq!(own(sheet), Some(sheet.replace("https://static.example", "/_s/~unchanged")));
        let script = sheet.replace("as=style", "as=script");
        assert_eq!(own(&script), Some(script.replace("https://static.example", "/_s")));
        assert_eq!(own("<https://static.example/>; rel=canonical; integrity=x"), None);
    }

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
        assert_eq!(
            link(
                "<https://static.example/a>; rel=\"x Canonical\", <https://static.example/b>; as=style; integrity=\"sha384-x\"; \
                 rel=preload, <https://static.example/c>; as=script; integrity=x; title=\"a,\\\";rel=canonical\", \
                 <https://static.example/d>; integrity=\"\"; as=style"
            )
            .as_deref(),
            Some(
                "<https://static.example/a>; rel=\"x Canonical\", <https://static.example/b>; as=style; integrity=\"sha384-x\"; \
                 rel=preload, <https://static.example/c>; as=script; integrity=x; title=\"a,\\\";rel=canonical\", \
                 </_s/d>; integrity=\"\"; as=style"
            )
        );
        for same in
            ["</a>; rel=x", "<https://static.example/", "https://static.example/", "\"<//static.example/>"]
        {
            assert_eq!(link(same), None, "{same}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_stay_as_they_are() {
        let map = map();
        for (value, becomes) in [
            (&b"/s\xc3\xbcche"[..], &b"/_s/s\xc3\xbcche"[..]),
            (b"/s\xfcche", b"/_s/s\xfcche"),
            (b"/search", b"/_s/search"),
        ] {
            assert_eq!(map_bytes(value, |url| map.url(Base::Mapped(0), url)).as_deref(), Some(becomes));
        }
        assert_eq!(map_bytes(b"s\xfcche", |url| map.url(Base::Mapped(0), url)), None);
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
