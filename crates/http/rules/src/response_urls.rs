//! URLs and cookies of an upstream in its responses, as clients of the gateway need them: `Location`, `Refresh` and `Set-Cookie`.

/// Replacements of the beginnings of URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlPrefixes(Vec<(Box<str>, Box<str>)>);

impl UrlPrefixes {
    /// Replaces the first text of each pair by the second one. The longest text that a URL begins with is replaced. A text without a
    /// slash at its end stands for whole segments: `http://a` is none of `http://ab`.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let boxed = |(from, to): (String, String)| (from.into(), to.into());
        let mut pairs: Vec<(Box<str>, Box<str>)> = pairs.into_iter().map(boxed).collect();
        // Equal texts are neighbours, and stay in their order, so that the first one counts.
        pairs.sort_by(|(one, _), (other, _)| (other.len(), one).cmp(&(one.len(), other)));
        pairs.dedup_by(|one, other| one.0 == other.0);
        Self(pairs)
    }

    /// Whether no URL is replaced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The URL in place of `url`; `None` if it has none of the beginnings. A path stays a path of the same host.
    pub fn replaced(&self, url: &[u8]) -> Option<Vec<u8>> {
        let (to, rest) = self.0.iter().find_map(|(from, to)| {
            let rest = url.strip_prefix(from.as_bytes())?;
            let is_whole = from.ends_with('/') || matches!(rest.first(), None | Some(b'/' | b'?' | b'#'));
            is_whole.then_some((to.as_bytes(), rest))
        })?;
        let mut replaced = [to, rest].concat();
        if to.starts_with(b"/") {
            // Browsers take two slashes, also with a backslash or a tab, for the beginning of a host.
            let is_slash = |byte: &&u8| matches!(byte, b'/' | b'\\' | b'\t' | b' ');
            let slashes = replaced.iter().take_while(is_slash).count();
            replaced.splice(..slashes, *b"/");
        }
        Some(replaced)
    }

    /// The value in place of a `Refresh`: seconds, and a URL after `url=`.
    pub fn replaced_refresh(&self, value: &[u8]) -> Option<Vec<u8>> {
        let at = value.windows(4).position(|part| part.eq_ignore_ascii_case(b"url="))? + 4;
        let quote = usize::from(matches!(value.get(at), Some(b'"' | b'\'')));
        let (start, url) = value.split_at(at + quote);
        Some([start, &self.replaced(url)?].concat())
    }
}

/// Changes of the attributes of cookies (RFC 6265 section 4.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieRules {
    /// Beginnings of `Path`, and the texts in their place.
    pub paths: Vec<(String, String)>,
    /// Values of `Domain` without a leading dot, and the texts in their place; empty to remove the attribute.
    pub domains: Vec<(String, String)>,
    /// Whether cookies have `Secure`; `None` to leave it.
    pub secure: Option<bool>,
    /// Whether cookies have `HttpOnly`; `None` to leave it.
    pub http_only: Option<bool>,
    /// Value of `SameSite`; `None` to leave it.
    pub same_site: Option<SameSite>,
}

/// Value of `SameSite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// `Strict`.
    Strict,
    /// `Lax`.
    Lax,
    /// `None`.
    None,
    /// No attribute.
    Absent,
}

impl SameSite {
    fn value(self) -> Option<&'static str> {
        match self {
            Self::Strict => Some("Strict"),
            Self::Lax => Some("Lax"),
            Self::None => Some("None"),
            Self::Absent => None,
        }
    }
}

/// The change of one attribute.
enum Change {
    Keep,
    /// Another value; empty to remove the attribute.
    Value(Vec<u8>),
}

impl Change {
    /// A flag that is there: it need not be added.
    fn flag(wanted: Option<bool>, left: &mut Option<bool>) -> Self {
        *left = None;
        if wanted == Some(false) { Self::Value(Vec::new()) } else { Self::Keep }
    }

    /// A value that is there. A second one gets the same value.
    fn same_site(wanted: Option<SameSite>, left: &mut Option<SameSite>) -> Self {
        *left = None;
        wanted.map_or(Self::Keep, |wanted| Self::Value(wanted.value().unwrap_or_default().into()))
    }
}

impl CookieRules {
    /// The value of `Set-Cookie` in place of `value`. Attributes keep their order; those without a rule stay as they are. Costs
    /// one pass.
    pub fn replaced(&self, value: &[u8]) -> Vec<u8> {
        let mut parts = value.split(|byte| *byte == b';');
        let mut replaced = parts.next().unwrap_or_default().to_vec();
        let (mut secure, mut http_only, mut same_site) = (self.secure, self.http_only, self.same_site);
        for part in parts {
            // RFC 6265 section 5.2: the first `=` ends the name of an attribute, and
            // white space around both is ignored.
            let (name, text) = match part.iter().position(|byte| *byte == b'=') {
                Some(at) => (&part[..at], part[at + 1..].trim_ascii()),
                None => (part, &b""[..]),
            };
            let name = name.trim_ascii();
            let is = |own: &[u8]| name.eq_ignore_ascii_case(own);
            let change = if is(b"path") {
                self.path(text).map_or(Change::Keep, Change::Value)
            } else if is(b"domain") {
                self.domain(text).map_or(Change::Keep, Change::Value)
            } else if is(b"secure") {
                Change::flag(self.secure, &mut secure)
            } else if is(b"httponly") {
                Change::flag(self.http_only, &mut http_only)
            } else if is(b"samesite") {
                Change::same_site(self.same_site, &mut same_site)
            } else {
                Change::Keep
            };
            match change {
                Change::Keep => replaced.extend([b";", part].concat()),
                Change::Value(text) if text.is_empty() => {}
                Change::Value(text) => replaced.extend([b"; ", name, b"=", &text].concat()),
            }
        }
        for (flag, text) in [(secure, "; Secure"), (http_only, "; HttpOnly")] {
            if flag == Some(true) {
                replaced.extend_from_slice(text.as_bytes());
            }
        }
        if let Some(value) = same_site.and_then(SameSite::value) {
            replaced.extend([b"; SameSite=", value.as_bytes()].concat());
        }
        replaced
    }

    fn path(&self, path: &[u8]) -> Option<Vec<u8>> {
        let fits = |(from, _): &&(String, String)| path.starts_with(from.as_bytes());
        let (from, to) = self.paths.iter().filter(fits).max_by_key(|(from, _)| from.len())?;
        Some([to.as_bytes(), &path[from.len()..]].concat())
    }

    fn domain(&self, domain: &[u8]) -> Option<Vec<u8>> {
        // RFC 6265 section 5.2.3: a leading dot of the domain is ignored.
        let domain = domain.strip_prefix(b".").unwrap_or(domain);
        let (_, to) = self.domains.iter().find(|(from, _)| domain.eq_ignore_ascii_case(from.as_bytes()))?;
        Some(to.as_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect()
    }

    #[test]
    fn the_beginning_of_a_url_is_replaced() {
        let prefixes = UrlPrefixes::new(pairs(&[
            ("http://app:8080/", "/"),
            ("http://app:8080/two/", "/one/"),
            ("http://bare", "https://www.example.com"),
        ]));
        for (url, replaced) in [
            ("http://app:8080/x?y#z", Some("/x?y#z")),
            ("http://app:8080/two/x", Some("/one/x")),
            ("http://app:8080/twofold", Some("/twofold")),
            ("http://bare/x", Some("https://www.example.com/x")),
            ("http://bare", Some("https://www.example.com")),
            ("http://barefoot/x", None),
            ("http://bare:81/x", None),
            ("http://bare@evil.example/", None),
            ("http://other/", None),
            ("/two/x", None),
            ("", None),
            // A path of the same host, for browsers too.
            ("http://app:8080//evil.example/", Some("/evil.example/")),
            ("http://app:8080/\\evil.example/", Some("/evil.example/")),
            ("http://app:8080/\t/evil.example/", Some("/evil.example/")),
        ] {
            let found = prefixes.replaced(url.as_bytes()).map(|url| String::from_utf8(url).expect("text"));
            assert_eq!(found.as_deref(), replaced, "{url}");
        }
        for (value, replaced) in [
            ("0; url=http://app:8080/x", Some("0; url=/x")),
            ("5;URL='http://app:8080/x'", Some("5;URL='/x'")),
            ("0; url=http://other/", None),
            ("url=", None),
            ("5", None),
        ] {
            let found = prefixes.replaced_refresh(value.as_bytes());
            assert_eq!(found.as_deref(), replaced.map(str::as_bytes), "{value}");
        }
    }

    /// The servers of two groups are equal texts with others of their length between them.
    #[test]
    fn equal_beginnings_are_compared_once() {
        let servers = [("http://a/", "/1/"), ("http://b/", "/2/")];
        let again = [("http://a/", "/3/"), ("http://b/", "/4/")];
        assert_eq!(UrlPrefixes::new(pairs(&[servers, again].concat())), UrlPrefixes::new(pairs(&servers)));
    }

    #[test]
    fn attributes_of_cookies_are_replaced_and_others_stay() {
        let rules = CookieRules {
            paths: pairs(&[("/two/", "/one/"), ("/", "/app/")]),
            domains: pairs(&[("app.internal", "www.example.com"), ("gone.internal", "")]),
            secure: Some(true),
            http_only: Some(false),
            same_site: Some(SameSite::Lax),
        };
        for (value, replaced) in [
            ("a=1", "a=1; Secure; SameSite=Lax"),
            ("a=1; path=/two/x; Max-Age=5", "a=1; path=/one/x; Max-Age=5; Secure; SameSite=Lax"),
            ("a=path=/two/; PATH = /x", "a=path=/two/; PATH=/app/x; Secure; SameSite=Lax"),
            ("a=1;Domain=.APP.internal;HttpOnly", "a=1; Domain=www.example.com; Secure; SameSite=Lax"),
            ("a=1; domain=gone.internal; secure; samesite=none", "a=1; secure; samesite=Lax"),
            ("a=1; domain=other; path", "a=1; domain=other; path; Secure; SameSite=Lax"),
            ("", "; Secure; SameSite=Lax"),
        ] {
            let found = String::from_utf8(rules.replaced(value.as_bytes())).expect("text");
            assert_eq!(found, replaced, "{value}");
        }
        assert_eq!(CookieRules::default().replaced(b"a=1;x; Path = /y ;Secure"), b"a=1;x; Path = /y ;Secure");
    }
}
