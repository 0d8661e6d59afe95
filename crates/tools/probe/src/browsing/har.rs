//! A page load as a HAR file (HAR 1.2), which `brisk check --har` and browsers read.

use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use super::{PageLoad, PageRequest};

/// The page load as a document of HAR 1.2, without bodies.
pub fn har(load: &PageLoad) -> Value {
    let entries: Vec<_> = load.requests.iter().map(|request| entry(load, request)).collect();
    json!({
        "log": {
            "version": "1.2",
            "creator": { "name": "brisk probe", "version": env!("CARGO_PKG_VERSION") },
            "browser": { "name": load.browser, "version": "" },
            "pages": [{
                "id": "page_1",
                "title": load.url,
                "startedDateTime": at(load, 0.0),
                "pageTimings": { "onContentLoad": -1, "onLoad": load.load_ms.unwrap_or(-1.0) },
            }],
            "entries": entries,
        }
    })
}

fn entry(load: &PageLoad, request: &PageRequest) -> Value {
    let fields = |all: &[(String, String)]| {
        let field = |(name, value): &(String, String)| json!({ "name": name, "value": value });
        all.iter().map(field).collect::<Vec<_>>()
    };
    let time = request.time_ms.unwrap_or_default();
    let connecting = request.dns_ms + request.connect_ms;
    // HAR 1.2: the parts without -1 add up to `time`, and `connect` includes `ssl`. Chromium counts the
    // connection as blocked, so it is subtracted, and `receive` is the rest.
    let blocked = (request.blocked_ms - connecting).max(0.0);
    let receive = (time - request.blocked_ms - request.wait_ms).max(0.0);
    let known = |time: f64| if time > 0.0 { time } else { -1.0 };
    json!({
        "pageref": "page_1",
        "startedDateTime": at(load, request.start_ms),
        "time": time,
        "request": {
            "method": request.method,
            "url": request.url,
            "httpVersion": request.protocol,
            "headers": fields(&request.request_headers),
            "queryString": [],
            "cookies": [],
            "headersSize": -1,
            "bodySize": -1,
        },
        "response": {
            "status": request.status,
            "statusText": "",
            "httpVersion": request.protocol,
            "headers": fields(&request.headers),
            "cookies": [],
            "content": { "size": request.body_bytes, "mimeType": request.header("content-type").unwrap_or_default() },
            "redirectURL": request.header("location").unwrap_or_default(),
            "headersSize": -1,
            "bodySize": -1,
            "_transferSize": request.bytes,
            "_error": request.failure,
        },
        "cache": {},
        "timings": {
            "blocked": blocked,
            "dns": known(request.dns_ms),
            "connect": known(request.connect_ms),
            "ssl": known(request.tls_ms),
            "send": 0,
            "wait": request.wait_ms,
            "receive": receive,
        },
        "connection": request.connection,
        // Names with an underscore are extensions (HAR 1.2); these are the names of Chromium's own export.
        "_priority": request.priority,
        "_resourceType": request.kind.to_ascii_lowercase(),
        "_initiator": { "type": request.initiator_kind, "url": request.initiator },
        "_fromCache": request.is_cached.then_some("memory"),
    })
}

/// A time of the load in RFC 3339.
fn at(load: &PageLoad, millis: f64) -> String {
    let begin = Duration::seconds_f64(load.began) + Duration::milliseconds(millis as i64);
    let at = OffsetDateTime::UNIX_EPOCH.checked_add(begin).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    at.format(&Rfc3339).unwrap_or_default()
}
