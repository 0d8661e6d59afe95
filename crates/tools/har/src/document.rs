//! Parser of HAR files, version 1.2, as saved by browsers: the properties of each request that the analysis needs.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::HarError;

/// Maximum file size. Larger files contain response bodies; files without them are a hundred times smaller.
const LARGEST: u64 = 256 << 20;

/// More requests than any page makes.
const MOST: usize = 5_000;

#[derive(Debug, Deserialize)]
struct Document {
    log: Log,
}

#[derive(Debug, Deserialize)]
struct Log {
    #[serde(default, deserialize_with = "if_understood")]
    pages: Vec<Page>,
    entries: Vec<Entry>,
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
    #[serde(default, deserialize_with = "if_understood")]
    on_load: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default, deserialize_with = "if_understood")]
    pageref: Option<String>,
    started_date_time: String,
    #[serde(default, deserialize_with = "if_understood")]
    time: Option<f64>,
    request: Request,
    response: Response,
    #[serde(default, deserialize_with = "if_understood")]
    timings: Option<Timings>,
    connection: Option<serde_json::Value>,
    #[serde(rename = "_initiator", default, deserialize_with = "if_understood")]
    initiator: Option<Initiator>,
    #[serde(rename = "_fromCache")]
    from_cache: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    method: String,
    url: String,
    #[serde(default, deserialize_with = "if_understood")]
    http_version: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default, deserialize_with = "if_understood")]
    status: Option<f64>,
    #[serde(default, deserialize_with = "if_understood")]
    http_version: Option<String>,
    #[serde(default, deserialize_with = "if_understood")]
    headers_size: Option<f64>,
    #[serde(default, deserialize_with = "if_understood")]
    body_size: Option<f64>,
    #[serde(rename = "_transferSize", default, deserialize_with = "if_understood")]
    transfer_size: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct Timings {
    #[serde(default, deserialize_with = "if_understood")]
    blocked: Option<f64>,
    #[serde(default, deserialize_with = "if_understood")]
    dns: Option<f64>,
    #[serde(default, deserialize_with = "if_understood")]
    connect: Option<f64>,
    #[serde(default, deserialize_with = "if_understood")]
    ssl: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Initiator {
    #[serde(default, deserialize_with = "if_understood")]
    url: Option<String>,
    #[serde(rename = "type", default, deserialize_with = "if_understood")]
    kind: Option<String>,
}

/// Fields that may be missing have other types in the files of some programs: then they are as good as missing.
fn if_understood<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::de::DeserializeOwned + Default,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// A page with its requests in the order of their starts.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) asked: Vec<Asked>,
    /// Time of the load event, in milliseconds after the first request.
    pub(super) loaded: Option<f64>,
    /// Requests that went over no network: from caches, `data:`, failed.
    pub(super) without_network: usize,
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

/// Reads the first page of a file.
pub(super) fn read(path: &Path) -> Result<Recording, HarError> {
    let name = || path.to_owned();
    let unread = |error| HarError::Unreadable { file: name(), error };
    let file = File::open(path).map_err(unread)?;
    let about = file.metadata().map_err(unread)?;
    if about.is_dir() {
        return Err(HarError::Folder(name()));
    }
    if about.len() > LARGEST {
        return Err(HarError::TooLarge(name()));
    }
    let mut bytes = BufReader::new(file.take(LARGEST));
    // HAR 1.2 section "encoding": a byte order mark is ignored.
    if bytes.fill_buf().map_err(unread)?.starts_with(b"\xef\xbb\xbf") {
        bytes.consume(3);
    }
    let document: Document =
        serde_json::from_reader(bytes).map_err(|error| HarError::NotHar { file: name(), error })?;
    recording(document.log).map_err(|reason| HarError::Unusable { file: name(), reason })
}

fn recording(log: Log) -> Result<Recording, String> {
    if log.entries.len() > MOST {
        return Err(format!(
            "{} requests are more than a page makes: record one page alone",
            log.entries.len()
        ));
    }
    let page = log.entries.iter().find_map(|entry| entry.pageref.clone());
    let mut recording = Recording { other_pages: log.pages.len().saturating_sub(1), ..Recording::default() };
    let on_load = |page: &Page| page.page_timings.as_ref().and_then(|timings| timings.on_load);
    recording.loaded =
        log.pages.iter().find(|found| found.id == page).and_then(on_load).filter(|loaded| *loaded > 0.0);
    let mut entries = Vec::new();
    for entry in log.entries {
        if entry.pageref.is_some() && entry.pageref != page {
            continue;
        }
        let started = OffsetDateTime::parse(&entry.started_date_time, &Rfc3339)
            .map_err(|_| format!("{:?} is not a time", entry.started_date_time))?;
        entries.push((started, entry));
    }
    entries.sort_by_key(|(started, _)| *started);
    let Some(first) = entries.first().map(|(started, _)| *started) else {
        return Err("it has no request".to_owned());
    };
    for (started, entry) in entries {
        match asked(&entry, (started - first).as_seconds_f64() * 1000.0) {
            Some(asked) => recording.asked.push(asked),
            None => recording.without_network += 1,
        }
    }
    Ok(recording)
}

/// The request of `entry`, if it was sent over the network.
fn asked(entry: &Entry, start: f64) -> Option<Asked> {
    let known = |value: Option<f64>| value.filter(|value| value.is_finite() && *value > 0.0).unwrap_or(0.0);
    let (request, response) = (&entry.request, &entry.response);
    let scheme = request.url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_web = matches!(scheme.as_deref(), Some("http" | "https"));
    let status = known(response.status);
    let is_cached = entry.from_cache.as_ref().is_some_and(|cache| !cache.is_null());
    if !is_web || status == 0.0 || is_cached {
        return None;
    }
    let usual = Timings::default();
    let timings = entry.timings.as_ref().unwrap_or(&usual);
    let version = response.http_version.as_deref().or(request.http_version.as_deref()).unwrap_or_default();
    let connection = entry.connection.as_ref().and_then(|connection| match connection {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    });
    let bytes = match response.transfer_size {
        Some(bytes) if bytes >= 0.0 => bytes,
        _ => known(response.headers_size) + known(response.body_size),
    };
    Some(Asked {
        url: request.url.clone(),
        initiator: entry.initiator.as_ref().and_then(|initiator| initiator.url.clone()),
        is_by_script: entry
            .initiator
            .as_ref()
            .is_some_and(|initiator| initiator.kind.as_deref() == Some("script")),
        is_read: matches!(&request.method[..], "GET" | "HEAD"),
        is_redirect: (300..400).contains(&(status as u16)) && status as u16 != 304,
        is_quic: version.to_ascii_lowercase().starts_with("h3") || version.eq_ignore_ascii_case("http/3"),
        start,
        time: known(entry.time),
        blocked: known(timings.blocked),
        dns: known(timings.dns),
        connect: known(timings.connect),
        tls: known(timings.ssl),
        connection: connection.filter(|name| !name.is_empty() && name != "0"),
        bytes,
    })
}
