//! Checks of request targets, `Host` and framing, before any other processing.
//!
//! Two servers in a row have to agree on the end of a request and on its host. Before these checks [`http1`](crate::http1),
//! and for HTTP/2 brisk's own code or h2, already refuse or repair:
//!
//! - bare line feeds, line folding, white space before a colon, control characters in names, values and targets
//!   (RFC 9112 sections 2.2 and 5);
//! - a `Content-Length` that is not a number, too large, or repeated with another value;
//! - `Transfer-Encoding` in HTTP/1.0 or not ending in `chunked`. A `Content-Length` beside it is dropped, and the
//!   connection closes after the response (RFC 9112 section 6.3);
//! - in HTTP/2: connection headers, names in upper case, bodies unlike their `content-length`, invalid pseudo-headers.
//!
//! This module requires exactly one valid `Host`, equal to the target's authority, and refuses a repeated or empty
//! `Content-Length`, which h2 accepts; transfer codings other than `chunked`, which would be forwarded without their label;
//! `CONNECT` without a protocol, and `TRACE`; protocols other than WebSocket (RFC 8441); and targets that are not paths, or
//! of other schemes. [`path`](crate::path) refuses ambiguous paths.

use http::uri::{Authority, Uri};
use http::{HeaderValue, Method, StatusCode, Version, header};

use crate::fields::Protocol;
use crate::message::{HeaderList, RequestParts};
use crate::path::AmbiguousPath;
use crate::version;

/// `Retry-After` of the gateway's own `503` responses in seconds, unless the time is known or configured: the shortages that
/// cause them often end soon.
pub const RETRY_AFTER: HeaderValue = HeaderValue::from_static("2");

/// Refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the response.
    pub status: StatusCode,
    /// Keyword for the log and the metrics.
    pub reason: &'static str,
    /// The permitted methods, with status 405 (RFC 9110 section 15.5.6).
    pub methods: Option<Methods>,
}

/// Methods that a resource permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Methods {
    /// The usual methods, for a resource whose methods brisk does not know.
    Usual,
    /// `GET` and `HEAD`.
    Read,
    /// `GET` and `POST`.
    Form,
}

impl Methods {
    /// Value of `Allow`.
    pub const fn allow(self) -> &'static str {
        match self {
            Self::Usual => "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
            Self::Read => "GET, HEAD",
            Self::Form => "GET, POST",
        }
    }
}

impl Refusal {
    /// Creates a refusal with `status`, counted and logged under `reason`.
    pub const fn new(status: StatusCode, reason: &'static str) -> Self {
        Self { status, reason, methods: None }
    }

    /// Creates a refusal of the method, with status `405` and the permitted methods in `allow`.
    pub const fn method(methods: Methods) -> Self {
        Self { status: StatusCode::METHOD_NOT_ALLOWED, reason: "method", methods: Some(methods) }
    }

    /// Creates a refusal with status `400`.
    pub const fn bad_request(reason: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }
}

impl From<AmbiguousPath> for Refusal {
    fn from(_: AmbiguousPath) -> Self {
        Self::bad_request("path")
    }
}

/// Target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// Path on a host. The authority is empty if an HTTP/1.0 request has none.
    Path {
        /// Host and port, as written by the client.
        authority: &'a str,
    },
    /// `OPTIONS *`: the server as a whole (RFC 9110 section 9.3.7).
    Server,
}

/// Checks method, target, `Host` and framing.
///
/// # Errors
///
/// The [`Refusal`] with its status: `400`, `405` or `501`.
pub fn target(request: &RequestParts) -> Result<Target<'_>, Refusal> {
    let protocol = request.extensions.get::<Protocol>();
    // `TRACE` would return the headers that the gateway adds for the upstream. Without a protocol, `CONNECT`
    // would open a tunnel to any host.
    if request.method == Method::TRACE || (request.method == Method::CONNECT && protocol.is_none()) {
        return Err(Refusal::method(Methods::Usual));
    }
    if protocol.is_some_and(|protocol| !protocol.0.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        // RFC 9220 section 3: 501 for an unknown `:protocol`.
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "protocol"));
    }
    transfer_coding(&request.headers)?;
    content_length(&request.headers)?;
    scheme(&request.uri)?;
    let authority = authority(&request.uri, &request.headers, request.version)?;
    if request.uri.path().starts_with('/') {
        return Ok(Target::Path { authority });
    }
    if request.method == Method::OPTIONS && request.uri.path() == "*" {
        return Ok(Target::Server);
    }
    Err(Refusal::bad_request("target"))
}

/// Authority of a request whose target was checked; empty if it has none.
pub fn authority_of(request: &RequestParts) -> &str {
    let host = || request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    request.uri.authority().map(Authority::as_str).or_else(host).unwrap_or_default()
}

// RFC 9112 section 6.1: 501 for an unknown transfer coding.
fn transfer_coding(headers: &HeaderList) -> Result<(), Refusal> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING);
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if is_chunked(coding) => Ok(()),
        (Some(_), None) => Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "transfer-coding")),
        (Some(_), Some(_)) => Err(Refusal::bad_request("transfer-coding")),
    }
}

/// Whether `coding` is `chunked`, the only supported transfer coding.
pub fn is_chunked(coding: &HeaderValue) -> bool {
    coding.as_bytes().eq_ignore_ascii_case(b"chunked")
}

// RFC 9110 section 8.6: one line of digits. Of two equal values an upstream might use either, so they are refused.
fn content_length(headers: &HeaderList) -> Result<(), Refusal> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH);
    let is_length =
        |value: &HeaderValue| !value.is_empty() && value.as_bytes().iter().all(u8::is_ascii_digit);
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(()),
        (Some(length), None) if is_length(length) => Ok(()),
        _ => Err(Refusal::bad_request("content-length")),
    }
}

// RFC 9110 section 7.4: a server that is not a forward proxy refuses other schemes.
fn scheme(uri: &Uri) -> Result<(), Refusal> {
    let is_http = |scheme: &str| ["https", "http"].iter().any(|known| known.eq_ignore_ascii_case(scheme));
    if uri.scheme_str().is_none_or(is_http) { Ok(()) } else { Err(Refusal::bad_request("scheme")) }
}

// RFC 9112 section 3.2: 400 for a missing, repeated or invalid Host. RFC 9113 section 8.3.1, RFC 9114 section 4.3.1: :authority and
// Host must be equal. The authority of the target counts, also for upstreams.
fn authority<'a>(uri: &'a Uri, headers: &'a HeaderList, version: Version) -> Result<&'a str, Refusal> {
    let mut hosts = headers.get_all(header::HOST);
    let host =
        hosts.next().map(|host| host.to_str().map_err(|_| Refusal::bad_request("host"))).transpose()?;
    // RFC 9112 section 3.2: of two lines, an upstream may use another one than the gateway.
    if hosts.next().is_some() {
        return Err(Refusal::bad_request("host-repeated"));
    }
    let is_http1 = version::of(version).has_connection_header();
    let authority = match (uri.authority(), host) {
        (Some(authority), Some(host)) if !are_same(uri.scheme_str(), authority.as_str(), host) => {
            return Err(Refusal::bad_request("host-differs"));
        }
        // RFC 9112 section 3.2: `Host` is required with any target.
        (Some(_), None) if is_http1 && version::of(version).requires_host() => {
            return Err(Refusal::bad_request("host-missing"));
        }
        (Some(authority), _) => authority.as_str(),
        (None, Some(host)) => host,
        (None, None) if !version::of(version).requires_host() => return Ok(""),
        (None, None) => return Err(Refusal::bad_request("host-missing")),
    };
    if host_of(authority).is_some() { Ok(authority) } else { Err(Refusal::bad_request("host")) }
}

/// Whether two authorities are the same for URLs with `scheme`: names are compared without case, and an absent or empty port is the
/// default one (RFC 9110 section 4.2.3).
fn are_same(scheme: Option<&str>, one: &str, other: &str) -> bool {
    if one.eq_ignore_ascii_case(other) {
        return true;
    }
    let default = match scheme {
        Some(scheme) if scheme.eq_ignore_ascii_case("https") => 443,
        Some(scheme) if scheme.eq_ignore_ascii_case("http") => 80,
        _ => return false,
    };
    let port = |digits: &str| if digits.is_empty() { Some(default) } else { digits.parse::<u32>().ok() };
    let (Some((one, one_port)), Some((other, other_port))) = (split(one), split(other)) else { return false };
    one.eq_ignore_ascii_case(other) && port(one_port) == port(other_port)
}

/// Host of an authority, without port and brackets; `None` if the authority is malformed or contains user information.
pub fn host_of(authority: &str) -> Option<&str> {
    let (host, _) = split(authority)?;
    Some(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
}

/// Host with brackets, and digits of the port; `None` if the authority is malformed.
fn split(authority: &str) -> Option<(&str, &str)> {
    let end = if let Some(rest) = authority.strip_prefix('[') {
        let (host, _) = rest.split_once(']')?;
        let is_v6 = host.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'));
        (is_v6 && !host.is_empty()).then_some(host.len() + 2)?
    } else {
        let end = authority.find(':').unwrap_or(authority.len());
        (end > 0 && authority[..end].bytes().all(is_host_byte)).then_some(end)?
    };
    let (host, port) = authority.split_at(end);
    if port.is_empty() {
        return Some((host, ""));
    }
    let digits = port.strip_prefix(':')?;
    (digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some((host, digits))
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

#[cfg(test)]
mod tests {
    use crate::message::{Request, RequestBuilder};

    use super::*;

    fn checked(request: RequestBuilder) -> Result<String, &'static str> {
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        match target(&parts) {
            Ok(Target::Path { authority }) => Ok(authority.to_owned()),
            Ok(Target::Server) => Ok("*".to_owned()),
            Err(refusal) => Err(refusal.reason),
        }
    }

    fn get(target: &str) -> RequestBuilder {
        Request::get(target)
    }

    #[test]
    fn one_valid_host_is_required() {
        assert_eq!(checked(get("/").header("host", "a.example:8443")).as_deref(), Ok("a.example:8443"));
        assert_eq!(checked(get("/")), Err("host-missing"));
        assert_eq!(checked(get("/").version(Version::HTTP_10)).as_deref(), Ok(""));
        assert_eq!(checked(get("/").header("host", "a").header("host", "a")), Err("host-repeated"));
        for host in ["", "a b", "a/b", "u@a", "a:b", "a:123456", "[::1", "[x]", "a,b", ":80"] {
            assert_eq!(checked(get("/").header("host", host)), Err("host"), "{host:?}");
        }
    }

    #[test]
    fn host_and_authority_have_to_agree() {
        let absolute = || get("https://a.example/");
        assert_eq!(checked(absolute()), Err("host-missing"));
        for version in [Version::HTTP_10, Version::HTTP_2, Version::HTTP_3] {
            assert_eq!(checked(absolute().version(version)).as_deref(), Ok("a.example"), "{version:?}");
        }
        assert_eq!(checked(absolute().header("host", "A.example")).as_deref(), Ok("a.example"));
        assert_eq!(checked(absolute().header("host", "b.example")), Err("host-differs"));
    }

    #[test]
    fn a_default_port_may_be_stated_or_not() {
        for (target, host) in [
            ("https://a.example:443/", "a.example"),
            ("https://a.example/", "a.example:443"),
            ("https://a.example:/", "A.Example:443"),
            ("https://a.example:0443/", "a.example"),
            ("http://a.example:80/", "a.example"),
            ("https://[::1]:443/", "[::1]"),
            ("https://[2001:DB8::1]/", "[2001:db8::1]:443"),
            ("https://a.example:8443/", "a.example:08443"),
        ] {
            let authority = target.split('/').nth(2).expect("an authority");
            assert_eq!(
                checked(get(target).header("host", host)).as_deref(),
                Ok(authority),
                "{target} {host}"
            );
        }
        for (target, host) in [
            ("https://a.example:80/", "a.example"),
            ("http://a.example:443/", "a.example"),
            ("https://a.example:443/", "a.example:8443"),
            ("https://a.example:443/", "b.example"),
            ("https://a.example/", "a.example."),
            ("https://a.example/", "u@a.example:443"),
            ("https://a.example/", "a.example:443:443"),
            ("https://a.example/", "a.example:x"),
            ("https://[ab]:443/", "ab"),
            ("https://a.example/", ""),
        ] {
            assert_eq!(checked(get(target).header("host", host)), Err("host-differs"), "{target} {host}");
        }
    }

    #[test]
    fn only_the_chunked_coding_is_understood() {
        let with = |coding| get("/").header("host", "a").header("transfer-encoding", coding);
        assert!(checked(with("Chunked")).is_ok());
        assert_eq!(checked(with("gzip, chunked")), Err("transfer-coding"));
        assert_eq!(checked(with("chunked").header("transfer-encoding", "chunked")), Err("transfer-coding"));
    }

    #[test]
    fn a_length_is_given_once_and_in_digits() {
        let with = |length| get("/").header("host", "a").header("content-length", length);
        assert!(checked(with("04")).is_ok());
        assert_eq!(checked(with("")), Err("content-length"));
        assert_eq!(checked(with("+4")), Err("content-length"));
        assert_eq!(checked(with("4").header("content-length", "04")), Err("content-length"));
    }

    #[test]
    fn only_the_schemes_of_http_are_answered() {
        for target in ["http://a/", "https://a/", "HTTPS://a/"] {
            assert!(checked(get(target).header("host", "a")).is_ok(), "{target}");
        }
        assert_eq!(checked(get("ftp://a/")), Err("scheme"));
    }

    #[test]
    fn methods_for_proxies_and_for_debugging_are_refused() {
        let request =
            |method: &str, target: &str| Request::builder().method(method).uri(target).header("host", "a");
        assert_eq!(checked(request("TRACE", "/")), Err("method"));
        assert_eq!(checked(request("CONNECT", "a:443")), Err("method"));
        assert_eq!(checked(request("OPTIONS", "*")).as_deref(), Ok("*"));
        assert_eq!(checked(request("GET", "*")), Err("target"));
    }

    #[test]
    fn the_host_is_what_stands_before_the_port() {
        assert_eq!(host_of("a.example"), Some("a.example"));
        assert_eq!(host_of("a.example:443"), Some("a.example"));
        assert_eq!(host_of("a.example:"), Some("a.example"));
        assert_eq!(host_of("[::1]:443"), Some("::1"));
        assert_eq!(host_of("[::1]x"), None);
        assert_eq!(host_of("::1"), None);
        assert_eq!(host_of("[]"), None);
    }
}
