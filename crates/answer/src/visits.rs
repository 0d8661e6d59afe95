//! Visits: which answers are measured by the browser that gets them, and what their pages get for that.
//!
//! A navigation to a page is drawn by the share of its host. Its answer carries an id in `Server-Timing`, under which the
//! gateway remembers the facts of the connection and the request ([`brisk_beacon`]); the script, which is put into the page or
//! is there already, sends the id back with what the browser measured. Who asks for privacy (`Sec-GPC: 1`) is not measured.

mod endpoint;
mod facts;
mod insertion;
mod policy;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use brisk_beacon::{Beacons, Insertion, script_version};
use brisk_http::validate;
use brisk_http_connection::Connection;
use brisk_visits::ExperimentId;
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version};
use ipnet::IpNet;

pub(crate) use self::endpoint::Own;
use crate::body::Body;
use crate::compress::{Compression, CompressionSettings};
use crate::exchange::Exchange;
use crate::timing::SERVER_TIMING;

const SEC_GPC: HeaderName = HeaderName::from_static("sec-gpc");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const NEL: HeaderName = HeaderName::from_static("nel");
const REPORT_TO: HeaderName = HeaderName::from_static("report-to");

/// Failures of requests are reported for a week after the last visit, all of them and no success.
const NEL_POLICY: HeaderValue = HeaderValue::from_static(
    "{\"report_to\":\"brisk\",\"max_age\":604800,\"success_fraction\":0.0,\"failure_fraction\":1.0}",
);

/// What a host has measured of its visits.
#[derive(Clone, Debug, PartialEq)]
pub struct HostVisits {
    /// Which part of its page views, from 0 to 1; `None`: that of all hosts.
    pub share: Option<f64>,
    /// The script is put into pages; otherwise they have it already.
    pub insert: bool,
    /// Browsers are asked to report failures of requests (Network Error Logging).
    pub network_errors: bool,
}

/// The visits of one host, on one worker.
#[derive(Debug)]
pub(crate) struct SiteVisits {
    settings: HostVisits,
    beacons: Arc<Beacons>,
    /// The first name of the host.
    host: Arc<str>,
    /// Proxies whose addresses stand for many clients.
    trusted: Rc<[IpNet]>,
    /// The experiments of the host.
    experiments: Vec<ExperimentId>,
    /// What is put into pages.
    tag: Bytes,
    /// For pages whose route does not say how, and for the script.
    compression: Rc<Compression>,
}

/// What is done about one navigation.
#[derive(Debug)]
pub(crate) struct Visiting {
    visits: Rc<SiteVisits>,
    route: Arc<str>,
    version: Version,
    user_agent: Option<HeaderValue>,
    /// Host and port, where failures are to be reported to them.
    authority: Option<String>,
    is_measured: bool,
    /// The browser may take hints for the beginning of the answer.
    may_be_hinted: bool,
}

impl SiteVisits {
    pub(crate) fn new(
        settings: &HostVisits,
        beacons: &Arc<Beacons>,
        host: Option<&String>,
        experiments: Vec<ExperimentId>,
        trusted: &Rc<[IpNet]>,
    ) -> Rc<Self> {
        let tag = format!(
            "<script async fetchpriority=low src=\"{}?{}\"></script>",
            endpoint::SCRIPT_PATH,
            script_version()
        );
        let usual = Arc::new(CompressionSettings::default());
        Rc::new(Self {
            settings: settings.clone(),
            beacons: Arc::clone(beacons),
            host: host.map_or("", String::as_str).into(),
            trusted: Rc::clone(trusted),
            experiments,
            tag: tag.into(),
            compression: Compression::new(&usual, true, None),
        })
    }

    /// What is done about a request, if it is a navigation to a page.
    pub(crate) fn asked(
        self: &Rc<Self>,
        exchange: &Exchange,
        head: &Parts,
        route: &Arc<str>,
        may_be_hinted: bool,
    ) -> Option<Box<Visiting>> {
        if !is_page_view(head) || wants_privacy(&head.headers) {
            return None;
        }
        let share = self.settings.share.unwrap_or_else(|| self.share());
        let is_measured =
            is_drawn(exchange.id().0, share) && self.beacons.may_measure(self.client(exchange.connection()));
        if !is_measured && !self.settings.network_errors {
            return None;
        }
        let authority = self.settings.network_errors.then(|| validate::authority_of(head).to_owned());
        Some(Box::new(Visiting {
            visits: Rc::clone(self),
            route: Arc::clone(route),
            version: head.version,
            user_agent: head.headers.get(header::USER_AGENT).cloned(),
            authority,
            is_measured,
            may_be_hinted,
        }))
    }

    /// The share of all hosts; where no visits are kept, all are counted.
    fn share(&self) -> f64 {
        let visits = self.beacons.visits();
        if visits.is_on() { visits.share() } else { 1.0 }
    }

    /// The compression of the script, and of pages whose route does not say.
    pub(crate) fn compression(&self) -> &Rc<Compression> {
        &self.compression
    }

    /// The address of a connection's client, unless it stands for many.
    fn client(&self, connection: &Connection) -> Option<IpAddr> {
        let address = connection.record.borrow().client.ip().to_canonical();
        (!self.trusted.iter().any(|network| network.contains(&address))).then_some(address)
    }
}

impl Visiting {
    /// Whether the script is put into the answer, so that it has to come without a coding.
    pub(crate) fn inserts(&self) -> bool {
        self.is_measured && self.visits.settings.insert
    }

    /// The compression of the page, where its route does not say.
    pub(crate) fn compression(&self) -> &Rc<Compression> {
        self.visits.compression()
    }

    /// Changes the answer. Costs a look at its head, and where it is measured a lock that few contend for.
    pub(crate) fn apply(&self, exchange: &Exchange, response: &mut Response<Body>) {
        if let Some(authority) = self.authority.as_deref().filter(|_| exchange.connection().secure) {
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

/// Whether a person goes to a page with this request, as browsers say it since 2023. Parts of pages and frames are none.
fn is_page_view(head: &Parts) -> bool {
    let is = |name: &HeaderName, value: &str| head.headers.get(name).is_some_and(|found| found == value);
    head.method == Method::GET && is(&SEC_FETCH_DEST, "document") && is(&SEC_FETCH_MODE, "navigate")
}

/// Global Privacy Control.
fn wants_privacy(headers: &HeaderMap) -> bool {
    headers.get(SEC_GPC).is_some_and(|value| value == "1")
}

/// Whether a request is one of the share, by its id, which is as good as random for that.
fn is_drawn(id: u64, share: f64) -> bool {
    let drawn = (id >> 11) as f64 / (1_u64 << 53) as f64;
    drawn < share
}

/// Whether the answer is a page, or says that the browser's copy still is.
pub(super) fn is_page(response: &Response<Body>) -> bool {
    let headers = response.headers();
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    // What is saved to a file is shown by no browser.
    let is_saved = headers.get(header::CONTENT_DISPOSITION).is_some_and(|disposition| {
        disposition.as_bytes().get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"attachment"))
    });
    match response.status() {
        StatusCode::OK => {
            !is_saved && kind.and_then(brisk_rewrite::Kind::of) == Some(brisk_rewrite::Kind::Html)
        }
        StatusCode::NOT_MODIFIED => true,
        _ => false,
    }
}

/// Asks for reports of failures, unless the application does.
fn ask_for_errors(authority: &str, headers: &mut HeaderMap) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_[]".contains(&byte);
    if headers.contains_key(NEL) || headers.contains_key(REPORT_TO) || !authority.bytes().all(is_plain) {
        return;
    }
    let path = endpoint::BEACON_PATH;
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
