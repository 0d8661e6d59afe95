//! A load of the page in Chromium: its requests as a waterfall and a HAR file, and findings about its delivery.
//!
//! Chromium runs headless, with a temporary profile, and is controlled through a pipe: no port is opened.

mod chromium;
mod events;
mod faults;
mod har;
mod output;

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::ProbeError;
use crate::findings::Finding;
use crate::report::Report;
use crate::{Settings, trust_of_keys};
use chromium::Chromium;
use events::Requests;
pub use har::har;
pub(crate) use output::section;
pub use output::text;

/// Maximum time of a page load, in addition to [`Settings::timeout`] for each step.
const LONGEST: Duration = Duration::from_secs(30);

/// Time without events after which a loaded page counts as complete.
const QUIET: Duration = Duration::from_millis(500);

/// Maximum number of [`PageLoad::findings`].
const MOST: usize = 20;

/// A page load.
#[derive(Clone, Debug, Serialize)]
pub struct PageLoad {
    /// URL of the document after redirects.
    pub url: String,
    /// Name and version of the browser.
    pub browser: String,
    /// Time of the load event in milliseconds; `None` if the page did not load in time.
    pub load_ms: Option<f64>,
    /// First Contentful Paint in milliseconds.
    pub fcp_ms: Option<f64>,
    /// Largest Contentful Paint in milliseconds.
    pub lcp_ms: Option<f64>,
    /// Cumulative Layout Shift.
    pub cls: f64,
    /// Requests in the order of their starts.
    pub requests: Vec<PageRequest>,
    /// Findings, the most expensive first.
    pub findings: Vec<Finding>,
    /// Begin of the load in seconds since 1970.
    #[serde(skip)]
    began: f64,
}

/// A request of a page. Times are in milliseconds since the first request.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PageRequest {
    /// The URL.
    pub url: String,
    /// Method.
    pub method: String,
    /// Kind of resource in the words of Chromium, e.g. `Document`.
    pub kind: String,
    /// Status; `0` without a response.
    pub status: u16,
    /// Protocol, e.g. `h2`.
    pub protocol: String,
    /// Priority of the request at its start, e.g. `VeryHigh`.
    pub priority: String,
    /// Begin of the request.
    pub start_ms: f64,
    /// Duration until the request was sent, which includes the connection.
    pub blocked_ms: f64,
    /// Duration of name resolution.
    pub dns_ms: f64,
    /// Duration of connecting, with TLS.
    pub connect_ms: f64,
    /// Duration of TLS.
    pub tls_ms: f64,
    /// Duration from the request to the head of the response.
    pub wait_ms: f64,
    /// Duration of the whole request; `None` if it did not end.
    pub time_ms: Option<f64>,
    /// Bytes received, with heads.
    pub bytes: f64,
    /// Bytes of the body after decoding.
    pub body_bytes: f64,
    /// Identifier of the connection; requests with the same one shared it.
    pub connection: String,
    /// URL of the document, style sheet or script that caused the request.
    pub initiator: Option<String>,
    /// Kind of cause, e.g. `parser`.
    pub initiator_kind: String,
    /// Response fields, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Request fields.
    pub request_headers: Vec<(String, String)>,
    /// Reason of a failure.
    pub failure: Option<String>,
    /// Whether the response came from a cache of the browser.
    pub is_cached: bool,
}

impl PageRequest {
    /// Value of the first response field with this name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> &str {
        origin(&self.url)
    }

    /// Path and query.
    pub(crate) fn path(&self) -> &str {
        let path = &self.url[self.origin().len()..];
        if path.is_empty() { "/" } else { path }
    }
}

/// Scheme, host and port of a URL.
fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    &url[..end]
}

/// Loads the URL of `settings` in Chromium, at the address and with the trust of `report`. Blocks for at most 30 seconds and
/// the start of the browser.
///
/// # Errors
///
/// [`ProbeError::System`] if no Chromium is installed or it cannot be controlled.
pub fn browse(settings: &Settings, report: &Report) -> Result<PageLoad, ProbeError> {
    let mut browser = Chromium::start(settings, &trust_of_keys(settings, report))?;
    let version = browser.call("Browser.getVersion", &json!({}))?;
    // Before the navigation: Chromium reports only events of enabled domains, and the first request would be
    // missing.
    for domain in ["Network.enable", "Page.enable", "Runtime.enable"] {
        browser.call(domain, &json!({}))?;
    }
    let mut requests = Requests::default();
    let answer = browser.call("Page.navigate", &json!({ "url": settings.url.to_string() }))?;
    if let Some(error) = answer["errorText"].as_str() {
        return Err(ProbeError::Answer(format!("Chromium cannot load the page: {error}")));
    }
    browser.events(LONGEST, QUIET, &mut |event| requests.add(event))?;
    let facts = browser.script(faults::FACTS)?;
    // The script causes no requests; events that arrived beside it belong to the page.
    browser.events(Duration::ZERO, Duration::ZERO, &mut |event| requests.add(event))?;
    browser.close();
    Ok(load(settings, &version, requests, &facts))
}

fn load(settings: &Settings, version: &Value, requests: Requests, facts: &Value) -> PageLoad {
    let (began, load_ms, requests) = requests.finish();
    // Redirects are requests of their own, and documents of frames begin later.
    let document =
        requests.iter().find(|request| request.kind == "Document" && !(300..400).contains(&request.status));
    let url = document.map_or_else(|| settings.url.to_string(), |document| document.url.clone());
    let mut findings = faults::findings(&requests, &url, facts);
    findings.sort_by(|one, other| {
        (other.ms, other.bytes).partial_cmp(&(one.ms, one.bytes)).unwrap_or(std::cmp::Ordering::Equal)
    });
    findings.truncate(MOST);
    PageLoad {
        url,
        browser: version["product"].as_str().unwrap_or("Chromium").to_owned(),
        load_ms,
        fcp_ms: facts["fcp"].as_f64(),
        lcp_ms: facts["lcp"]["time"].as_f64(),
        cls: facts["cls"].as_f64().unwrap_or_default(),
        requests,
        findings,
        began,
    }
}
