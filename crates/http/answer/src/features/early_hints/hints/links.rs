//! `Link` headers (RFC 8288): parsing, and selection of hints.

use std::str::FromStr;

use brisk_http::message::HeaderList;
use brisk_http_connection::interim::{LINK_BYTES, LINKS};
use http::HeaderValue;
use http::header::LINK;

/// A link that is useful before the page: with the relation `preload`, `modulepreload` or `preconnect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintLink(HeaderValue);

/// The text is not a [`HintLink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write a link as \"</app.css>; rel=preload; as=style\", with the relation preload, modulepreload or preconnect; preload \
     needs `as`"
)]
pub struct HintLinkError;

impl FromStr for HintLink {
    type Err = HintLinkError;

    fn from_str(text: &str) -> Result<Self, HintLinkError> {
        // A comma would make two links of the text.
        let is_one = members(text).count() == 1;
        let value = HeaderValue::from_str(text).map_err(|_| HintLinkError)?;
        if is_one && is_hint(text) { Ok(Self(value)) } else { Err(HintLinkError) }
    }
}

impl HintLink {
    pub(super) fn value(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// The hints among the links of a response, one value each, up to the limits of an interim response.
pub(crate) fn of(headers: &HeaderList) -> Vec<HeaderValue> {
    let values = headers.get_all(LINK).filter_map(|value| value.to_str().ok());
    let hints = values.flat_map(members).filter(|link| is_hint(link));
    let mut bytes = 0;
    let fitting = hints.take(LINKS).take_while(|link| {
        bytes += link.len();
        bytes <= LINK_BYTES
    });
    fitting.filter_map(|link| HeaderValue::from_str(link).ok()).collect()
}

/// The members of a list. Commas within `<...>` and quotes do not separate members.
fn members(list: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        let list = rest?;
        let end = find(list, b',');
        rest = list.get(end + 1..);
        Some(list[..end].trim())
    })
    .filter(|member| !member.is_empty())
}

/// Index of the first `byte` outside of `<...>` and quotes, or the length of the text.
fn find(text: &str, byte: u8) -> usize {
    let (mut is_quoted, mut is_target, mut is_escaped) = (false, false, false);
    for (place, found) in text.bytes().enumerate() {
        match found {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' if !is_target => is_quoted = !is_quoted,
            b'<' if !is_quoted => is_target = true,
            b'>' if !is_quoted => is_target = false,
            _ if found == byte && !is_quoted && !is_target => return place,
            _ => {}
        }
    }
    text.len()
}

/// Whether a single link is a hint.
fn is_hint(link: &str) -> bool {
    let Some((target, parameters)) = link.strip_prefix('<').and_then(|rest| rest.split_once('>')) else {
        return false;
    };
    let (mut relation, mut has_kind) = (None, false);
    let mut rest = parameters.trim_start();
    while let Some(parameter) = rest.strip_prefix(';') {
        let end = find(parameter, b';');
        let (name, value) = parameter[..end].split_once('=').unwrap_or((&parameter[..end], ""));
        let value = value.trim().trim_matches('"');
        match name.trim() {
            // RFC 8288 section 3.3: further `rel` parameters are ignored.
            name if name.eq_ignore_ascii_case("rel") => relation = relation.or(Some(value)),
            name if name.eq_ignore_ascii_case("as") => has_kind |= !value.is_empty(),
            _ => {}
        }
        rest = &parameter[end..];
    }
    let is = |word: &str| {
        relation.is_some_and(|relation| {
            relation.split_ascii_whitespace().any(|one| one.eq_ignore_ascii_case(word))
        })
    };
    let is_target = !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_graphic());
    is_target && rest.is_empty() && (is("modulepreload") || is("preconnect") || (is("preload") && has_kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(value: &str) -> Vec<String> {
        let mut headers = HeaderList::new();
        headers.insert(LINK, HeaderValue::from_str(value).expect("a value"));
        of(&headers).iter().map(|value| value.to_str().expect("text").to_owned()).collect()
    }

    #[test]
    fn preloads_and_preconnects_are_hints_and_each_is_apart() {
        assert_eq!(
            hints(
                "</a.css>;rel=preload;as=style, <https://b.example>; rel=\"preconnect\"; crossorigin,, </m.js>; rel=modulepreload"
            ),
            [
                "</a.css>;rel=preload;as=style",
                "<https://b.example>; rel=\"preconnect\"; crossorigin",
                "</m.js>; rel=modulepreload"
            ]
        );
        assert_eq!(
            hints("</a,b>; title=\"x, <y\\\"; z\"; REL=Preload; AS=font"),
            ["</a,b>; title=\"x, <y\\\"; z\"; REL=Preload; AS=font"]
        );
        for other in [
            "</next>; rel=next",
            "</a>; rel=preload",
            "</a>; as=style",
            "a.css; rel=preload; as=style",
            "<>; rel=preconnect",
            "</a b>; rel=preconnect",
            "</a>; title=\"; rel=preconnect",
            "</a> rel=preconnect",
            "<</a>",
            "\"",
            ",",
        ] {
            assert_eq!(hints(other), [""; 0], "{other}");
        }
    }

    #[test]
    fn a_list_without_end_is_cut() {
        let many = vec!["</a>; rel=preconnect"; 10_000].join(",");
        assert_eq!(hints(&many).len(), LINKS);
        let long = format!("</{}>; rel=preconnect", "x".repeat(3000));
        assert_eq!(hints(&format!("{long}, {long}")).len(), 1);
    }

    #[test]
    fn a_configured_link_is_one_hint() {
        assert!("</app.css>; rel=preload; as=style".parse::<HintLink>().is_ok());
        for wrong in [
            "/app.css",
            "</a>; rel=preload",
            "</a>; rel=preconnect, </b>; rel=preconnect",
            "</ä>; rel=preconnect",
        ] {
            assert_eq!(wrong.parse::<HintLink>(), Err(HintLinkError), "{wrong}");
        }
    }
}
