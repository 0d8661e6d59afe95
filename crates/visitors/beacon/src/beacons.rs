//! Processing of a beacon: from the id of its page to a visit.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use brisk_visits::{Arms, Connection, Metric, Visit, Visits};

use crate::admission::Admission;
use crate::counts::{Counts, Insertion, add};
use crate::page::Page;
use crate::pages::{Claimed, Issued, Pages};
use crate::paths;
use crate::refusal::Refusal;
use crate::reports;
use crate::token::Token;

/// The form of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Keys and values: a beacon.
    Form,
    /// A list of reports in JSON.
    Reports,
}

impl Kind {
    /// The kind of a post with this `Content-Type`. Scripts can post text and forms without a CORS preflight, so
    /// every other type counts as [`Kind::Form`].
    pub fn of(content_type: Option<&[u8]>) -> Self {
        // RFC 9110 section 8.3.1: parameters follow a semicolon, and the type is compared without case.
        let essence = content_type.unwrap_or_default().split(|byte| *byte == b';').next().unwrap_or_default();
        let is_reports = essence.trim_ascii().eq_ignore_ascii_case(b"application/reports+json");
        if is_reports { Self::Reports } else { Self::Form }
    }
}

/// Receiver of beacons. Shared by all workers; it persists across reloads.
#[derive(Debug)]
pub struct Beacons {
    visits: Visits,
    pages: Pages,
    admission: Admission,
    counts: Counts,
}

impl Beacons {
    /// Creates a receiver without page views, which records into `visits`.
    pub fn new(visits: Visits) -> Arc<Self> {
        Arc::new(Self { visits, pages: Pages::new(), admission: Admission::new(), counts: Counts::new() })
    }

    /// The store of visits.
    pub fn visits(&self) -> &Visits {
        &self.visits
    }

    /// Whether one more page view of `client` is within its rate, so that no client displaces the pages of others.
    /// `None` is an address of many clients.
    pub fn may_measure(&self, client: Option<IpAddr>) -> bool {
        self.admission.may_measure(client)
    }

    /// Assigns a [`Token`] to a page view and stores it. Takes a lock with little contention.
    pub fn issue(&self, issued: Issued) -> Token {
        let token = Token::random();
        add(&self.counts.issued, 1);
        if self.pages.put(token, issued, Instant::now()) {
            add(&self.counts.forgotten, 1);
        }
        token
    }

    /// Counts the outcome for a page that was to get [`SCRIPT`](crate::SCRIPT).
    pub fn insertion(&self, insertion: Insertion) {
        self.counts.insertion(insertion);
    }

    /// Counts a beacon that arrives; one of [`refused`](Self::refused) and [`take`](Self::take) follows.
    pub fn arrived(&self) {
        add(&self.counts.received, 1);
    }

    /// Whether a beacon of `client` may be read; `None` represents many clients. An `Err` is [`Refusal::ClientRate`] or
    /// [`Refusal::Rate`].
    pub fn admit(&self, client: Option<IpAddr>) -> Result<(), Refusal> {
        self.admission.may_read(client)
    }

    /// Counts a beacon that is dropped.
    pub fn refused(&self, refusal: Refusal) {
        self.counts.refused(refusal);
    }

    /// Processes a complete post to `host`, the first name of the configured host. Only a few reported events of
    /// `client` per minute are counted, since clients can invent them. One visit of `client` in ten minutes counts in
    /// experiments, and none if `client` is `None`.
    pub fn take(
        &self,
        kind: Kind,
        body: &[u8],
        host: &Arc<str>,
        client: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        match kind {
            Kind::Form => self.join(&Page::read(body)?, host, client),
            Kind::Reports => {
                for report in reports::read(body)? {
                    if !self.admission.may_report(client) {
                        return Err(Refusal::ClientRate);
                    }
                    self.counts.report(report);
                }
                Ok(())
            }
        }
    }

    fn join(&self, page: &Page, host: &Arc<str>, client: Option<IpAddr>) -> Result<(), Refusal> {
        let token = page.token.ok_or(Refusal::UnknownId)?;
        let Claimed { issued, ago, views } = self.pages.claim(token, host, page.into(), Instant::now())?;
        if page.is_load {
            let mut visit = issued.joined(page, ago)?;
            // Visits on open connections or without an arm never count in experiments, so they must not use
            // the permit of the client.
            let is_compared = visit.connection == Connection::New && !visit.assigned.is_empty();
            // The visit counts in all other figures: only experiments must not depend on one client.
            if is_compared && !self.admission.may_compare(client) {
                visit.assigned = Arms::default();
            }
            self.counts.resources(&page.resources);
            self.record(visit, &issued, &issued.path, client);
            add(&self.counts.joined, 1);
        }
        for (place, view) in page.views[..views].iter().enumerate() {
            if !self.may_measure(client) {
                return Err(Refusal::ClientRate);
            }
            let visit = issued.viewed(view, ago)?;
            self.record(visit, &issued, view.path.as_deref().unwrap_or(&issued.path), client);
            // A beacon counts once: with its load, or without one with its first view.
            add(&self.counts.joined, (!page.is_load && place == 0).into());
        }
        Ok(())
    }

    /// Records a [`Visit`] to the page at `path`.
    fn record(&self, mut visit: Visit, issued: &Issued, path: &str, client: Option<IpAddr>) {
        // Called for a page that no visit had, so that visits to known pages do not use up the rate.
        let may_add = || self.admission.may_add_page(client);
        let path = paths::pattern(path);
        visit.page = self.visits.page(&visit.host, &path, may_add);
        log(issued, &visit, &path);
        self.counts.view(visit.navigation);
        self.visits.record(visit);
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// Logs the visit with the id of the request, under which the access log has the same connection.
fn log(issued: &Issued, visit: &Visit, path: &str) {
    tracing::debug!(
        request = %issued.request,
        session = visit.session.name(),
        connection = visit.connection.name(),
        navigation = visit.navigation.name(),
        wait = visit.measures.get(Metric::Wait),
        answered_in = issued.first_byte_in().map(|time| time.as_secs_f64() * 1e3),
        ttfb = visit.measures.get(Metric::FirstByte),
        connect = visit.measures.get(Metric::Connect),
        tls = visit.measures.get(Metric::Tls),
        handshake = visit.measures.get(Metric::Handshake),
        rtt = visit.measures.get(Metric::RoundTrip),
        load = visit.measures.get(Metric::Load),
        fcp = visit.measures.get(Metric::FirstPaint),
        lcp = visit.measures.get(Metric::LargestPaint),
        inp = visit.measures.get(Metric::Interaction),
        cls = visit.measures.get(Metric::Shift),
        path,
        "a beacon joined the visit of its page"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use brisk_telemetry::RequestId;
    use brisk_telemetry::metrics::Metrics;
    use brisk_visits::{Arm, Experiment, Query, Settings, Span};

    use super::*;
    use crate::BeaconMetrics;

    #[test]
    fn a_beacon_becomes_a_visit_once() {
        let beacons = Beacons::new(Visits::off());
        let host: Arc<str> = "a.example".into();
        let token = beacons.issue(Issued {
            request: RequestId(1),
            visit: Visit::new(Arc::clone(&host), "/".into()),
            path: "/".into(),
            answered_in: Duration::ZERO,
            held_since_hello: None,
            may_be_hinted: true,
        });
        let digits = token.digits();
        let form = format!("id={}&ttfb=1&h2=3", String::from_utf8_lossy(&digits));
        assert_eq!(beacons.take(Kind::Form, b"ttfb=1", &host, None), Err(Refusal::UnknownId));
        assert_eq!(beacons.take(Kind::Form, form.as_bytes(), &host, None), Ok(()));
        assert_eq!(beacons.take(Kind::Form, form.as_bytes(), &host, None), Err(Refusal::UnknownId));
        assert_eq!(beacons.counts.joined.load(Ordering::Relaxed), 1);
    }

    /// An id of a page at `/start` of `host`.
    fn issued(beacons: &Beacons, host: &Arc<str>) -> String {
        let token = beacons.issue(Issued {
            request: RequestId(1),
            visit: Visit::new(Arc::clone(host), "/".into()),
            path: "/start".into(),
            answered_in: Duration::ZERO,
            held_since_hello: None,
            may_be_hinted: true,
        });
        String::from_utf8_lossy(&token.digits()).into_owned()
    }

    #[test]
    fn ten_soft_navigations_are_ten_views_beside_the_load() {
        let folder = tempfile::tempdir().expect("a folder");
        let visits = Visits::open(folder.path(), Settings::default()).expect("a store");
        // The pages of the database are read before the first flush ends.
        assert!(visits.flush(Duration::from_mins(1)));
        let beacons = Beacons::new(visits.clone());
        let host: Arc<str> = "a".into();
        let view = |number| format!("&view=soft&page=/p{}/{number}&cls=0", number % 2);
        let views = (0..10).map(view).collect::<Vec<_>>().concat();
        let form = format!("id={}&nav=navigate&ttfb=1{views}", issued(&beacons, &host));
        assert_eq!(beacons.take(Kind::Form, form.as_bytes(), &host, None), Ok(()));
        assert_eq!(beacons.counts.joined.load(Ordering::Relaxed), 1, "one beacon");
        assert!(visits.flush(Duration::from_mins(1)));
        let query = Query { host: None, page: None, span: Span::Hour, metric: Metric::Shift };
        let reader = visits.reader().expect("a reader");
        let cuts = reader.cuts(&query).expect("cuts");
        let values = |name: &str| {
            let cut = cuts.dimensions.iter().find(|cut| cut.dimension == name).expect("a dimension");
            let mut values: Vec<_> =
                cut.values.iter().map(|value| (value.name.clone(), value.visits)).collect();
            values.sort_unstable();
            values
        };
        let of = |name: &str, count| (name.to_owned(), count);
        assert_eq!(values("navigation"), [of("navigate", 1), of("soft", 10)]);
        assert_eq!(values("page"), [of("a/p0/*", 5), of("a/p1/*", 5), of("a/start", 1)]);
        let page = Query { page: Some("a/p0/*".to_owned()), ..query };
        assert_eq!(reader.cuts(&page).expect("cuts").visits, 5);
    }

    #[test]
    fn one_client_adds_few_views_and_few_pages() {
        let folder = tempfile::tempdir().expect("a folder");
        let visits = Visits::open(folder.path(), Settings::default()).expect("a store");
        assert!(visits.flush(Duration::from_mins(1)));
        let beacons = Beacons::new(visits.clone());
        let host: Arc<str> = "a".into();
        let client = |last| Some(IpAddr::from([10, 0, 0, last]));
        let word =
            |number: u8| String::from_utf8_lossy(&[b'a' + number / 26, b'a' + number % 26]).into_owned();
        let form = |id: &str, from: u8| {
            let view = |number| format!("&view=soft&page=/{}", word(from + number));
            let views = (0..40).map(view).collect::<Vec<_>>().concat();
            format!("id={id}{views}")
        };
        let id = issued(&beacons, &host);
        let take =
            |id: &str, from, client| beacons.take(Kind::Form, form(id, from).as_bytes(), &host, client);
        assert_eq!(take(&id, 0, client(1)), Ok(()));
        assert_eq!(take(&id, 40, client(1)), Err(Refusal::ClientRate));
        assert_eq!(take(&issued(&beacons, &host), 0, client(2)), Ok(()), "another client");
        assert!(visits.flush(Duration::from_mins(1)));
        let query = Query { host: None, page: None, span: Span::Hour, metric: Metric::Shift };
        let cuts = visits.reader().expect("a reader").cuts(&query).expect("cuts");
        let pages = cuts.dimensions.iter().find(|cut| cut.dimension == "page").expect("pages");
        assert!(cuts.visits < 150, "{}", cuts.visits);
        let other = pages.values.iter().find(|value| value.name == "other").expect("other pages");
        assert!((32..=66).contains(&(pages.values.len() + pages.left_out)) && other.visits > 8, "{pages:?}");
    }

    #[test]
    fn one_address_has_one_visit_in_experiments() {
        let folder = tempfile::tempdir().expect("a folder");
        let visits = Visits::open(folder.path(), Settings::default()).expect("a store");
        let experiment = Experiment {
            name: "e".into(),
            arms: ["a", "b"].map(Into::into).to_vec(),
            advice: Vec::new(),
            metric: Metric::FirstByte,
            margin: 0.02,
            hosts: Vec::new(),
            share: 1.0,
        };
        let ids = visits.define(&[experiment]);
        let beacons = Beacons::new(visits.clone());
        let host: Arc<str> = "a".into();
        let view = |connection, client: Option<IpAddr>| {
            let mut visit = Visit::new(Arc::clone(&host), "/".into());
            visit.connection = connection;
            assert!(visit.assigned.push(Arm { setting: ids[0], value: 0 }));
            let (request, answered_in) = (RequestId(1), Duration::ZERO);
            let token = beacons.issue(Issued {
                request,
                visit,
                path: "/".into(),
                answered_in,
                held_since_hello: None,
                may_be_hinted: true,
            });
            let id = String::from_utf8_lossy(&token.digits()).into_owned();
            let form = format!("id={id}&connect=1&ttfb=100");
            assert_eq!(beacons.take(Kind::Form, form.as_bytes(), &host, client), Ok(()));
        };
        let address = |last| Some(IpAddr::from([0x2001_u16, 0xdb8, 0, 0, 0, 0, 0, last]));
        for _ in 0..10 {
            // What is counted on a connection that was open already takes nothing from the one that follows.
            view(Connection::Reused, address(1));
            view(Connection::New, address(1));
            view(Connection::New, address(2));
            view(Connection::New, None);
        }
        view(Connection::New, Some(IpAddr::from([192, 0, 2, 1])));
        assert!(visits.flush(Duration::from_mins(1)));
        let report = &visits.reader().expect("a reader").experiments().expect("reports")[0];
        assert_eq!(report.arms[0].visits, 2, "of a network of IPv6 and an address of IPv4");
        assert_eq!(beacons.counts.joined.load(Ordering::Relaxed), 41);
    }

    #[test]
    fn one_client_reports_few_events() {
        let beacons = Beacons::new(Visits::off());
        let host: Arc<str> = "a".into();
        let json = format!("[{}{{\"type\":\"crash\"}}]", "{\"type\":\"crash\"},".repeat(99));
        let client = |last| Some(IpAddr::from([10, 0, 0, last]));
        let take = |client| beacons.take(Kind::Reports, json.as_bytes(), &host, client);
        assert_eq!((take(client(1)), take(client(1))), (Err(Refusal::ClientRate), Err(Refusal::ClientRate)));
        let counted = beacons.counts.reported();
        assert!((10..20).contains(&counted), "{counted}");
        assert_eq!(beacons.take(Kind::Reports, b"[{\"type\":\"crash\"}]", &host, client(2)), Ok(()));
        assert_eq!(beacons.counts.reported(), counted + 1);
    }

    #[test]
    fn what_strangers_send_makes_no_series() {
        let beacons = Beacons::new(Visits::off());
        let reports = Kind::of(Some(b"Application/Reports+JSON; charset=utf-8"));
        let json = br#"[{"type":"network-error","body":{"type":"tcp.reset"}},{"type":"<script>"}]"#;
        assert_eq!(beacons.take(reports, json, &"a".into(), None), Ok(()));
        beacons.refused(Refusal::ClientRate);
        beacons.insertion(Insertion::Done);
        let metrics = Metrics::new();
        metrics.register(BeaconMetrics(beacons));
        let page = metrics.render();
        for line in [
            "brisk_beacons_refused_total{reason=\"client-rate\"} 1",
            "brisk_beacon_scripts_total{outcome=\"inserted\"} 1",
            "brisk_browser_reports_total{type=\"network-error\"} 1",
            "brisk_browser_reports_total{type=\"other\"} 1",
            "brisk_network_errors_total{type=\"tcp.reset\"} 1",
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line} is not in {page}");
        }
        assert!(!page.contains("<script>"));
    }
}
