//! Properties of templates and routes, for tests and libFuzzer.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{
    BodyTemplate, CookieRules, GroupPattern, Map, MapPattern, Maps, RedirectTarget, RoutePath, Routes,
    SameSite, Template, UrlPrefixes, Values, Variable,
};

/// The same bytes for every variable.
struct Everywhere<'a>(&'a [u8]);

impl Values for Everywhere<'_> {
    fn append(&self, _: &Variable, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

/// The first line is a template, the rest is the value of all variables. Every value is one header of visible ASCII, and the text
/// outside of variables is in it as it was written. As the target of a redirect, it has the same scheme and host for all values. As
/// a body, its values are bounded and no markup.
pub fn templates(bytes: &[u8]) {
    let (text, rest) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len()));
    let Ok(text) = str::from_utf8(text) else { return };
    let from = Template::new("{request.header.a}", &Maps::new()).expect("a template");
    let values = BTreeMap::from([("x".to_owned(), "y".into())]);
    let groups = GroupPattern::new("(?s)^(.)(.*)$").expect("an expression");
    let patterns = vec![MapPattern::formed(groups, "{2}{1}").expect("groups")];
    let map = Map { from, values, patterns, ..Map::default() };
    let maps = Maps::from([("m".to_owned(), Arc::new(map))]);
    for default in ["", "/n", "https:", "https:/", "https://b.example", "b.example"] {
        let map = Map { default: default.into(), ..Map::default() };
        redirects(text, rest, &Maps::from([("m".to_owned(), Arc::new(map))]));
    }
    if let Ok(body) = BodyTemplate::new(text, "text/html", &maps, None) {
        let (body, plain) = (body.form(&Everywhere(rest), b""), body.form(&Everywhere(b""), b""));
        let markup = |body: &[u8]| body.iter().filter(|byte| matches!(byte, b'<' | b'>' | b'"')).count();
        assert!(body.len() <= text.len() + (64 << 10) && markup(&body) == markup(&plain));
    }
    let Ok(template) = Template::new(text, &maps) else { return };
    let header = template.fill(&Everywhere(rest)).header(&Everywhere(rest));
    let is_visible = |byte: &u8| matches!(byte, b' '..=b'~');
    assert!(header.as_ref().is_none_or(|value| value.as_bytes().iter().all(is_visible) && !value.is_empty()));
    if let Some(fixed) = template.fixed().filter(|fixed| !fixed.is_empty()) {
        let is_long = fixed.len() >= 16 << 10;
        assert!(is_long || header == Some(fixed));
    }
}

fn redirects(text: &str, value: &[u8], maps: &Maps) {
    let groups = GroupPattern::new("(?s)^(.?)(.*)$").expect("an expression");
    let Ok(target) = RedirectTarget::new(text, maps, Some(&groups)) else { return };
    let [one, other] =
        [value, b"x"].map(|value| target.location(&Everywhere(value), Some("a.example"), value));
    let Some((one, other)) = one.ok().zip(other.ok()) else { return };
    assert!(one.bytes().all(|byte| byte.is_ascii_graphic()), "{one:?}");
    // Facts of the connection are no values of a client, but have the same bytes here.
    let has_facts = ["{tls.", "{server.", "{request.scheme}"].iter().any(|name| text.contains(name));
    // A browser's view: backslashes are slashes, and any number of slashes stands before a host.
    let origin = |location: &str| {
        let location = location.replace('\\', "/");
        match location.split_once(':').filter(|(scheme, _)| !scheme.contains(['/', '?', '#'])) {
            Some((scheme, rest)) => {
                let host = rest.trim_start_matches('/').split(['/', '?', '#']).next();
                format!("{scheme}://{}", host.unwrap_or_default())
            }
            None if location.starts_with("//") => {
                location.split('/').find(|part| !part.is_empty()).unwrap_or_default().to_owned()
            }
            None => String::new(),
        }
    };
    assert!(has_facts || origin(&one) == origin(&other), "{text:?}: {one:?} and {other:?}");
}

/// The first line is the path of a request, each other line the path of a route: after `!` if its conditions do not hold, after
/// `=` if it is exact. A lookup finds the route that a comparison with every path finds. As an expression, a line is refused, or
/// its automaton agrees with its search for groups.
pub fn routes(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let path = lines.next().unwrap_or_default();
    let mut routes = Vec::new();
    for line in lines.filter_map(|line| str::from_utf8(line).ok()) {
        let (holds, text) = line.strip_prefix('!').map_or((true, line), |text| (false, text));
        let route = match text.strip_prefix('=') {
            Some(text) => RoutePath::Exact(text.to_owned()),
            None => RoutePath::Prefix(text.to_owned()),
        };
        routes.push((route, holds));
        if let Ok(groups) = GroupPattern::new(text) {
            assert_eq!(groups.is_match(path), groups.captures(path).is_some(), "{text:?}");
        }
    }
    let compiled = Routes::new(routes.iter().map(|(route, _)| route.clone()).zip(0..));
    let found = compiled.find(path, |index| routes[*index].1).copied();
    let fits = |route: &RoutePath| match route {
        RoutePath::Exact(own) => path == own.as_bytes(),
        RoutePath::Prefix(own) => path
            .strip_prefix(own.as_bytes())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || own.ends_with('/')),
    };
    let all = routes.iter().enumerate().filter(|(_, (route, holds))| *holds && fits(route));
    let rank = |(index, (route, _)): &(usize, &(RoutePath, bool))| {
        (route.as_str().len(), matches!(route, RoutePath::Exact(_)), std::cmp::Reverse(*index))
    };
    assert_eq!(found, all.max_by_key(rank).map(|(index, _)| index));
}

/// The first line is the beginning of a URL and a text in its place, the second line a URL of an upstream, the rest a cookie. A URL
/// that becomes a path is one of the same host for browsers, and a cookie keeps its name and value.
pub fn response_urls(bytes: &[u8]) {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (from, url, cookie) = (line(), line(), line());
    let Ok(from) = str::from_utf8(from) else { return };
    let prefixes = UrlPrefixes::new([(from.to_owned(), "/x/".to_owned())]);
    if let Some(replaced) = prefixes.replaced(url) {
        assert!(replaced.starts_with(b"/x/") && replaced.len() <= url.len() + 3);
    }
    let prefixes = UrlPrefixes::new([(from.to_owned(), "/".to_owned())]);
    if let Some(replaced) = prefixes.replaced(url) {
        assert!(!matches!(replaced.get(1), Some(b'/' | b'\\' | b'\t' | b' ')), "{replaced:?}");
    }
    let _ = prefixes.replaced_refresh(url);
    let rules = CookieRules {
        paths: vec![(from.to_owned(), "/".to_owned())],
        domains: vec![(from.to_owned(), String::new())],
        secure: Some(true),
        http_only: Some(true),
        same_site: Some(SameSite::Strict),
    };
    let pair = |cookie: &[u8]| cookie.split(|byte| *byte == b';').next().map(<[u8]>::to_vec);
    let replaced = rules.replaced(cookie);
    assert_eq!(pair(&replaced), pair(cookie));
    let flags = CookieRules { paths: Vec::new(), domains: Vec::new(), ..rules };
    let once = flags.replaced(&replaced);
    assert_eq!(flags.replaced(&once), once, "a second pass changes nothing");
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_templates() {
        drive("templates", &[], super::templates);
    }

    #[test]
    fn fuzz_routes() {
        drive("routes", &[b"\n/", b"\n=/", b"\n!/", b"/a", b"(/a+)+", b".{0,9}"], super::routes);
    }

    #[test]
    fn fuzz_response_urls() {
        let words: &[&[u8]] =
            &[b"http://a/", b"\n", b"; path=", b"; domain=", b"; secure", b"url=", b"//", b"/\\"];
        drive("response_urls", words, super::response_urls);
    }
}
