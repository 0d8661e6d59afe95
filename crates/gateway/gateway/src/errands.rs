//! Maintenance of certificates: its HTTP client, its store, and its report on the admin listener.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use brisk_certs::maintenance::{Fetch, FetchFailure, Fetched, Fetching, Report};
use brisk_certs::{
    Catalogue, Catalogues, CertError, Certificate, Maintenance, OnDemand, OnDemandHosts, Store,
};
use brisk_fetch::{
    Client, ClientSettings, Destinations, FetchError, FetchResponse, Limits, PrivateHost, Reason,
};
use brisk_telemetry::metrics::{Collector, Encoder};
use brisk_wire::cache_control;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::settings::CertificateSettings;
use crate::tickets::unix_seconds;

/// The most time of a fetch.
const TIME: Duration = Duration::from_secs(10);

/// Maximum number of certificates with their own metric series: first those with problems, then those that expire
/// first.
const SERIES: usize = 500;

/// Maximum number of names of a folder that are listed because their files cannot be loaded.
const FAULTY: usize = 100;

/// Starts the maintenance of certificates, with an empty set.
pub(crate) fn start(settings: &CertificateSettings, errands: Arc<Errands>) -> Result<Maintenance, CertError> {
    let store = settings.store.clone().map(|store| store as Arc<dyn Store>);
    Maintenance::start(settings.maintenance, errands, store, settings.fleet.clone())
}

/// Fetches with a client that is made for the first fetch: most gateways never need one.
///
/// Certificates contain the URLs, so the provider of a certificate chooses them. So only public addresses are permitted,
/// and those that the configuration names.
#[derive(Debug)]
pub(crate) struct Errands {
    client: OnceLock<Result<Client, String>>,
    private: Mutex<Arc<[PrivateHost]>>,
}

impl Errands {
    pub(crate) fn new(private: Arc<[PrivateHost]>) -> Self {
        Self { client: OnceLock::new(), private: Mutex::new(private) }
    }

    /// Replaces the permitted private hosts. Returns whether they differ.
    pub(crate) fn permit(&self, private: &Arc<[PrivateHost]>) -> bool {
        let mut own = self.private.lock().unwrap_or_else(PoisonError::into_inner);
        let differs = *own != *private;
        *own = Arc::clone(private);
        differs
    }

    /// The client with a limit of the body, and the destinations that are permitted now.
    fn limited(&self, limit: usize) -> Result<Client, FetchFailure> {
        let limits = Limits { time: TIME, body: limit, ..Limits::default() };
        let private = Arc::clone(&self.private.lock().unwrap_or_else(PoisonError::into_inner));
        let client = self.client().map_err(FetchFailure::Unreachable)?;
        Ok(client.with_limits(limits).with_destinations(Destinations::new(private)))
    }

    fn client(&self) -> Result<&Client, String> {
        let made = || {
            Client::new(&ClientSettings::default()).map_err(|error| format!("cannot fetch anything: {error}"))
        };
        self.client.get_or_init(made).as_ref().map_err(Clone::clone)
    }
}

impl Fetch for Errands {
    fn get<'a>(&'a self, url: &'a str, limit: usize) -> Fetching<'a> {
        Box::pin(async move { fetched(self.limited(limit)?.get(url).await) })
    }

    fn post<'a>(
        &'a self,
        url: &'a str,
        content_type: &'static str,
        body: Vec<u8>,
        limit: usize,
    ) -> Fetching<'a> {
        Box::pin(async move { fetched(self.limited(limit)?.post(url, content_type, body.into()).await) })
    }
}

fn fetched(response: Result<FetchResponse, FetchError>) -> Result<Fetched, FetchFailure> {
    let response = response.map_err(|error| match error.reason {
        Reason::TooLarge(_) | Reason::TooManyRedirects(_) | Reason::Redirect(_) => {
            FetchFailure::Response(error.to_string())
        }
        _ => FetchFailure::Unreachable(error.to_string()),
    })?;
    if response.status != StatusCode::OK {
        return Err(FetchFailure::Response(format!("the answer is {}", response.status)));
    }
    let control = response.headers.get_all(CACHE_CONTROL).iter().map(HeaderValue::as_bytes);
    Ok(Fetched { max_age: cache_control::max_age(control), body: response.body.to_vec() })
}

/// All published certificates as JSON, the first to expire of each folder, and the failed names of each host with names
/// on demand. Times are in Unix seconds.
pub(crate) fn shown(
    maintenance: &Maintenance,
    catalogues: &Catalogues,
    on_demand: &OnDemandHosts,
    now: SystemTime,
) -> String {
    let reports = maintenance.report();
    let all = json!({
        "now": unix_seconds(now),
        "certificates": reports.iter().map(described).collect::<Vec<_>>(),
        "folders": catalogues.all().iter().map(|catalogue| folder(catalogue)).collect::<Vec<_>>(),
        "on_demand": on_demand.all().iter().map(|host| failures(host)).collect::<Vec<_>>(),
    });
    format!("{all:#}\n")
}

fn failures(host: &OnDemand) -> Value {
    let failed = host.failures().into_iter();
    let failed =
        failed.map(|own| json!({ "name": own.name, "at": unix_seconds(own.at), "reason": own.reason }));
    json!({ "host": host.settings().host, "failed": failed.collect::<Vec<_>>() })
}

fn folder(catalogue: &Catalogue) -> Value {
    let (expiry, statistics) = (catalogue.expiry(), catalogue.statistics());
    let (_, faulty) = catalogue.faulty(FAULTY);
    let faulty = faulty.into_iter().map(|(name, reason)| json!({ "name": name, "reason": reason }));
    let first = expiry
        .first
        .iter()
        .map(|(not_after, name)| json!({ "name": name, "not_after": unix_seconds(*not_after) }));
    json!({
        "folder": catalogue.folder().display().to_string(),
        "names": statistics.names,
        "loaded": statistics.loaded,
        "read": expiry.read_at.map(unix_seconds),
        "unreadable": expiry.unreadable,
        "faulty": faulty.collect::<Vec<_>>(),
        "first_to_expire": first.collect::<Vec<_>>(),
    })
}

fn described(report: &Report) -> Value {
    let staple = report
        .staple
        .map(|(since, until)| json!({ "made": unix_seconds(since), "shown_until": unix_seconds(until) }));
    json!({
        "names": report.names,
        "key": report.algorithm.to_string(),
        "file": report.source.display().to_string(),
        "sha256": report.fingerprint.to_string(),
        "not_before": unix_seconds(report.not_before),
        "not_after": unix_seconds(report.not_after),
        "sent": report.chain_length,
        "complete": report.is_complete,
        "must_staple": report.must_staple,
        "wants_staple": report.wants_staple,
        "staple": staple,
        "watched": report.names_list,
        "list_read": report.list_read.map(unix_seconds),
        "revoked": report.revoked.map(unix_seconds),
        "failures": {
            "staple": report.failures.staple,
            "list": report.failures.list,
            "issuer": report.failures.issuer,
        },
        "trouble": report.trouble,
    })
}

/// The metrics of certificates.
#[derive(Debug)]
pub(crate) struct CertificateMetrics {
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) catalogues: Catalogues,
    pub(crate) on_demand: OnDemandHosts,
}

impl Collector for CertificateMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let now = SystemTime::now();
        let mut reports = self.maintenance.report();
        totals(page, &reports)?;
        catalogues(page, &self.catalogues)?;
        on_demand(page, &self.on_demand)?;
        // Hosts' certificates come first, since clients determine which names of folders are in memory. The sort is
        // stable, so the others remain in order of expiry.
        reports.sort_by_key(|report| {
            (report.is_of_folder, report.revoked.is_none() && report.trouble.is_none())
        });
        reports.truncate(SERIES);
        let labelled: Vec<_> = reports.iter().map(Labelled::new).collect();
        let mut family =
            page.gauge("certificate_days_left", "Days to the end of the certificate's validity.")?;
        for Labelled { report, labels } in &labelled {
            family.gauge(&labels.each(), days_left(report.not_after, now))?;
        }
        let mut family = page.seconds_gauge("certificate_staple_age", "Time since the staple was made.")?;
        for Labelled { report, labels } in labelled.iter().filter(|one| one.report.staple.is_some()) {
            let made = report.staple.map_or(now, |(made, _)| made);
            family.gauge(&labels.each(), now.duration_since(made).unwrap_or_default().as_secs())?;
        }
        let mut family = page.gauge("certificate_revoked", "1 if the certificate is revoked.")?;
        for Labelled { report, labels } in &labelled {
            family.gauge(&labels.each(), u64::from(report.revoked.is_some()))?;
        }
        Ok(())
    }
}

/// The reason for which a gateway is not ready: certificates that clients refuse for lack of a staple.
pub(crate) fn staple_trouble(maintenance: &Maintenance) -> Option<String> {
    let lacking = maintenance.without_required_staple();
    let is_lacking = !lacking.is_empty();
    is_lacking.then(|| format!("must-staple certificates without a valid staple: {}", lacking.join(", ")))
}

/// Names of folders whose files cannot be loaded. A note, since one of many thousand names says little about the gateway.
pub(crate) fn folder_notes(catalogues: &Catalogues) -> Option<String> {
    let note = |catalogue: &Arc<Catalogue>| {
        let (count, first) = catalogue.faulty(1);
        let (name, reason) = first.into_iter().next()?;
        let folder = catalogue.folder().display();
        Some(format!(
            "{folder}: files of {count} names cannot be loaded, certificates before stay in use: {name}: {reason}"
        ))
    };
    let notes: Vec<_> = catalogues.all().iter().filter_map(note).collect();
    (!notes.is_empty()).then(|| notes.join("\n"))
}

/// Days until `not_after` with two decimals, negative after it.
fn days_left(not_after: SystemTime, now: SystemTime) -> f64 {
    let left = not_after
        .duration_since(now)
        .map_or_else(|error| -error.duration().as_secs_f64(), |left| left.as_secs_f64());
    (left / 864.0).floor() / 100.0
}

/// Excludes a name that was just requested: its staple may arrive in a moment.
fn lacks_staple(report: &Report) -> bool {
    report.wants_staple && report.staple.is_none() && (report.is_tried || !report.is_of_folder)
}

fn totals(page: &mut Encoder<'_, '_>, reports: &[Report]) -> fmt::Result {
    let count =
        |wanted: &dyn Fn(&Report) -> bool| reports.iter().filter(|report| wanted(report)).count() as u64;
    let mut family = page.gauge("certificates", "Certificates that are shown.")?;
    family.gauge(&[], reports.len() as u64)?;
    let mut family = page.gauge("certificates_in_trouble", "Certificates that need attention, by reason.")?;
    family.gauge(&[("reason", "revoked")], count(&|report| report.revoked.is_some()))?;
    family.gauge(&[("reason", "staple")], count(&lacks_staple))?;
    let unstapled = |report: &Report| report.must_staple && report.staple.is_none() && report.is_tried;
    family.gauge(&[("reason", "must_staple")], count(&unstapled))?;
    family.gauge(&[("reason", "chain")], count(&|report| !report.is_complete))?;
    let sum = |of: &dyn Fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let mut family = page.gauge(
        "certificate_fetch_failures",
        "Failed attempts to fetch something for certificates that are shown now, by what.",
    )?;
    family.gauge(&[("what", "staple")], sum(&|report| report.failures.staple))?;
    family.gauge(&[("what", "list")], sum(&|report| report.failures.list))?;
    family.gauge(&[("what", "issuer")], sum(&|report| report.failures.issuer))
}

/// Metrics of folders with certificates by name.
fn catalogues(page: &mut Encoder<'_, '_>, catalogues: &Catalogues) -> fmt::Result {
    let all: Vec<_> = catalogues
        .all()
        .iter()
        .map(|catalogue| {
            (catalogue.folder().display().to_string(), catalogue.statistics(), catalogue.expiry())
        })
        .collect();
    if all.is_empty() {
        return Ok(());
    }
    let mut family = page.gauge("certificate_folder_names", "Names in a folder of certificates.")?;
    for (folder, of, _) in &all {
        family.gauge(&[("folder", folder)], of.names as u64)?;
    }
    let mut family = page.gauge(
        "certificate_folder_days_left",
        "Days to the end of the validity of the certificate that expires first, of all in a folder.",
    )?;
    for (folder, _, expiry) in &all {
        if let Some((not_after, _)) = expiry.first.first() {
            family.gauge(&[("folder", folder)], days_left(*not_after, SystemTime::now()))?;
        }
    }
    let mut family =
        page.gauge("certificate_folder_unreadable", "Names of a folder without a readable chain.")?;
    for (folder, _, expiry) in &all {
        family.gauge(&[("folder", folder)], expiry.unreadable as u64)?;
    }
    let mut family = page.gauge(
        "certificate_folder_faulty",
        "Names of a folder whose files could not be loaded at the last attempt.",
    )?;
    for catalogue in catalogues.all() {
        let folder = catalogue.folder().display().to_string();
        family.gauge(&[("folder", &folder)], catalogue.faulty(0).0 as u64)?;
    }
    let mut family =
        page.gauge("certificate_folder_loaded", "Names of a folder whose certificates are in memory.")?;
    for (folder, of, _) in &all {
        family.gauge(&[("folder", folder)], of.loaded as u64)?;
    }
    let mut family =
        page.counter("certificate_folder_events", "What was done with names of a folder, by kind.")?;
    for (folder, of, _) in &all {
        for (event, count) in [
            ("loaded", of.loads),
            ("failed", of.failures),
            ("evicted", of.evictions),
            ("changed", of.changes),
        ] {
            family.counter(&[("folder", folder), ("event", event)], count)?;
        }
    }
    Ok(())
}

/// Metrics of names on demand.
fn on_demand(page: &mut Encoder<'_, '_>, on_demand: &OnDemandHosts) -> fmt::Result {
    let all: Vec<_> = on_demand
        .all()
        .iter()
        .map(|on_demand| (on_demand.settings().host.clone(), on_demand.statistics()))
        .collect();
    if all.is_empty() {
        return Ok(());
    }
    let mut family = page.gauge("on_demand_names", "Names on demand whose certificates are in memory.")?;
    for (host, of) in &all {
        family.gauge(&[("host", host)], of.shown as u64)?;
    }
    let mut family = page.counter(
        "on_demand_events",
        "Certificates that were obtained on demand, and handshakes that got none, by kind.",
    )?;
    for (host, of) in &all {
        for (event, count) in [("obtained", of.obtained), ("refused", of.refused)] {
            family.counter(&[("host", host), ("event", event)], count)?;
        }
    }
    Ok(())
}

struct Labelled<'r> {
    report: &'r Report,
    labels: Labels,
}

impl<'r> Labelled<'r> {
    fn new(report: &'r Report) -> Self {
        let mut sha256 = report.fingerprint.to_string();
        // Enough to distinguish certificates of one name.
        sha256.truncate(16);
        let labels =
            Labels { certificate: report.title.clone(), algorithm: report.algorithm.label(), sha256 };
        Self { report, labels }
    }
}

struct Labels {
    certificate: String,
    algorithm: &'static str,
    sha256: String,
}

impl Labels {
    fn each(&self) -> [(&'static str, &str); 3] {
        [("certificate", &self.certificate), ("algorithm", self.algorithm), ("sha256", &self.sha256)]
    }
}

/// Warns of certificates with which a first flight costs clients another round trip.
pub(crate) fn warn_of_long_flights<'a>(
    maintenance: &Maintenance,
    certificates: impl Iterator<Item = &'a Arc<Certificate>>,
) {
    for certificate in certificates {
        let staple = maintenance.staple(certificate);
        let flight = brisk_tls::FirstFlight::of(certificate, staple.as_deref());
        let most = flight.most();
        let (title, file) = (certificate.title(), certificate.source.display());
        // To compress it takes a while: only where that is logged.
        tracing::debug!(certificate = title, most, least = flight.least(), "bytes of the first flight");
        if !flight.fits_tcp() {
            tracing::warn!(
                certificate = title,
                %file,
                "the first flight of a handshake has {most} bytes, more than the {} that are sent at once: it costs clients \
                 another round trip; use ECDSA, or a CA with a shorter chain",
                brisk_tls::flight::TCP_FLIGHT
            );
        }
    }
}
