//! Content security policies (CSP level 3): who may load from an origin may load from its path, too.

use crate::map::Map;

/// Directives that list sources and do not end in `-src`.
const OTHERS: [&str; 6] =
    ["script-src-elem", "script-src-attr", "style-src-elem", "style-src-attr", "base-uri", "form-action"];

/// A policy in which the paths of origins are added to the lists that have these origins; `None` if nothing is to be added.
/// What is there stays: scripts go on to name the origin itself. `own` is the host that the policy comes from, with its port; without
/// it, nothing is added.
pub fn policy(value: &str, map: &Map, own: &str) -> Option<String> {
    if own.is_empty() {
        return None;
    }
    let mut is_changed = false;
    let directives = value.split_inclusive([';', ',']);
    let mut changed = String::with_capacity(value.len());
    for directive in directives {
        let body = directive.trim_end_matches([';', ',']);
        let kept = body.trim_end_matches(|c: char| c.is_ascii_whitespace());
        changed.push_str(kept);
        for place in added(kept, map) {
            is_changed = true;
            let source = format!(" https://{own}{}/", place.prefix.as_str());
            changed.push_str(&source);
        }
        changed.push_str(&directive[kept.len()..]);
    }
    is_changed.then_some(changed)
}

/// The places whose origins a directive lists.
fn added<'m>(directive: &str, map: &'m Map) -> impl Iterator<Item = &'m crate::Place> {
    let mut words = directive.split_ascii_whitespace();
    let name = words.next().unwrap_or_default().to_ascii_lowercase();
    let is_list = name.ends_with("-src") || OTHERS.contains(&&name[..]);
    let sources: Vec<_> = words.filter(|_| is_list).map(str::to_ascii_lowercase).collect();
    map.places.iter().filter(move |place| sources.iter().any(|source| names(source, place)))
}

/// Whether a source expression names a host, by a wildcard too. Schemes alone and `*` name every host.
fn names(source: &str, place: &crate::Place) -> bool {
    let origin = &place.origin;
    let rest = match source.split_once("://") {
        Some(("https", rest)) if origin.is_secure() => rest,
        // RFC 6797 is not the only upgrade: sources of http stand for https too.
        Some(("http", rest)) => rest,
        Some(_) => return false,
        None => source,
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_port = match port {
        None => origin.port() == 443 || origin.port() == 80,
        Some("*") => true,
        Some(port) => port.parse() == Ok(origin.port()),
    };
    let is_host = match host.strip_prefix('*') {
        Some(suffix) => suffix.len() > 1 && origin.host().ends_with(suffix) && suffix.starts_with('.'),
        None => host == origin.host(),
    };
    is_host && is_port
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
            "HTTPS://Static.Example:443/a/",
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
        assert_eq!(super::policy("img-src static.example", &map(), ""), None);
    }
}
