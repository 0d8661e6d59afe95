//! Parser of HAR files, version 1.2, as saved by browsers: the properties of each request that the analysis needs.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use brisk_rewrite::Origin;
use serde::Deserialize;
use serde_json::Value;

use crate::HarError;
use crate::start::nanoseconds;

/// Maximum file size: 256 MiB. Larger files contain response bodies; files without them are a hundred times smaller.
const LARGEST: u64 = 256 << 20;

/// More requests than any page makes.
const MOST: usize = 5_000;

/// Longest time of a request in milliseconds: a day.
const LONGEST: f64 = 86_400_000.0;

#[derive(Debug, Deserialize)]
struct Document {
    log: Log,
}

#[derive(Debug, Deserialize)]
struct Log {
    #[serde(default, deserialize_with = "if_understood")]
    pages: Vec<Page>,
    entries: Vec<Element>,
}

/// An element of `log.entries`: an [`Entry`], or the reason why it is none. Other entries are still of use.
#[derive(Debug)]
struct Element(Result<Box<Entry>, String>);

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As any JSON first: a fault within an entry must not end the reading of the file.
        let value = Value::deserialize(deserializer)?;
        Ok(Self(Entry::deserialize(value).map(Box::new).map_err(|error| error.to_string())))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(default, deserialize_with = "if_understood")]
    id: Option<String>,
    #[serde(default, deserialize_with = "if_understood")]
    page_timings: Option<PageTimings>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageTimings {
    #[serde(default, deserialize_with = "number")]
    on_load: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default, deserialize_with = "if_understood")]
    pageref: Option<String>,
    #[serde(default)]
    started_date_time: Value,
    #[serde(default, deserialize_with = "number")]
    time: Option<f64>,
    request: Request,
    #[serde(default, deserialize_with = "if_understood")]
    response: Response,
    #[serde(default, deserialize_with = "if_understood")]
    timings: Option<Timings>,
    #[serde(default)]
    connection: Value,
    #[serde(rename = "_initiator", default, deserialize_with = "if_understood")]
    initiator: Option<Initiator>,
    /// Name of the cache, as Chromium writes it, or `true`.
    #[serde(rename = "_fromCache", default)]
    from_cache: Value,
    /// Source of the response, as Safari writes it; `Memory Cache` or `Disk Cache` end with `Cache`.
    #[serde(rename = "_fetchType", default, deserialize_with = "if_understood")]
    fetch_type: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    #[serde(default, deserialize_with = "if_understood")]
    method: Option<String>,
    url: String,
    #[serde(default, deserialize_with = "if_understood")]
    http_version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default, deserialize_with = "number")]
    status: Option<f64>,
    #[serde(default, deserialize_with = "if_understood")]
    http_version: Option<String>,
    #[serde(default, deserialize_with = "number")]
    headers_size: Option<f64>,
    #[serde(default, deserialize_with = "number")]
    body_size: Option<f64>,
    #[serde(rename = "_transferSize", default, deserialize_with = "number")]
    transfer_size: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct Timings {
    #[serde(default, deserialize_with = "number")]
    blocked: Option<f64>,
    #[serde(default, deserialize_with = "number")]
    dns: Option<f64>,
    #[serde(default, deserialize_with = "number")]
    connect: Option<f64>,
    #[serde(default, deserialize_with = "number")]
    ssl: Option<f64>,
    #[serde(default, deserialize_with = "number")]
    send: Option<f64>,
    #[serde(default, deserialize_with = "number")]
    wait: Option<f64>,
    #[serde(default, deserialize_with = "number")]
    receive: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Initiator {
    /// Of `WebPageTest`.
    Url(String),
    /// Of Chromium.
    Cause {
        #[serde(default, deserialize_with = "if_understood")]
        url: Option<String>,
        #[serde(rename = "type", default, deserialize_with = "if_understood")]
        kind: Option<String>,
    },
}

impl Initiator {
    fn url(&self) -> Option<&str> {
        match self {
            Self::Url(url) => Some(url),
            Self::Cause { url, .. } => url.as_deref(),
        }
    }

    fn is_script(&self) -> bool {
        matches!(self, Self::Cause { kind: Some(kind), .. } if kind == "script")
    }
}

/// Fields that may be missing have other types in the files of some programs: they then count as missing.
fn if_understood<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::de::DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// A number, which some programs write as a text.
fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    })
}

/// A page with its requests in the order of their starts.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) asked: Vec<Asked>,
    /// Time of the load event, in milliseconds after the first request.
    pub(super) loaded: Option<f64>,
    /// Requests that went over no network, or not over HTTP: from caches, `data:`, WebSocket, failed.
    pub(super) without_network: usize,
    /// Elements of `log.entries` that could not be read.
    pub(super) skipped: usize,
    /// The index of the first of the `skipped` entries, and the reason.
    pub(super) first_fault: Option<String>,
    /// Other pages in the file.
    pub(super) other_pages: usize,
}

/// One request. Times are in milliseconds.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that have nothing to do with one another")]
pub(super) struct Asked {
    pub(super) url: String,
    pub(super) initiator: Option<String>,
    /// Whether a script issued the request, so that its URL is in no document.
    pub(super) is_by_script: bool,
    pub(super) is_read: bool,
    pub(super) is_redirect: bool,
    pub(super) is_quic: bool,
    /// After the first request.
    pub(super) start: f64,
    pub(super) time: f64,
    pub(super) blocked: f64,
    pub(super) dns: f64,
    /// Duration of connecting, including TLS.
    pub(super) connect: f64,
    pub(super) tls: f64,
    pub(super) connection: Option<String>,
    pub(super) bytes: f64,
}

/// Reads the first page of a file. More than [`LARGEST`] bytes are [`HarError::TooLarge`].
pub(super) fn read(path: &Path) -> Result<Recording, HarError> {
    let name = || path.to_owned();
    let unread = |error| HarError::Unreadable { file: name(), error };
    let file = File::open(path).map_err(unread)?;
    let about = file.metadata().map_err(unread)?;
    if about.is_dir() {
        return Err(HarError::Folder(name()));
    }
    // The take below bounds a file that grows after this check.
    if about.len() > LARGEST {
        return Err(HarError::TooLarge(name()));
    }
    let bytes = BufReader::new(file.take(LARGEST));
    parse(bytes).map_err(|fault| match fault {
        Fault::Unread(error) => unread(error),
        Fault::NotHar(error) => HarError::NotHar { file: name(), error },
        Fault::Unusable(reason) => HarError::Unusable { file: name(), reason },
    })
}

/// The reason why a document is not read: a [`HarError`] without the file.
#[derive(Debug)]
pub(super) enum Fault {
    Unread(io::Error),
    NotHar(serde_json::Error),
    Unusable(String),
}

/// Reads the first page of a document.
pub(super) fn parse(mut bytes: impl BufRead) -> Result<Recording, Fault> {
    // HAR 1.2 section "encoding": a byte order mark is ignored.
    if bytes.fill_buf().map_err(Fault::Unread)?.starts_with(b"\xef\xbb\xbf") {
        bytes.consume(3);
    }
    let document: Document = serde_json::from_reader(bytes).map_err(Fault::NotHar)?;
    recording(document.log).map_err(Fault::Unusable)
}

fn recording(log: Log) -> Result<Recording, String> {
    if log.entries.len() > MOST {
        return Err(format!(
            "{} requests are more than a page makes: record one page alone",
            log.entries.len()
        ));
    }
    let good = log.entries.iter().filter_map(|element| element.0.as_ref().ok());
    let page = good.into_iter().find_map(|entry| entry.pageref.clone());
    let mut recording = Recording { other_pages: log.pages.len().saturating_sub(1), ..Recording::default() };
    let on_load = |page: &Page| page.page_timings.as_ref().and_then(|timings| timings.on_load);
    recording.loaded =
        log.pages.iter().find(|found| found.id == page).and_then(on_load).filter(|loaded| *loaded > 0.0);
    let mut entries = Vec::new();
    for (index, Element(entry)) in log.entries.into_iter().enumerate() {
        if entry.as_ref().is_ok_and(|entry| entry.pageref.is_some() && entry.pageref != page) {
            continue;
        }
        match entry.and_then(|entry| Ok((started(&entry)?, entry))) {
            Ok(entry) => entries.push(entry),
            Err(reason) => {
                recording.skipped += 1;
                recording.first_fault.get_or_insert_with(|| format!("log.entries[{index}]: {reason}"));
            }
        }
    }
    // The model follows the starts, an order that files do not guarantee.
    entries.sort_by_key(|(started, _)| *started);
    let Some(first) = entries.first().map(|(started, _)| *started) else {
        return Err(recording.first_fault.unwrap_or_else(|| "it has no request".to_owned()));
    };
    for (started, entry) in entries {
        match asked(&entry, (started - first) as f64 / 1e6) {
            Some(asked) => recording.asked.push(asked),
            None => recording.without_network += 1,
        }
    }
    Ok(recording)
}

fn started(entry: &Entry) -> Result<i128, String> {
    let value = &entry.started_date_time;
    nanoseconds(value).ok_or_else(|| {
        let text: String = value.as_str().unwrap_or_default().chars().take(100).collect();
        if value.is_null() {
            "startedDateTime is missing".to_owned()
        } else {
            format!("{text:?} is not a time")
        }
    })
}

/// The URL with scheme and host in lower case, without user, fragment and usual port; `None` for other schemes than HTTP.
fn web_url(url: &str) -> Option<String> {
    let url = url.trim();
    let (scheme, rest) = url.split_once("://")?;
    if !["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web)) {
        return None;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    // User and password must not reach the output.
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let origin = format!("{scheme}://{host}");
    let origin = origin.parse::<Origin>().map_or(origin, |origin| origin.to_string());
    let target = target.split('#').next().unwrap_or_default();
    let slash = if target.starts_with('/') { "" } else { "/" };
    Some(format!("{origin}{slash}{target}"))
}

/// The request of `entry`, if it was sent over the network.
fn asked(entry: &Entry, start: f64) -> Option<Asked> {
    // Unknown times and sizes are -1.
    let known = |value: Option<f64>| value.filter(|value| value.is_finite() && *value > 0.0).unwrap_or(0.0);
    let time = |value| known(value).min(LONGEST);
    let (request, response) = (&entry.request, &entry.response);
    let url = web_url(&request.url)?;
    let status = known(response.status);
    if status == 0.0 || is_cached(entry) {
        return None;
    }
    let usual = Timings::default();
    let timings = entry.timings.as_ref().unwrap_or(&usual);
    let Timings { blocked, dns, connect, ssl, send, wait, receive } = *timings;
    // HAR 1.2 section "timings": the time of TLS is a part of `connect`.
    let connect = time(connect).max(time(ssl));
    let parts = [blocked, dns, send, wait, receive].map(time).into_iter().sum::<f64>() + connect;
    let version = response.http_version.as_deref().or(request.http_version.as_deref()).unwrap_or_default();
    let connection = match &entry.connection {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    // `_transferSize` counts the bytes on the wire, if the browser writes it; otherwise head and body are
    // added.
    let bytes = match response.transfer_size {
        Some(bytes) if bytes >= 0.0 => bytes,
        _ => known(response.headers_size) + known(response.body_size),
    };
    let initiator = entry.initiator.as_ref();
    Some(Asked {
        url,
        initiator: initiator.and_then(Initiator::url).and_then(web_url),
        is_by_script: initiator.is_some_and(Initiator::is_script),
        is_read: matches!(request.method.as_deref(), Some("GET" | "HEAD")),
        is_redirect: (300..400).contains(&(status as u16)) && status as u16 != 304,
        is_quic: version.to_ascii_lowercase().starts_with("h3") || version.eq_ignore_ascii_case("http/3"),
        start,
        // `time` is the sum of the parts; some programs leave it out, or write -1.
        time: if time(entry.time) > 0.0 { time(entry.time) } else { parts.min(LONGEST) },
        blocked: time(blocked),
        dns: time(dns),
        connect,
        tls: time(ssl),
        connection: connection.filter(|name| !name.is_empty() && name != "0"),
        bytes,
    })
}

/// Whether the response came from a cache of the browser, by `_fromCache` or `_fetchType`.
fn is_cached(entry: &Entry) -> bool {
    let is_chromium = match &entry.from_cache {
        Value::String(cache) => !cache.is_empty(),
        cache => *cache == Value::Bool(true),
    };
    is_chromium || entry.fetch_type.as_ref().is_some_and(|kind| kind.ends_with("Cache"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(url: &str, second: u32) -> Value {
        json!({
            "startedDateTime": format!("2026-11-28T10:00:{second:02}.000"),
            "time": 100,
            "request": { "method": "GET", "url": url, "httpVersion": "HTTP/2" },
            "response": { "status": 200, "bodySize": 9 },
            "timings": { "blocked": -1, "dns": 2, "connect": 40, "ssl": 20, "send": 1, "wait": 50, "receive": 7 },
        })
    }

    fn parsed(entries: &[Value]) -> Result<Recording, Fault> {
        let text = json!({ "log": { "pages": null, "entries": entries } }).to_string();
        parse(format!("\u{feff}{text}").as_bytes())
    }

    #[test]
    fn a_broken_entry_is_counted_and_the_others_are_analysed() {
        let mut entries = vec![entry("https://a.example/", 1), json!(null), json!({ "request": 7 })];
        entries.push(entry("https://a.example/b", 2));
        let mut untimed = entry("https://a.example/c", 3);
        untimed["startedDateTime"] = json!("soon\u{1b}");
        entries.push(untimed);
        let recording = parsed(&entries).expect("two requests");
        assert_eq!((recording.asked.len(), recording.skipped), (2, 3));
        assert!(recording.first_fault.expect("a reason").starts_with("log.entries[1]: "));
        let Err(Fault::Unusable(reason)) = parsed(&entries[4..]) else { panic!("no entry can be read") };
        assert_eq!(reason, "log.entries[0]: \"soon\\u{1b}\" is not a time");
    }

    #[test]
    fn requests_without_http_or_response_are_no_requests_of_the_network() {
        let urls = [
            "data:text/css,a",
            "blob:https://a.example/1",
            "ws://a.example/",
            "chrome-extension://a/b",
            "about:blank",
        ];
        let mut entries: Vec<_> = urls.iter().map(|url| entry(url, 1)).collect();
        let changed = |key: &str, value: Value| {
            let mut changed = entry("https://a.example/", 2);
            changed[key] = value;
            changed
        };
        entries.extend([changed("response", json!(null)), changed("response", json!({ "status": 0 }))]);
        entries.extend([changed("_fromCache", json!("disk")), changed("_fetchType", json!("Memory Cache"))]);
        entries.extend([changed("_fromCache", json!(false)), changed("_fromCache", json!(null))]);
        let recording = parsed(&entries).expect("two requests");
        assert_eq!((recording.asked.len(), recording.without_network, recording.skipped), (2, 9, 0));
    }

    #[test]
    fn missing_and_negative_times_are_completed() {
        let mut entries = vec![entry("https://a.example/", 1), entry("https://a.example/", 2)];
        entries[0]["time"] = json!(-1);
        entries[0]["timings"]["connect"] = json!(null);
        entries[1]["time"] = json!("120.5");
        entries[1]["timings"] = json!({ "wait": null });
        let asked = parsed(&entries).expect("requests").asked;
        assert_eq!((asked[0].time, asked[0].connect), (80.0, 20.0));
        assert_eq!((asked[1].time, asked[1].connect, asked[1].start), (120.5, 0.0, 1000.0));
    }

    #[test]
    fn urls_are_compared_without_their_spelling() {
        let mut second = entry("https://a.example/b", 2);
        second["_initiator"] = json!("HTTPS://A.example:443#top");
        let asked = parsed(&[entry("HTTPS://user:x@A.EXAMPLE", 1), second]).expect("requests").asked;
        assert_eq!(
            (&*asked[0].url, asked[1].initiator.as_deref()),
            ("https://a.example/", Some(&*asked[0].url))
        );
        assert_eq!(web_url("http://[2001:DB8::1]:80/A?B").as_deref(), Some("http://[2001:db8::1]/A?B"));
    }
}
