//! Responses, with security headers.

use brisk_http::conditional::is_known;
use brisk_http::validate::RETRY_AFTER;
use bytes::Bytes;
use http::header::{
    self, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use serde_json::Value;

use crate::assets::Asset;
use crate::events::Events;

/// A complete body, or an event stream.
pub(crate) type Body = Either<Full<Bytes>, Events>;

/// Content security policy: scripts and styles of this origin only, no inline code, and no conversion of text to markup
/// (Trusted Types).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

pub(crate) fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // Figures of the gateway must not stay in the cache of a browser after a logout.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

pub(crate) fn text(status: StatusCode, body: &'static str) -> Response<Body> {
    whole(status, "text/plain; charset=utf-8", body)
}

pub(crate) fn json(value: &Value) -> Response<Body> {
    json_text(value.to_string())
}

/// A response with serialized JSON.
pub(crate) fn json_text(text: impl Into<Bytes>) -> Response<Body> {
    whole(StatusCode::OK, "application/json", text)
}

pub(crate) fn events(events: Events) -> Response<Body> {
    let mut response = Response::new(Either::Right(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A response with an embedded file, compressed if the client accepts `gzip`, or `304` if the client has it already.
pub(crate) fn asset(asset: &'static Asset, status: StatusCode, asked: &HeaderMap) -> Response<Body> {
    let tag = asset.tag();
    let has_it = is_known(asked.get_all(IF_NONE_MATCH), tag.as_bytes());
    let takes_gzip = asked.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    // Compared as a whole: `gzip;q=0` is a refusal. Clients with another weight get the plain file.
    let takes_gzip = takes_gzip.flat_map(|value| value.split(',')).any(|coding| coding.trim() == "gzip");
    let compressed = if takes_gzip { asset.gzip() } else { None };
    let is_compressed = compressed.is_some();
    let body = match compressed {
        _ if has_it && status == StatusCode::OK => Bytes::new(),
        Some(compressed) => compressed,
        None => Bytes::from_static(asset.bytes),
    };
    let status = if has_it && status == StatusCode::OK { StatusCode::NOT_MODIFIED } else { status };
    let mut response = whole(status, asset.content_type, body);
    let headers = response.headers_mut();
    // A cache may apply the fields of a 304 to the copy that it has, which may be the plain one.
    if is_compressed && status != StatusCode::NOT_MODIFIED {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if status == StatusCode::OK || status == StatusCode::NOT_MODIFIED {
        // Browsers must revalidate, so that an upgraded gateway is never shown by the page of its predecessor.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(ETAG, HeaderValue::try_from(tag).expect("digits in an entity tag"));
    }
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    response
}

/// Adds the security headers, among them [`POLICY`].
pub(crate) fn protected(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    let fixed = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With `no-referrer`, browsers would send `Origin: null` with the login form.
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assets::PAGE;

    #[test]
    fn both_forms_of_a_file_share_a_weak_tag() {
        let gzip = (ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        let get = |fields: &[(HeaderName, HeaderValue)]| {
            asset(&PAGE, StatusCode::OK, &fields.iter().cloned().collect())
        };
        let [plain, compressed] = [get(&[]), get(std::slice::from_ref(&gzip))];
        assert!(!plain.headers().contains_key(CONTENT_ENCODING));
        assert_eq!(compressed.headers()[CONTENT_ENCODING], "gzip");
        let tag = &plain.headers()[ETAG];
        // RFC 9110 section 8.8.3.3: strong tags of two codings would have to differ.
        assert!(tag.as_bytes().starts_with(b"W/\"") && compressed.headers()[ETAG] == tag, "{tag:?}");
        let known = get(&[gzip, (IF_NONE_MATCH, tag.clone())]);
        assert_eq!((known.status(), &known.headers()[ETAG]), (StatusCode::NOT_MODIFIED, tag));
        assert!(!known.headers().contains_key(CONTENT_ENCODING), "the client may have the plain form");
    }
}
