//! Content security policies (CSP Level 3): a source list with a mapped origin also receives the path of that origin.

use crate::map::OriginMap;
use crate::origin::Origin;

/// Directives with source lists: fetch directives, and those for navigation and `base`.
const LISTS: [&str; 20] = [
    "base-uri",
    "child-src",
    "connect-src",
    "default-src",
    "fenced-frame-src",
    "font-src",
    "form-action",
    "frame-src",
    "img-src",
    "manifest-src",
    "media-src",
    "navigate-to",
    "object-src",
    "prefetch-src",
    "script-src",
    "script-src-attr",
    "script-src-elem",
    "style-src",
    "style-src-elem",
    "worker-src",
];

/// Maximum number of sources that are read, in all lists of a value.
const SOURCES: usize = 500;

/// Adds the paths of mapped origins to the source lists that contain these origins, each with the path of the source
/// expression. `None` if nothing is added. Existing sources stay, because scripts may still request the `Origin`
/// itself. `own` is the host of the response with its port; if it is empty, nothing is added.
///
/// Only the first directive of a name is effective (CSP Level 3 section 2.2.1), so only that is changed. Nothing is
/// added after 500 sources, nor beyond twice the length of `value` plus 4 KiB.
pub fn policy(value: &str, map: &OriginMap, own: &str) -> Option<String> {
    if own.is_empty() {
        return None;
    }
    let mut budget = PolicyBudget { sources: SOURCES, room: value.len() + (4 << 10) };
    let mut changed = String::with_capacity(value.len());
    let mut seen: Vec<&str> = Vec::new();
    for directive in value.split_inclusive([';', ',']) {
        let body = directive.trim_end_matches([';', ',']);
        let kept = body.trim_end_matches(|c: char| c.is_ascii_whitespace());
        changed.push_str(kept);
        let mut words = kept.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let list = LISTS.iter().find(|list| list.eq_ignore_ascii_case(name));
        if let Some(list) = list.filter(|list| !seen.contains(*list)) {
            seen.push(list);
            budget.add(words, map, own, &mut changed);
        }
        changed.push_str(&directive[kept.len()..]);
        if directive.ends_with(',') {
            // A comma begins another policy.
            seen.clear();
        }
    }
    (changed.len() > value.len()).then_some(changed)
}

/// Remaining limits for one value.
struct PolicyBudget {
    sources: usize,
    room: usize,
}

impl PolicyBudget {
    /// Appends the paths that correspond to `sources`.
    fn add<'s>(
        &mut self,
        sources: impl Iterator<Item = &'s str>,
        map: &OriginMap,
        own: &str,
        changed: &mut String,
    ) {
        // Whether the complete path of each mapped origin is already in the list.
        let mut whole = vec![false; map.origins.len()];
        for source in sources {
            let Some(left) = self.sources.checked_sub(1) else { return };
            self.sources = left;
            let Some((named, path)) = Source::read(source) else { continue };
            for (place, is_whole) in map.origins.iter().zip(&mut whole) {
                // After the complete path has been added, paths below it would be redundant.
                if *is_whole || !named.names(&place.origin) {
                    continue;
                }
                *is_whole = path == "/";
                // The complete path includes that of unchanged style sheets.
                let unchanged = place.unchanged.as_ref().filter(|_| path != "/");
                for prefix in std::iter::once(&place.prefix).chain(unchanged) {
                    let added = format!(" https://{own}{}{path}", prefix.as_str());
                    let Some(left) = self.room.checked_sub(added.len()) else { return };
                    self.room = left;
                    changed.push_str(&added);
                }
            }
        }
    }
}

/// Scheme, host and port of a source expression, in lower case.
struct Source {
    scheme: Option<String>,
    host: String,
    port: Option<String>,
}

impl Source {
    /// Parses a source expression and returns its path too, `/` if it has none. `None` for keywords, and for paths that
    /// are not understood.
    fn read(source: &str) -> Option<(Self, &str)> {
        let (scheme, rest) = match source.split_once("://") {
            Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
            None => (None, source),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = if path.is_empty() { "/" } else { path };
        // A hash such as `'sha256-a/b'` may contain slashes. Its quote shows that it
        // is no source with a path.
        if path.contains(['?', '#', '\'', '"', '<', '>']) || !OriginMap::stays_below(path) {
            return None;
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.to_owned())),
            _ => (authority, None),
        };
        Some((Self { scheme, host: host.to_ascii_lowercase(), port }, path))
    }

    /// Returns whether it matches an [`Origin`], also by a wildcard such as `*.example`. A scheme alone and `*` need no
    /// addition, since they match every host.
    fn names(&self, origin: &Origin) -> bool {
        let is_scheme = match self.scheme.as_deref() {
            Some("https") => origin.is_secure(),
            // CSP Level 3, scheme-part match: a source with `http` also matches `https`.
            Some("http") | None => true,
            Some(_) => false,
        };
        let is_port = match self.port.as_deref() {
            None => origin.port() == 443 || origin.port() == 80,
            Some("*") => true,
            Some(port) => port.parse() == Ok(origin.port()),
        };
        let is_host = match self.host.strip_prefix('*') {
            Some(suffix) => suffix.len() > 1 && origin.host().ends_with(suffix) && suffix.starts_with('.'),
            None => self.host == origin.host(),
        };
        is_scheme && is_port && is_host
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::map;

    #[test]
    fn who_may_load_from_an_origin_may_load_from_its_path() {
        let policy = |value: &str| policy(value, &map(), "www.example:8443");
        let own = "https://www.example:8443/_s/";
        for source in [
            "https://static.example",
            "static.example",
            "*.example",
            "HTTPS://Static.Example:443/",
            "http://static.example",
        ] {
            assert_eq!(
                policy(&format!("script-src 'self' {source} ; img-src x")),
                Some(format!("script-src 'self' {source} {own} ; img-src x")),
                "{source}"
            );
        }
        for same in [
            "script-src 'self' https://other.example",
            "script-src https://static.example:8443",
            "script-src *.static.example wss://static.example",
            "report-uri https://static.example/report",
            "frame-ancestors https://static.example",
            "script-src 'none'; default-src * https:",
            "",
            ";;,",
        ] {
            assert_eq!(policy(same), None, "{same}");
        }
        for (list, becomes) in [
            (
                "script-src static.example/Our/",
                "script-src static.example/Our/ https://www.example:8443/_s/Our/",
            ),
            (
                "img-src static.example/a.js b",
                "img-src static.example/a.js b https://www.example:8443/_s/a.js",
            ),
            (
                "img-src static.example/x *.example static.example/y",
                "img-src static.example/x *.example static.example/y https://www.example:8443/_s/x https://www.example:8443/_s/",
            ),
            (
                "img-src x; IMG-src static.example, img-src static.example",
                "img-src x; IMG-src static.example, img-src static.example https://www.example:8443/_s/",
            ),
        ] {
            assert_eq!(policy(list).as_deref(), Some(becomes), "{list}");
        }
        for same in ["/a/../b", "/%2e%2e/b", "/a?b", "/a#b", "/\\..\\b"] {
            assert_eq!(policy(&format!("img-src https://static.example{same}")), None, "{same}");
        }
        assert_eq!(super::policy("img-src static.example", &map(), ""), None);
    }
    #[test]
    fn a_source_with_a_path_permits_unchanged_style_sheets_too() {
        let mut map = map();
        map.origins[0].unchanged = Some(map.origins[0].prefix.unchanged());
        for (source, added) in [
            (
                "https://static.example/our/",
                " https://www.example/_s/our/ https://www.example/_s/~unchanged/our/",
            ),
            // The whole path includes them.
            ("https://static.example", " https://www.example/_s/"),
        ] {
            let list = format!("style-src {source}");
            assert_eq!(policy(&list, &map, "www.example"), Some(format!("{list}{added}")));
        }
    }

    #[test]
    fn a_policy_grows_no_more_than_its_bound() {
        let place = |number: usize| crate::MappedOrigin {
            origin: format!("https://o{number}.e").parse().expect("an origin"),
            prefix: format!("/_{number}").parse().expect("a prefix"),
            unchanged: None,
        };
        let map = OriginMap { origins: (0..32).map(place).collect() };
        for text in ["img-src *.e/x;", "a-src *.e;", "img-src *.e,", "img-src a *.e/b *.e/c *.e/d "] {
            let long = text.repeat((64 << 10) / text.len());
            let length = policy(&long, &map, "www.example").map_or(0, |changed| changed.len());
            assert!(length <= 2 * long.len() + (4 << 10), "{text}: {length}");
        }
        let many = format!("img-src {}*.e", "x.example ".repeat(SOURCES));
        assert_eq!(policy(&many, &map, "www.example"), None);
    }
}
