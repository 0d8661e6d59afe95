//! Report of certificates: the page and the notes of the admin listener, and warnings in the log.

use std::sync::Arc;
use std::time::SystemTime;

use brisk_certs::maintenance::Report;
use brisk_certs::{Catalogue, Catalogues, Certificate, Maintenance, OnDemand, OnDemandHosts};
use serde_json::{Value, json};

use crate::unix_time::unix_seconds;

/// Maximum number of names of a folder that are listed because their files cannot be loaded.
const FAULTY: usize = 100;

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

/// The reason for which `/readyz` responds with `503`: certificates that clients refuse for lack of a staple.
pub(crate) fn staple_trouble(maintenance: &Maintenance) -> Option<String> {
    let lacking = maintenance.without_required_staple();
    let is_lacking = !lacking.is_empty();
    is_lacking.then(|| format!("must-staple certificates without a valid staple: {}", lacking.join(", ")))
}

/// Names of folders whose files cannot be loaded. A note of `/readyz`, since one of many thousand names says little about
/// the gateway.
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
