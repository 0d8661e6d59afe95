//! Metrics of certificates, of their folders and of names on demand.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use brisk_certs::maintenance::Report;
use brisk_certs::{Catalogues, Maintenance, OnDemandHosts};
use brisk_telemetry::metrics::{Collector, Encoder};

/// Maximum number of certificates with their own metric series: first those with problems, then those that expire
/// first.
const SERIES: usize = 500;

/// [`Collector`] of the metrics of certificates.
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
        // Before the list is cut, so that totals count all certificates.
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

/// Days until `not_after` with two decimals, negative after it.
fn days_left(not_after: SystemTime, now: SystemTime) -> f64 {
    let left = not_after
        .duration_since(now)
        .map_or_else(|error| -error.duration().as_secs_f64(), |left| left.as_secs_f64());
    // Rounded down, so that a certificate that has just expired is below 0.
    (left / 864.0).floor() / 100.0
}

/// Whether the certificate of `report` lacks its staple. Excludes a name that was just requested: its staple may arrive in
/// a moment.
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
