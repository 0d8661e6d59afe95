//! Visits: page views measured by the visitors' browsers.
//!
//! A share of the navigations to a host's pages is drawn. The response contains an id in `Server-Timing`, under which
//! [`brisk_beacon`] stores facts about the connection and the request. A script, inserted by the gateway or contained
//! in the page, sends the id back with the measurements of the browser. Clients that request privacy (`Sec-GPC: 1`) are
//! not measured.

mod endpoint;
mod facts;
mod insertion;
mod policy;

use std::rc::Rc;
use std::sync::Arc;

use brisk_beacon::{Beacons, Insertion, script_version};
use brisk_http::message::{HeaderList, RequestParts, Response};
use brisk_http::{validate, version};
use brisk_http_connection::Connection;
use brisk_transform::body::Body;
use brisk_transform::compress::{Compression, CompressionSettings, ResponseCompression};
use brisk_variants::HostVariants;
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderValue, Method, StatusCode, Version};

pub(crate) use self::endpoint::{BEACON_PATH, SCRIPT_PATH, script};
use crate::exchange::Exchange;
use crate::timing::SERVER_TIMING;

const SEC_GPC: HeaderName = HeaderName::from_static("sec-gpc");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const NEL: HeaderName = HeaderName::from_static("nel");
const REPORT_TO: HeaderName = HeaderName::from_static("report-to");

/// Number of bytes of a page's path that are remembered until its beacon.
const LONGEST_PATH: usize = 256;

/// Policy of Network Error Logging: browsers report all failures and no successes, until a week after the last visit.
const NEL_POLICY: HeaderValue = HeaderValue::from_static(
    "{\"report_to\":\"brisk\",\"max_age\":604800,\"success_fraction\":0.0,\"failure_fraction\":1.0}",
);

/// Measurement of a host's visits.
#[derive(Clone, Debug, PartialEq)]
pub struct HostVisits {
    /// Share of page views that is measured, 0 to 1; `None` for the share of all hosts.
    pub share: Option<f64>,
    /// Whether the gateway inserts the script into pages. Otherwise the pages must contain it.
    pub insert: bool,
    /// Whether browsers report failed requests (Network Error Logging).
    pub network_errors: bool,
}

/// Measurement of one host's visits, on one worker.
#[derive(Debug)]
pub(crate) struct SiteVisits {
    settings: HostVisits,
    beacons: Arc<Beacons>,
    /// The first name of the host.
    host: Arc<str>,
    /// Settings of the host that vary between connections.
    variants: Arc<HostVariants>,
    /// Element inserted into pages, which loads the script.
    tag: Bytes,
    /// Compression of the script, and of pages of routes without a compression setting.
    compression: Rc<Compression>,
}

/// A navigation that is measured, whose failures are to be reported, or both.
#[derive(Debug)]
pub(crate) struct PageView {
    visits: Rc<SiteVisits>,
    route: Arc<str>,
    /// Path of the request, shortened; empty if the page is not measured.
    path: Box<str>,
    version: Version,
    user_agent: Option<HeaderValue>,
    /// Host and port for failure reports; `None` disables them.
    authority: Option<String>,
    is_measured: bool,
    /// Whether the browser may mistake early hints for the start of the response.
    may_be_hinted: bool,
    /// Compression of the page, if its route has no compression setting.
    compression: Option<ResponseCompression>,
}

impl SiteVisits {
    pub(crate) fn new(
        settings: &HostVisits,
        beacons: &Arc<Beacons>,
        host: Option<&String>,
        variants: &Arc<HostVariants>,
    ) -> Rc<Self> {
        // With a low priority, so that the script does not delay the page that it measures.
        let tag =
            format!("<script async fetchpriority=low src=\"{}?{}\"></script>", SCRIPT_PATH, script_version());
        let usual = Arc::new(CompressionSettings::default());
        Rc::new(Self {
            settings: settings.clone(),
            beacons: Arc::clone(beacons),
            host: host.map_or("", String::as_str).into(),
            variants: Arc::clone(variants),
            tag: tag.into(),
            compression: Compression::new(&usual),
        })
    }

    /// Decides whether the page view of a request is measured.
    ///
    /// `may_hint`: some requests of the route get early hints. Returns `None` for requests that are not navigations,
    /// and for views with neither measurement nor failure reports.
    pub(crate) fn measure_request(
        self: &Rc<Self>,
        exchange: &Exchange,
        head: &RequestParts,
        route: &Arc<str>,
        may_hint: bool,
    ) -> Option<Box<PageView>> {
        if !is_page_view(head) || wants_privacy(&head.headers) {
            return None;
        }
        let share = self.settings.share.unwrap_or_else(|| self.share());
        // The draw first: `may_measure` counts against the rate of the client.
        let is_measured =
            is_drawn(exchange.id().0, share) && self.beacons.may_measure(exchange.client().one_client());
        if !is_measured && !self.settings.network_errors {
            return None;
        }
        let authority = self.settings.network_errors.then(|| validate::authority_of(head).to_owned());
        Some(Box::new(PageView {
            visits: Rc::clone(self),
            route: Arc::clone(route),
            path: if is_measured { shortened(head.uri.path()).into() } else { Box::default() },
            version: head.version,
            user_agent: head.headers.get(header::USER_AGENT).cloned(),
            authority,
            is_measured,
            may_be_hinted: may_hint && version::of(head.version).takes_interim_responses(),
            compression: None,
        }))
    }

    /// Whether the script is inserted into measured pages.
    pub(crate) fn inserts_script(&self) -> bool {
        self.settings.insert
    }

    /// The share of all hosts; 1 if visits are counted but not stored.
    fn share(&self) -> f64 {
        let visits = self.beacons.visits();
        if visits.is_on() { visits.share() } else { 1.0 }
    }

    /// Compression of the script, and of pages of routes without a compression setting.
    pub(crate) fn compression(&self) -> &Rc<Compression> {
        &self.compression
    }
}

impl PageView {
    /// Whether the script is inserted into the response, which requires content without a coding.
    pub(crate) fn inserts_script(&self) -> bool {
        self.is_measured && self.visits.inserts_script()
    }

    /// Chooses the coding of the page, for routes without a compression setting.
    pub(crate) fn negotiate_compression(&mut self, connection: &Connection, request: &RequestParts) {
        let path = request.uri.path().as_bytes();
        self.compression = Some(self.visits.compression.negotiate(connection, request, path));
    }

    /// The compression of the response, if it is a page of a route without a compression setting.
    pub(crate) fn compression(&self, response: &Response<Body>) -> Option<&ResponseCompression> {
        self.compression.as_ref().filter(|_| is_page(response))
    }

    /// Inserts the script and the id of the view into the response. Costs an inspection of its head, and for measured
    /// pages a lock with little contention.
    pub(crate) fn apply(&self, exchange: &Exchange, response: &mut Response<Body>) {
        // Browsers accept the policy from secure origins only.
        if let Some(authority) = self.authority.as_deref().filter(|_| exchange.connection().client.secure) {
            ask_for_errors(authority, response.headers_mut());
        }
        if !self.is_measured || !is_page(response) {
            return;
        }
        if self.visits.settings.insert && response.status() == StatusCode::OK {
            let beacons = &self.visits.beacons;
            let insertion = insertion::insert(&self.visits.tag, beacons, exchange.connection(), response);
            if let Some(insertion) = insertion {
                beacons.insertion(insertion);
                // A page without the script sends no beacon, so it gets no id.
                if insertion != Insertion::Done {
                    return;
                }
            }
        }
        let token = self.visits.beacons.issue(facts::issued(self, exchange));
        let value = [b"visit;desc=", &token.digits()[..]].concat();
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value)) {
            response.headers_mut().append(SERVER_TIMING, value);
        }
    }
}

/// Whether the request is a navigation to a page, by the Fetch Metadata headers that browsers send since 2023. Frames
/// and subresources are not.
fn is_page_view(head: &RequestParts) -> bool {
    let is = |name: &HeaderName, value: &str| head.headers.get(name).is_some_and(|found| found == value);
    head.method == Method::GET && is(&SEC_FETCH_DEST, "document") && is(&SEC_FETCH_MODE, "navigate")
}

/// The first [`LONGEST_PATH`] bytes of a path.
fn shortened(path: &str) -> &str {
    &path[..path.floor_char_boundary(LONGEST_PATH)]
}

/// Whether the client sends Global Privacy Control.
fn wants_privacy(headers: &HeaderList) -> bool {
    headers.get(SEC_GPC).is_some_and(|value| value == "1")
}

/// Whether the request with this `id` belongs to the measured `share`. Ids are uniformly distributed, so no other
/// random number is needed.
fn is_drawn(id: u64, share: f64) -> bool {
    // 53 bits, which a float holds exactly.
    let drawn = (id >> 11) as f64 / (1_u64 << 53) as f64;
    drawn < share
}

/// Whether the response is a page, or confirms the browser's copy of one.
fn is_page(response: &Response<Body>) -> bool {
    let headers = response.headers();
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    // Browsers save attachments instead of displaying them.
    let is_saved = headers.get(header::CONTENT_DISPOSITION).is_some_and(|disposition| {
        disposition.as_bytes().get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"attachment"))
    });
    match response.status() {
        StatusCode::OK => {
            !is_saved
                && kind.and_then(brisk_rewrite::DocumentKind::of) == Some(brisk_rewrite::DocumentKind::Html)
        }
        StatusCode::NOT_MODIFIED => true,
        _ => false,
    }
}

/// Adds the headers that request failure reports, unless the application sets its own.
fn ask_for_errors(authority: &str, headers: &mut HeaderList) {
    // The authority becomes part of JSON, so it must have no quotes.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_[]".contains(&byte);
    if headers.contains_key(NEL) || headers.contains_key(REPORT_TO) || !authority.bytes().all(is_plain) {
        return;
    }
    let path = BEACON_PATH;
    let group = format!(
        "{{\"group\":\"brisk\",\"max_age\":604800,\"endpoints\":[{{\"url\":\"https://{authority}{path}\"}}]}}"
    );
    if let Ok(group) = HeaderValue::try_from(group) {
        headers.insert(REPORT_TO, group);
        headers.insert(NEL, NEL_POLICY);
    }
}

#[cfg(test)]
mod tests;
