//! Requests of a page from the events of the `DevTools` domain `Network`.

use std::collections::HashMap;

use brisk_report::text::{printable, printable_value};
use serde_json::Value;

use super::PageRequest;

/// Maximum number of [`PageRequest`]s; further ones are ignored.
const MOST: usize = 5_000;

/// Maximum number of fields of a head.
const FIELDS: usize = 200;

/// Requests so far.
#[derive(Default)]
pub(super) struct Requests {
    all: Vec<Pending>,
    /// Index of the latest request with an id; a redirect is a further request with the same id.
    by_id: HashMap<String, usize>,
    /// Time of the load event, in seconds of the browser's clock.
    loaded: Option<f64>,
}

#[derive(Default)]
struct Pending {
    request: PageRequest,
    /// Start in seconds of the browser's clock, and since 1970.
    start: f64,
    wall: f64,
    end: Option<f64>,
    is_over: bool,
}

impl Requests {
    /// Adds an event. Returns whether the page has loaded and no request is in progress.
    pub(super) fn add(&mut self, event: &Value) -> bool {
        let parameters = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => self.sent(parameters),
            "Network.responseReceived" => {
                if let Some(pending) = self.pending(parameters) {
                    pending.respond(&parameters["response"]);
                }
            }
            "Network.dataReceived" => {
                if let Some(pending) = self.pending(parameters) {
                    pending.request.body_bytes += parameters["dataLength"].as_f64().unwrap_or_default();
                }
            }
            "Network.loadingFinished" => {
                if let Some(pending) = self.pending(parameters) {
                    pending.request.bytes = parameters["encodedDataLength"].as_f64().unwrap_or_default();
                    pending.finish(parameters);
                }
            }
            "Network.loadingFailed" => {
                if let Some(pending) = self.pending(parameters) {
                    pending.request.failure = parameters["errorText"].as_str().map(printable);
                    pending.finish(parameters);
                }
            }
            // This event precedes the response, so `respond` must not reset the flag.
            "Network.requestServedFromCache" => {
                if let Some(pending) = self.pending(parameters) {
                    pending.request.is_cached = true;
                }
            }
            "Page.loadEventFired" => self.loaded = parameters["timestamp"].as_f64(),
            _ => {}
        }
        self.loaded.is_some() && self.all.iter().all(|pending| pending.is_over)
    }

    /// Begin in seconds since 1970, time of the load event, and the requests.
    pub(super) fn finish(self) -> (f64, Option<f64>, Vec<PageRequest>) {
        let Some(first) = self.all.first() else { return (0.0, None, Vec::new()) };
        let (start, wall) = (first.start, first.wall);
        let millis = |at: f64| (at - start) * 1000.0;
        let requests = self.all.into_iter().map(|pending| PageRequest {
            start_ms: millis(pending.start),
            time_ms: pending.end.map(|end| (end - pending.start) * 1000.0),
            ..pending.request
        });
        (wall, self.loaded.map(millis), requests.collect())
    }

    fn pending(&mut self, parameters: &Value) -> Option<&mut Pending> {
        let index = *self.by_id.get(parameters["requestId"].as_str()?)?;
        self.all.get_mut(index)
    }

    fn sent(&mut self, parameters: &Value) {
        let request = &parameters["request"];
        let (Some(id), Some(url)) = (parameters["requestId"].as_str(), request["url"].as_str()) else {
            return;
        };
        // Without the network: data, blobs, extensions.
        if !url.starts_with("http") || self.all.len() >= MOST {
            return;
        }
        // A redirect has no `loadingFinished` of its own: the next request with its ID is its end. This
        // precedes the insertion below, which replaces the index of the ID.
        if let Some(pending) = self.pending(parameters).filter(|_| !parameters["redirectResponse"].is_null())
        {
            pending.respond(&parameters["redirectResponse"]);
            pending.request.bytes =
                parameters["redirectResponse"]["encodedDataLength"].as_f64().unwrap_or_default();
            pending.finish(parameters);
        }
        let initiator = &parameters["initiator"];
        let text = |value: &Value| value.as_str().map(printable).unwrap_or_default();
        // A script is named by the place of the call.
        let by = initiator["url"].as_str().or_else(|| initiator["stack"]["callFrames"][0]["url"].as_str());
        let pending = Pending {
            request: PageRequest {
                url: printable_value(url),
                method: text(&request["method"]),
                kind: text(&parameters["type"]),
                priority: text(&request["initialPriority"]),
                initiator: by.map(printable_value),
                initiator_kind: text(&initiator["type"]),
                request_headers: fields(&request["headers"]),
                ..PageRequest::default()
            },
            start: parameters["timestamp"].as_f64().unwrap_or_default(),
            wall: parameters["wallTime"].as_f64().unwrap_or_default(),
            ..Pending::default()
        };
        self.by_id.insert(id.to_owned(), self.all.len());
        self.all.push(pending);
    }
}

impl Pending {
    fn respond(&mut self, response: &Value) {
        let request = &mut self.request;
        request.status =
            response["status"].as_u64().and_then(|status| status.try_into().ok()).unwrap_or_default();
        request.protocol = response["protocol"].as_str().map(printable).unwrap_or_default();
        request.headers = fields(&response["headers"]);
        request.connection =
            response["connectionId"].as_f64().map(|id| format!("{id:.0}")).unwrap_or_default();
        request.is_cached |= response["fromDiskCache"] == true || response["fromPrefetchCache"] == true;
        let timing = &response["timing"];
        // `-1` marks a step that did not occur, as on a reused connection.
        let at = |name: &str| timing[name].as_f64().filter(|time| *time >= 0.0);
        let between = |begin: &str, end: &str| {
            at(begin).zip(at(end)).map_or(0.0, |(begin, end)| (end - begin).max(0.0))
        };
        request.dns_ms = between("dnsStart", "dnsEnd");
        request.connect_ms = between("connectStart", "connectEnd");
        request.tls_ms = between("sslStart", "sslEnd");
        request.wait_ms = between("sendEnd", "receiveHeadersEnd");
        // `timing` counts from its own time, which is after the time of the event.
        let begin = timing["requestTime"].as_f64().map_or(0.0, |begin| (begin - self.start) * 1000.0);
        request.blocked_ms = (begin + at("sendStart").unwrap_or_default()).max(0.0);
    }

    fn finish(&mut self, parameters: &Value) {
        self.end = parameters["timestamp"].as_f64();
        self.is_over = true;
    }
}

/// Fields of a head with names in lower case. The browser joins the values of fields with one name by line breaks.
fn fields(headers: &Value) -> Vec<(String, String)> {
    let lines = headers.as_object().into_iter().flatten().flat_map(|(name, value)| {
        let name = printable(&name.to_ascii_lowercase());
        let values = value.as_str().unwrap_or_default().split('\n');
        values.map(move |value| (name.clone(), printable_value(value)))
    });
    lines.take(FIELDS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_become_requests_with_their_times() {
        let mut requests = Requests::default();
        let event = |method: &str, params: Value| json!({ "method": method, "params": params });
        let sent = |url: &str, at: f64, redirect: Value| {
            let request = json!({ "url": url, "method": "GET", "initialPriority": "High", "headers": { "Accept": "*/*" } });
            json!({ "requestId": "1", "request": request, "timestamp": at, "wallTime": 1000.0 + at, "type": "Document",
                "initiator": { "type": "other" }, "redirectResponse": redirect })
        };
        assert!(
            !requests.add(&event("Network.requestWillBeSent", sent("https://a.test/old", 5.0, Value::Null)))
        );
        let redirect = json!({ "status": 301, "headers": { "Location": "/new" }, "encodedDataLength": 90 });
        requests.add(&event("Network.requestWillBeSent", sent("https://a.test/new", 5.1, redirect)));
        requests.add(&event(
            "Network.requestWillBeSent",
            json!({ "requestId": "2", "request": { "url": "data:," } }),
        ));
        let timing = json!({ "requestTime": 5.1, "connectStart": 1.0, "connectEnd": 21.0, "sslStart": 11.0, "sslEnd": 21.0,
            "sendStart": 22.0, "sendEnd": 22.5, "receiveHeadersEnd": 42.5, "dnsStart": -1, "dnsEnd": -1 });
        let response = json!({ "status": 200, "protocol": "h2", "headers": { "ETag": "x\u{1b}", "Vary": "a\nb" }, "timing": timing,
            "connectionId": 7 });
        requests.add(&event("Network.responseReceived", json!({ "requestId": "1", "response": response })));
        requests.add(&event("Network.dataReceived", json!({ "requestId": "1", "dataLength": 400 })));
        requests.add(&event("Page.loadEventFired", json!({ "timestamp": 5.2 })));
        let end = json!({ "requestId": "1", "timestamp": 5.15, "encodedDataLength": 250 });
        assert!(requests.add(&event("Network.loadingFinished", end)), "loaded, and nothing is in progress");
        let (began, loaded, all) = requests.finish();
        assert_eq!((began, all.len()), (1005.0, 2));
        assert!((loaded.expect("loaded") - 200.0).abs() < 0.01);
        assert_eq!((all[0].status, all[0].bytes, all[0].path()), (301, 90.0, "/old"));
        let page = &all[1];
        assert_eq!((page.status, page.origin(), page.connection.as_str()), (200, "https://a.test", "7"));
        assert_eq!((page.connect_ms, page.tls_ms, page.dns_ms, page.wait_ms), (20.0, 10.0, 0.0, 20.0));
        assert!((page.blocked_ms - 22.0).abs() < 0.01 && (page.start_ms - 100.0).abs() < 0.01, "{page:?}");
        assert_eq!((page.bytes, page.body_bytes, page.header("etag")), (250.0, 400.0, Some("x\u{fffd}")));
        let vary = page.headers.iter().filter(|(name, _)| name == "vary").map(|(_, value)| value.as_str());
        assert_eq!(vary.collect::<Vec<_>>(), ["a", "b"]);
    }
}
