//! HTTP properties of a server: HSTS, security headers, cookies, and redirects from port 80.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use brisk_http_client::Response;
use brisk_http_client::http1::final_head;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use crate::contact::AuditTarget;
use crate::error::AuditError;

/// Maximum number of redirects followed.
const HOPS: usize = 5;

/// HTTP properties.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Http {
    /// Status of the response to `GET /`.
    pub status: u16,
    /// `Strict-Transport-Security`; `None` without.
    pub hsts: Option<Hsts>,
    /// Other security headers that are present.
    pub headers: BTreeMap<String, String>,
    /// Cookies that lack an attribute.
    pub cookies: Vec<Cookie>,
    /// Behaviour of port 80.
    pub plain: PlainHttp,
}

/// `Strict-Transport-Security` (RFC 6797).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hsts {
    /// `max-age` in seconds; `None` if it cannot be parsed, which makes the header ineffective.
    pub max_age: Option<u64>,
    /// Whether `includeSubDomains` is set.
    pub include_subdomains: bool,
    /// Whether `preload` is set.
    pub preload: bool,
}

/// A cookie that lacks an attribute. Its value is not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cookie {
    /// Name of the cookie.
    pub name: String,
    /// `Secure`, `HttpOnly` or `SameSite`.
    pub lacks: Vec<&'static str>,
}

/// Behaviour of port 80.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlainHttp {
    /// Not tested.
    #[default]
    Unasked,
    /// No listener, which is safe.
    Closed,
    /// A listener at port 80 or at a redirect's target, without an HTTP response.
    Unjudged,
    /// Redirects in order; the last one leads to HTTPS on the same host.
    Redirects(Vec<String>),
    /// A redirect to another host before the one to HTTPS: browsers do not learn HSTS of the first host.
    OtherHost(Vec<String>),
    /// A response without redirect to HTTPS, with its status.
    Answers(u16),
}

impl Hsts {
    fn read(value: &str) -> Self {
        let mut hsts = Self::default();
        for directive in value.split(';') {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "max-age" => hsts.max_age = value.trim().trim_matches('"').parse().ok(),
                "includesubdomains" => hsts.include_subdomains = true,
                "preload" => hsts.preload = true,
                _ => {}
            }
        }
        hsts
    }

    /// Whether the header fulfils the conditions of the preload list: a year, subdomains, `preload` (hstspreload.org).
    pub fn fits_preload_list(&self) -> bool {
        self.preload && self.include_subdomains && self.max_age.is_some_and(|age| age >= 31_536_000)
    }
}

/// Request whose response is judged.
pub(crate) fn request(contact: &AuditTarget, path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: brisk-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        authority(&contact.host, contact.port, 443)
    )
}

/// Reads a head and skips interim ones; `None` if there is none in time, or it is not HTTP.
pub(crate) async fn head(stream: &mut (impl AsyncRead + Unpin), deadline: Instant) -> Option<Response> {
    timeout_at(deadline.into(), final_head(stream)).await.ok()?.ok()
}

/// Sends a request over an open connection and reads the head of the response.
pub(crate) async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &str,
    deadline: Instant,
) -> Option<Response> {
    timeout_at(deadline.into(), stream.write_all(request.as_bytes())).await.ok()?.ok()?;
    // An error of the flush shows at the read.
    let _ = timeout_at(deadline.into(), stream.flush()).await;
    head(stream, deadline).await
}

/// Properties in the head of a response.
pub(crate) fn judge(head: &Response) -> Http {
    const LOOKED_FOR: [&str; 8] = [
        "alt-svc",
        "content-security-policy",
        "permissions-policy",
        "public-key-pins",
        "referrer-policy",
        "server",
        "x-content-type-options",
        "x-frame-options",
    ];
    let named = LOOKED_FOR.iter().filter_map(|name| {
        // A policy may have kilobytes, and each report contains it.
        let value: String = head.header(name)?.chars().take(200).collect();
        Some(((*name).to_owned(), value))
    });
    let cookies = head.headers.iter().filter(|(name, _)| name == "set-cookie");
    Http {
        status: head.status,
        hsts: head.header("strict-transport-security").map(Hsts::read),
        headers: named.collect(),
        cookies: cookies.filter_map(|(_, value)| cookie(value)).collect(),
        plain: PlainHttp::Unasked,
    }
}

fn cookie(value: &str) -> Option<Cookie> {
    let mut parts = value.split(';');
    let name = parts.next()?.split('=').next()?.trim();
    let attributes: Vec<String> =
        parts.map(|part| part.split('=').next().unwrap_or("").trim().to_ascii_lowercase()).collect();
    let all = [("Secure", "secure"), ("HttpOnly", "httponly"), ("SameSite", "samesite")];
    let lacks: Vec<_> = all
        .iter()
        .filter(|(_, own)| !attributes.iter().any(|had| had == own))
        .map(|(name, _)| *name)
        .collect();
    (!lacks.is_empty()).then(|| Cookie { name: name.chars().take(64).collect(), lacks })
}

/// Follows redirects from `http://host:port/` to HTTPS.
pub(crate) async fn plain(contact: &AuditTarget, port: u16) -> Result<PlainHttp, AuditError> {
    contact.step("port 80");
    let mut url = format!("http://{}/", authority(&contact.host, port, 80));
    let mut hops = Vec::new();
    let (mut at_port, mut path) = (port, "/".to_owned());
    for _ in 0..HOPS {
        let deadline = contact.place()?;
        // Always the audited address: the server must not be able to direct the audit to other machines by a
        // redirect.
        let address = std::net::SocketAddr::new(contact.address.ip(), at_port);
        let Ok(Ok(mut stream)) = timeout_at(deadline.into(), TcpStream::connect(address)).await else {
            // Where a redirect leads to a port that does not connect, nothing is known.
            return Ok(if hops.is_empty() { PlainHttp::Closed } else { PlainHttp::Unjudged });
        };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: brisk-probe\r\nConnection: close\r\n\r\n",
            authority(&contact.host, at_port, 80)
        );
        let Some(head) = ask(&mut stream, &request, deadline).await else { return Ok(PlainHttp::Unjudged) };
        let location = head.header("location").filter(|_| (300..400).contains(&head.status));
        let Some(location) = location else { return Ok(PlainHttp::Answers(head.status)) };
        let next = resolved(&url, location);
        hops.push(next.chars().take(300).collect());
        let is_own = |rest: &str| {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
            let host = if authority.ends_with(']') {
                authority
            } else {
                authority.rsplit_once(':').map_or(authority, |(host, _)| host)
            };
            is_same(host, &contact.host)
        };
        // RFC 3986 section 3.1: schemes are case-insensitive.
        let (scheme, rest) = next.split_once("://").unwrap_or_default();
        match scheme.to_ascii_lowercase().as_str() {
            "https" if is_own(rest) => return Ok(PlainHttp::Redirects(hops)),
            "http" if is_own(rest) => {}
            _ => return Ok(PlainHttp::OtherHost(hops)),
        }
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        at_port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80);
        let rest = rest.split('#').next().unwrap_or("");
        path = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        // A space or a control character would begin another part of the next request.
        if path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Ok(PlainHttp::Answers(head.status));
        }
        url = next;
    }
    // No registered status: the redirects have no end.
    Ok(PlainHttp::Answers(310))
}

/// The URL to which `location` leads from `base`, an `http` URL (RFC 3986 section 5.2). Servers remove the dot segments.
fn resolved(base: &str, location: &str) -> String {
    let has_scheme = location.find([':', '/', '?', '#']).is_some_and(|at| location[at..].starts_with(':'));
    if has_scheme {
        return location.to_owned();
    }
    if location.starts_with("//") {
        return format!("http:{location}");
    }
    let start = base.find("://").map_or(0, |at| at + 3);
    let part = |ends: &[char]| base[start..].find(ends).map_or(base, |at| &base[..start + at]);
    let path = part(&['?', '#']);
    let kept = match location.as_bytes().first() {
        Some(b'/') => part(&['/', '?', '#']),
        Some(b'?') => path,
        Some(b'#') | None => part(&['#']),
        // RFC 3986 section 5.2.3: the last segment is replaced.
        Some(_) => match path[start..].rfind('/') {
            Some(at) => &path[..=start + at],
            None => return format!("{path}/{location}"),
        },
    };
    format!("{kept}{location}")
}

/// Whether two hosts are equal, as names or as addresses, with or without brackets.
fn is_same(one: &str, other: &str) -> bool {
    let address = |host: &str| host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    match (address(one), address(other)) {
        (None, None) => one.eq_ignore_ascii_case(other),
        (one, other) => one == other,
    }
}

fn authority(host: &str, port: u16, default: u16) -> String {
    // RFC 3986 section 3.2.2.
    let bare = host.trim_matches(['[', ']']);
    let host = if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() };
    if port == default { host } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hsts_is_read_as_clients_read_it() {
        let hsts = Hsts::read("max-age=\"63072000\"; includeSubDomains ;PRELOAD");
        assert_eq!(hsts, Hsts { max_age: Some(63_072_000), include_subdomains: true, preload: true });
        assert!(hsts.fits_preload_list());
        assert_eq!(Hsts::read("includeSubDomains").max_age, None);
        assert!(!Hsts::read("max-age=31535999; includeSubDomains; preload").fits_preload_list());
    }

    #[test]
    fn addresses_have_brackets_and_are_compared_as_addresses() {
        assert_eq!(authority("::1", 8443, 443), "[::1]:8443");
        assert_eq!(authority("a.test", 80, 80), "a.test");
        assert!(is_same("[::1]", "0:0:0:0:0:0:0:1") && is_same("A.test", "a.test"));
        assert!(!is_same("[::2]", "::1") && !is_same("a.test", "::1"));
    }

    #[test]
    fn a_relative_location_is_resolved() {
        for (base, location, url) in [
            ("http://a.test/", "index.html", "http://a.test/index.html"),
            ("http://a.test", "index.html", "http://a.test/index.html"),
            ("http://a.test:81/b/c?d=/e", "f?g=http://h/", "http://a.test:81/b/f?g=http://h/"),
            ("http://a.test/b?c", "?d", "http://a.test/b?d"),
            ("http://a.test/b?c", "", "http://a.test/b?c"),
            ("http://a.test?c", "/d", "http://a.test/d"),
            ("http://a.test/b", "//b.test/", "http://b.test/"),
            ("http://a.test/b", "HTTPS://a.test/", "HTTPS://a.test/"),
        ] {
            assert_eq!(resolved(base, location), url, "{location:?} at {base:?}");
        }
    }

    #[test]
    fn a_cookie_is_named_with_what_it_lacks_and_without_its_value() {
        assert_eq!(cookie("a=secret; Secure; HttpOnly; SameSite=Lax"), None);
        let found = cookie("a=secret; path=/; HTTPONLY").expect("it lacks something");
        assert_eq!(found, Cookie { name: "a".to_owned(), lacks: vec!["Secure", "SameSite"] });
    }

    #[tokio::test]
    async fn a_head_is_judged_by_its_fields() {
        let bytes =
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nStrict-Transport-Security: max-age=1\r\nX-Frame-Options: DENY\r\n\r\n";
        let http = judge(&final_head(&mut &bytes[..]).await.expect("a head"));
        assert_eq!(http.hsts.and_then(|hsts| hsts.max_age), Some(1));
        assert_eq!(http.headers.get("x-frame-options").map(String::as_str), Some("DENY"));
    }
}
