//! Chromium's net log: order of its HTTP/2 requests, and their results.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// A request over HTTP/2. Moments are places in the log: a greater one came later.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) host: String,
    pub(crate) path: String,
    /// When it was sent.
    pub(crate) asked: usize,
    /// When the head of the answer came; interim answers do not count.
    pub(crate) answered: Option<usize>,
    /// When the answer was there whole.
    pub(crate) complete: Option<usize>,
    pub(crate) status: String,
    /// `Content-Encoding`.
    pub(crate) coding: Option<String>,
    /// Bytes of the body as they came.
    pub(crate) bytes: u64,
}

/// The requests of a run.
#[derive(Debug)]
pub(crate) struct NetLog(Vec<Exchange>);

impl NetLog {
    pub(crate) fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).expect("a net log");
        let log: Value = serde_json::from_str(&text).expect("a net log that is complete");
        let number = |name: &str| log["constants"]["logEventTypes"][name].as_u64().expect("a type of events");
        let (asked, head, data) = (
            number("HTTP2_SESSION_SEND_HEADERS"),
            number("HTTP2_SESSION_RECV_HEADERS"),
            number("HTTP2_SESSION_RECV_DATA"),
        );
        let mut exchanges: Vec<Exchange> = Vec::new();
        let mut places = HashMap::new();
        for (at, event) in log["events"].as_array().expect("events").iter().enumerate() {
            let params = &event["params"];
            let stream = (event["source"]["id"].as_u64(), params["stream_id"].as_u64());
            let kind = event["type"].as_u64().expect("a type");
            if kind == asked {
                places.insert(stream, exchanges.len());
                let (host, path) = (header(params, ":authority"), header(params, ":path"));
                exchanges.push(Exchange {
                    host: host.unwrap_or_default(),
                    path: path.unwrap_or_default(),
                    asked: at,
                    ..Exchange::default()
                });
            } else if let (true, Some(&place)) = (kind == head || kind == data, places.get(&stream)) {
                exchanges[place].receive(at, params, kind == data);
            }
        }
        Self(exchanges)
    }

    /// What was asked of `host`, in the order of the requests, without what browsers ask for by themselves.
    pub(crate) fn of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a Exchange> {
        self.0.iter().filter(move |exchange| exchange.host == host && exchange.path != "/favicon.ico")
    }
}

impl Exchange {
    fn receive(&mut self, at: usize, params: &Value, data: bool) {
        if data {
            self.bytes += params["size"].as_u64().unwrap_or(0);
        } else {
            let status = header(params, ":status").unwrap_or_default();
            if status.starts_with('1') {
                return;
            }
            if self.answered.is_none() {
                (self.answered, self.status, self.coding) =
                    (Some(at), status, header(params, "content-encoding"));
            }
        }
        if params["fin"].as_bool() == Some(true) {
            self.complete = Some(at);
        }
    }
}

/// A header of an event, which lists them as `name: value`.
fn header(params: &Value, name: &str) -> Option<String> {
    let headers = params["headers"].as_array()?.iter().filter_map(Value::as_str);
    headers.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned).next()
}
