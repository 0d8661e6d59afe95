//! Access control of requests: the dashboard's own host, no foreign pages, and authentication.

use std::net::IpAddr;
use std::time::Instant;

use brisk_http::validate::host_of;
use http::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, ORIGIN};
use http::{Method, Request};

use crate::settings::DashboardSettings;
use crate::token::TokenVerifier;

/// Name of the cookie that [`log_in`](crate::login::log_in) sets.
pub(crate) const NAME: &str = "brisk-dashboard";

/// Returns whether each host in the request is a host of the dashboard. Rejecting other names prevents DNS rebinding. A
/// request without `Host` is rejected too; browsers always send one.
pub(crate) fn is_for_own_host<B>(settings: &DashboardSettings, request: &Request<B>) -> bool {
    // RFC 9112 section 3.2.2: an absolute URI replaces `Host`. Both have to be own, so that neither can hide
    // the other.
    let in_uri = request.uri().authority().is_none_or(|authority| is_own(settings, authority.as_str()));
    let mut hosts = request.headers().get_all(HOST).iter();
    let own = |host: &http::HeaderValue| host.to_str().is_ok_and(|authority| is_own(settings, authority));
    let first = hosts.next().is_some_and(own);
    // RFC 9112 section 3.2 forbids a second `Host`: another reader of the request might take that one.
    in_uri && first && hosts.next().is_none()
}

fn is_own(settings: &DashboardSettings, authority: &str) -> bool {
    // `Authority` of the crate `http` accepts "[::1].evil.test".
    let Some(host) = host_of(authority) else { return false };
    if let Ok(address) = host.parse::<IpAddr>() {
        // A dashboard on loopback is not reachable by another address, so such a name would be foreign.
        return !settings.is_local() || address.to_canonical().is_loopback();
    }
    host.eq_ignore_ascii_case("localhost")
        || settings.names.iter().any(|name| host.eq_ignore_ascii_case(name))
}

/// Returns whether a page of another origin caused the request (`Sec-Fetch-Site`). Such a page may link to the dashboard,
/// but nothing more.
pub(crate) fn is_from_other_origin<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let is = |name: &str, values: &[&str]| {
        headers.get(name).is_some_and(|value| values.iter().any(|wanted| value == wanted))
    };
    let site = "sec-fetch-site";
    // `none` is a request of the user, such as a bookmark, and of no page.
    let foreign = headers.contains_key(site) && !is(site, &["same-origin", "none"]);
    let is_visit = request.method() == Method::GET
        && request.uri().path() == "/"
        && is("sec-fetch-mode", &["navigate"])
        && is("sec-fetch-dest", &["document"]);
    (foreign && !is_visit) || !is_own_origin(headers)
}

/// Returns whether the `Origin` header, if present, matches `Host`. Older browsers send no Fetch Metadata.
fn is_own_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let origin = origin.as_bytes();
    // With either scheme: `Host` has none to compare, and a TLS terminator may be in front of the dashboard.
    let rest = origin.strip_prefix(b"https://").or_else(|| origin.strip_prefix(b"http://"));
    rest.is_some() && rest == headers.get(HOST).map(http::HeaderValue::as_bytes)
}

/// An authorized client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Authorized {
    /// End of the authorization; `None` if unlimited.
    pub(crate) until: Option<Instant>,
}

/// Authorizes a client that sends the token in `Authorization: Bearer` or a cookie that was issued for it. Without a
/// configured token, every client is authorized.
pub(crate) fn authorize(
    settings: &DashboardSettings,
    verifier: &TokenVerifier,
    headers: &HeaderMap,
) -> Option<Authorized> {
    let without_end = Some(Authorized { until: None });
    let Some(token) = &settings.token else { return without_end };
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if let Some(presented) = bearer {
        return without_end.filter(|_| verifier.is_token(token, presented.trim_ascii()));
    }
    let texts = headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    // The cookie of another service on this host may be no text.
    let pairs = texts.filter_map(|pair| std::str::from_utf8(pair).ok()?.trim().split_once('='));
    // Several cookies of one name are accepted, because another service on this host may have set one. The limit bounds
    // the number of MAC computations.
    let mut own = pairs.filter(|(name, _)| *name == NAME).take(4);
    let until = own.find_map(|(_, value)| verifier.valid_until(token, value))?;
    Some(Authorized { until: Some(until) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(listen: &str) -> DashboardSettings {
        let names = vec!["dash.example".to_owned()];
        DashboardSettings { names, ..DashboardSettings::new(listen.parse().expect("an address")) }
    }

    fn asked(listen: &str, host: &str) -> bool {
        is_for_own_host(&settings(listen), &Request::get("/").header(HOST, host).body(()).expect("a request"))
    }

    #[test]
    fn only_own_hosts_are_answered() {
        let (local, open) = ("127.0.0.1:8440", "0.0.0.0:8440");
        for host in
            ["127.0.0.1:8440", "localhost", "LOCALHOST:1", "[::1]:8440", "dash.example", "Dash.Example:8440"]
        {
            assert!(asked(local, host) && asked(open, host), "{host}");
        }
        assert!(asked(open, "192.0.2.1:8440") && !asked(local, "192.0.2.1:8440"));
        for host in [
            "evil.test",
            "evil.test:8440",
            "localhost.evil.test",
            "127.0.0.1.evil.test",
            "localhost@evil.test",
            "evil@localhost",
            "[::1].evil.test",
            "[::1]evil.test:8440",
            "127.0.0.1:8440.evil.test",
            "",
        ] {
            assert!(!asked(local, host) && !asked(open, host), "{host}");
        }
        let settings = settings(local);
        let none = Request::get("/").body(()).expect("a request");
        assert!(!is_for_own_host(&settings, &none));
        let two = Request::get("/")
            .header(HOST, "localhost")
            .header(HOST, "evil.test")
            .body(())
            .expect("a request");
        assert!(!is_for_own_host(&settings, &two));
        let absolute =
            Request::get("http://evil.test/").header(HOST, "localhost").body(()).expect("a request");
        assert!(!is_for_own_host(&settings, &absolute));
    }

    #[test]
    fn a_strangers_page_can_lead_here_and_ask_for_nothing() {
        let asked = |path: &str, site: &str, mode: &str| {
            let request = Request::get(path).header("sec-fetch-site", site).header("sec-fetch-mode", mode);
            let request = request.header("sec-fetch-dest", "document").body(()).expect("a request");
            !is_from_other_origin(&request)
        };
        assert!(asked("/", "cross-site", "navigate"));
        assert!(asked("/", "none", "navigate"));
        assert!(asked("/events", "same-origin", "cors"));
        for (path, site) in [("/events", "cross-site"), ("/events", "same-site"), ("/app.js", "cross-site")] {
            assert!(!asked(path, site, "no-cors"), "{path} {site}");
        }
        assert!(!asked("/api/history", "cross-site", "navigate"));
        let posted = |origin: &str| {
            let request = Request::post("/login").header(HOST, "localhost:8440").header(ORIGIN, origin);
            !is_from_other_origin(&request.body(()).expect("a request"))
        };
        assert!(posted("http://localhost:8440") && posted("https://localhost:8440"));
        for origin in ["http://localhost", "http://evil.test", "null", "localhost:8440", ""] {
            assert!(!posted(origin), "{origin}");
        }
    }
}
