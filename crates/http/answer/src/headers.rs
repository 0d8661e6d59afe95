//! Headers on their way through the gateway: conversion of requests and responses.
//!
//! Hop-by-hop headers are removed (RFC 9110 section 7.6.1): headers named by `Connection`, and the known ones.
//! Exceptions and other headers:
//!
//! - `TE: trailers` is forwarded, because gRPC needs it.
//! - `Upgrade` is forwarded with `Connection: upgrade`, except to another version of HTTP, which would bypass the
//!   routes. A 426 keeps `Upgrade`, which names the protocol that the server requires.
//! - `Host` is forwarded as the client sent it.
//! - `Expect` is removed, because the client gets `100` as soon as the body is read.
//! - `Early-Data` is kept, and set on requests forwarded before the handshake is complete (RFC 8470).
//! - `Max-Forwards` of `OPTIONS` is lowered by one.
//! - `Via` is not added.

use brisk_http::fields::Protocol;
use brisk_http::hop_by_hop;
use brisk_http::message::{HeaderList, RequestParts};
use brisk_http::validate::Refusal;
use brisk_http::version;
use http::header;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderName, HeaderValue, Method, StatusCode};

/// Value of `Connection` in the last response on a connection (RFC 9112 section 9.6).
pub(crate) const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Name of the header that states the origins that may embed a resource (Fetch standard).
pub(crate) const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");
const EARLY: HeaderValue = HeaderValue::from_static("1");
const UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// Converts a client's request into a request for an upstream: target in origin form, `Host` from `authority`, no
/// hop-by-hop headers, cookies in one line.
pub(crate) fn prepare_request(request: &mut RequestParts, authority: &HeaderValue, target: PathAndQuery) {
    // In origin form, `Host` stays as the client sent it.
    let host = request.uri.authority().map(|_| authority.clone());
    // Before the removal of the headers that both functions read.
    let upgrade = upgrade(request);
    let trailers = accepts_trailers(&request.headers);
    let headers = &mut request.headers;
    hop_by_hop::remove(headers);
    headers.remove(header::EXPECT);
    if let Some(host) = host {
        headers.insert(header::HOST, host);
    }
    if let Some(protocol) = upgrade {
        headers.insert(header::CONNECTION, UPGRADE);
        headers.insert(header::UPGRADE, protocol);
    }
    if trailers {
        headers.insert(header::TE, TRAILERS);
    }
    if version::of(request.version).splits_cookies() {
        join_cookies(headers);
    }
    request.uri = Uri::from(target);
}

/// Checks and lowers `Max-Forwards` of an `OPTIONS` request (RFC 9110 section 7.6.2); other methods ignore it, and `TRACE` is
/// refused earlier. Returns whether the request may be forwarded; otherwise this gateway is the final recipient.
///
/// # Errors
///
/// [`Refusal`] with `400` for a value that is not one decimal number: it may be meant as a limit.
pub(crate) fn count_forward(request: &mut RequestParts) -> Result<bool, Refusal> {
    const INVALID: Refusal = Refusal::bad_request("max-forwards");
    if request.method != Method::OPTIONS {
        return Ok(true);
    }
    let mut values = request.headers.get_all(header::MAX_FORWARDS);
    let digits = match (values.next(), values.next()) {
        (None, _) => return Ok(true),
        (Some(value), None) => value.to_str().map_err(|_| INVALID)?,
        (Some(_), Some(_)) => return Err(INVALID),
    };
    // `parse` would accept a sign.
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(INVALID);
    }
    // A greater number is replaced by the greatest supported one.
    let Some(rest) = digits.parse().unwrap_or(u64::MAX).checked_sub(1) else { return Ok(false) };
    request.headers.insert(header::MAX_FORWARDS, rest.into());
    Ok(true)
}

/// Marks a request that is forwarded before the handshake is complete: exactly one `Early-Data: 1`, regardless of the
/// client's value (RFC 8470 section 5.1).
pub(crate) fn mark_early(headers: &mut HeaderList) {
    headers.insert(EARLY_DATA, EARLY);
}

/// Converts an upstream's response into a response for the client. Returns the names that its trailers must not have.
pub(crate) fn prepare_response(status: StatusCode, headers: &mut HeaderList) -> Vec<HeaderName> {
    // RFC 9110 section 15.5.22: a 426 has `Upgrade`. Clients over HTTP/2 and HTTP/3 get no header of a connection.
    let protocols: Vec<_> = match status {
        StatusCode::SWITCHING_PROTOCOLS | StatusCode::UPGRADE_REQUIRED => {
            headers.get_all(header::UPGRADE).cloned().collect()
        }
        _ => Vec::new(),
    };
    let named = hop_by_hop::remove(headers);
    if !protocols.is_empty() {
        headers.insert(header::CONNECTION, UPGRADE);
    }
    for protocol in protocols {
        headers.append(header::UPGRADE, protocol);
    }
    named
}

/// The protocol that the client wants to switch to, if permitted: from `Upgrade` (HTTP/1.1), or from extended `CONNECT`
/// (HTTP/2, RFC 8441).
fn upgrade(request: &RequestParts) -> Option<HeaderValue> {
    if let Some(Protocol(protocol)) = request.extensions.get() {
        return Some(protocol.clone());
    }
    let protocol = request.headers.get(header::UPGRADE)?;
    let mut connection = request.headers.get_all(header::CONNECTION).flat_map(hop_by_hop::tokens);
    // RFC 9110 section 7.8: `Upgrade` is valid only with the option `upgrade` in `Connection`.
    let is_asked = version::of(request.version).has_upgrade_header()
        && request.method != Method::CONNECT
        && connection.any(|token| token.eq_ignore_ascii_case("upgrade"));
    (is_asked && !hop_by_hop::tokens(protocol).any(is_http)).then(|| protocol.clone())
}

fn is_http(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or_default();
    ["h2", "h2c", "http", "tls"].iter().any(|other| name.eq_ignore_ascii_case(other))
}

fn accepts_trailers(headers: &HeaderList) -> bool {
    let mut accepted = headers.get_all(header::TE).flat_map(hop_by_hop::tokens);
    accepted.any(|coding| coding.eq_ignore_ascii_case("trailers"))
}

// RFC 9113 section 8.2.3: cookies split by HTTP/2 must be joined before HTTP/1.1.
fn join_cookies(headers: &mut HeaderList) {
    let cookies = headers.get_all(header::COOKIE);
    // Most requests have one line, which needs no copy.
    if cookies.clone().nth(1).is_none() {
        return;
    }
    let joined = cookies.map(HeaderValue::as_bytes).collect::<Vec<_>>().join(&b"; "[..]);
    let joined = HeaderValue::from_maybe_shared(joined).expect("valid values, joined by valid characters");
    headers.insert(header::COOKIE, joined);
}

#[cfg(test)]
mod tests {
    use brisk_http::message::{Request, RequestBuilder};

    use super::*;

    fn forwarded(request: RequestBuilder) -> HeaderList {
        let (mut parts, ()) = request.body(()).expect("a request").into_parts();
        prepare_request(&mut parts, &HeaderValue::from_static("a.example"), PathAndQuery::from_static("/"));
        parts.headers
    }

    fn get() -> RequestBuilder {
        Request::get("/").header("host", "a.example")
    }

    fn names(headers: &HeaderList) -> Vec<&str> {
        let mut names: Vec<_> = headers.names().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn hop_by_hop_headers_end_here_and_so_do_those_that_connection_names() {
        let headers = forwarded(
            get()
                .header("connection", "X-Own, close")
                .header("connection", "keep-alive")
                .header("x-own", "1")
                .header("keep-alive", "5")
                .header("transfer-encoding", "chunked")
                .header("proxy-authorization", "x")
                .header("expect", "100-continue")
                .header("accept", "*/*"),
        );
        assert_eq!(names(&headers), ["accept", "host"]);
    }

    #[test]
    fn connection_cannot_take_away_host_and_length() {
        let headers =
            forwarded(get().header("connection", "host, content-length").header("content-length", "3"));
        assert_eq!(names(&headers), ["content-length", "host"]);
    }

    #[test]
    fn what_says_that_a_request_may_be_a_replay_is_kept() {
        let headers = forwarded(get().header("connection", "early-data").header("early-data", "1"));
        assert_eq!(headers["early-data"], "1");
    }

    #[test]
    fn an_early_request_says_so_once() {
        let mut headers = forwarded(get().header("early-data", "0").header("early-data", "x"));
        mark_early(&mut headers);
        assert_eq!(headers.get_all("early-data").collect::<Vec<_>>(), ["1"]);
    }

    #[test]
    fn forwards_of_options_are_counted() {
        let counted = |method: &str, values: &[&str]| {
            let mut request = Request::builder().method(method).uri("/");
            for value in values {
                request = request.header("max-forwards", *value);
            }
            let mut parts = request.body(()).expect("a request").into_parts().0;
            let may_forward = count_forward(&mut parts).map_err(|refusal| refusal.status.as_u16());
            let value =
                parts.headers.get("max-forwards").map(|value| value.to_str().expect("text").to_owned());
            may_forward.map(|may_forward| may_forward.then_some(value))
        };
        let sent = |value: &str| Ok(Some(Some(value.to_owned())));
        assert_eq!(counted("OPTIONS", &[]), Ok(Some(None)));
        assert_eq!(counted("OPTIONS", &["5"]), sent("4"));
        assert_eq!(counted("OPTIONS", &["1"]), sent("0"));
        assert_eq!(counted("OPTIONS", &["010"]), sent("9"));
        assert_eq!(counted("OPTIONS", &["99999999999999999999999"]), sent("18446744073709551614"));
        for zero in ["0", "000"] {
            assert_eq!(counted("OPTIONS", &[zero]), Ok(None));
        }
        for invalid in [&[""][..], &["-1"], &["+1"], &["1.5"], &["1, 2"], &["x"], &["0", "0"]] {
            assert_eq!(counted("OPTIONS", invalid), Err(400), "{invalid:?}");
        }
        assert_eq!(counted("GET", &["0"]), sent("0"));
    }

    #[test]
    fn only_trailers_remain_of_te() {
        assert_eq!(forwarded(get().header("te", "gzip, Trailers"))["te"], "trailers");
        assert!(!forwarded(get().header("te", "gzip")).contains_key("te"));
    }

    #[test]
    fn an_upgrade_goes_on_unless_it_leads_to_another_http() {
        let websocket =
            forwarded(get().header("connection", "keep-alive, Upgrade").header("upgrade", "websocket"));
        assert_eq!(
            (&websocket["connection"], &websocket["upgrade"]),
            (&UPGRADE, &HeaderValue::from_static("websocket"))
        );
        let h2c = get().header("connection", "Upgrade, HTTP2-Settings").header("upgrade", "h2c");
        assert_eq!(names(&forwarded(h2c.header("http2-settings", "AAAA"))), ["host"]);
        assert_eq!(
            names(&forwarded(get().header("upgrade", "websocket"))),
            ["host"],
            "Connection does not name it"
        );
    }

    #[test]
    fn a_request_of_http_2_gets_its_host_and_one_line_of_cookies() {
        let request = Request::get("https://a.example/").version(http::Version::HTTP_2);
        let headers = forwarded(request.header("cookie", "a=1").header("cookie", "b=2"));
        assert_eq!(headers["host"], "a.example");
        assert_eq!(headers.get_all("cookie").collect::<Vec<_>>(), ["a=1; b=2"]);
    }

    #[test]
    fn a_response_keeps_its_upgrade_only_when_it_switches_or_requires_to() {
        for (status, left) in
            [(101, &["connection", "upgrade"][..]), (426, &["connection", "upgrade"]), (200, &[])]
        {
            let mut headers = HeaderList::new();
            headers.insert("connection", HeaderValue::from_static("Upgrade"));
            headers.insert("upgrade", HeaderValue::from_static("websocket"));
            prepare_response(StatusCode::from_u16(status).expect("a status"), &mut headers);
            assert_eq!(names(&headers), left, "{status}");
        }
    }
}
