//! Fetching of intermediates that a chain file lacks, from the `caIssuers` addresses in certificates (RFC 5280
//! section 4.2.2.1).

use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;

use super::Shared;
use super::maintained::{FetchKind, MaintainedCertificate};
use super::schedule::{pause, random};
use crate::certificate::Certificate;
use crate::issuers::{ISSUER_LIMIT, fault_in, issuer_in};
use crate::signature::is_signed_by;
use crate::store::Name;
use crate::x509::Facts;

/// Maximum number of intermediates. Chains usually have one, sometimes two.
const LONGEST: usize = 4;

/// Maximum number of `caIssuers` addresses that are tried for one issuer.
const ADDRESSES: usize = 3;

const FIRST_PAUSE: Duration = Duration::from_secs(4);
const LONGEST_PAUSE: Duration = Duration::from_hours(6);

fn name(certificate: &Certificate) -> Name {
    Name::of(["issuers", &certificate.fingerprint.to_string()])
}

/// Restores the intermediates from the store if they are valid and still belong to the certificate.
pub(super) fn recall(shared: &Shared, maintained: &MaintainedCertificate) {
    let certificate = maintained.certificate();
    let Some(store) = shared.store.as_ref().filter(|_| lacks_issuer(shared, certificate)) else { return };
    let Ok(Some(kept)) = store.read(&name(certificate)) else { return };
    let mut above = Vec::new();
    let mut rest = crate::der::Reader::new(&kept);
    while let Ok(element) = rest.next() {
        above.push(CertificateDer::from(element.whole.to_vec()));
    }
    let now = SystemTime::now();
    let below = std::iter::once(&certificate.chain[0]).chain(&above);
    // Verified again, because an intermediate may have expired since it was stored.
    let fits = below.zip(&above).all(|(below, above)| is_signed_by(below, above) && is_current(above, now));
    if fits && !above.is_empty() {
        maintained.complete(with(certificate, &above), false);
    }
}

fn lacks_issuer(shared: &Shared, certificate: &Certificate) -> bool {
    shared.settings().completes && !certificate.is_complete
}

fn is_current(certificate: &[u8], now: SystemTime) -> bool {
    Facts::read(certificate).is_ok_and(|facts| facts.not_before <= now && now <= facts.not_after)
}

fn with(certificate: &Certificate, above: &[CertificateDer<'static>]) -> Certificate {
    let is_root = |der: &&CertificateDer<'_>| Facts::read(der).is_ok_and(|facts| facts.self_issued());
    let intermediates: Vec<_> = above.iter().filter(|der| !is_root(der)).cloned().collect();
    certificate.with_chain(&intermediates, &above[0])
}

/// Returns the issuer of the certificate, and whether the chain above it is complete. Retries until the issuer has been
/// fetched; `None` if it is not to be fetched or the certificate names no address.
pub(super) async fn complete(
    shared: &Shared,
    maintained: &MaintainedCertificate,
) -> Option<(CertificateDer<'static>, bool)> {
    let certificate = maintained.certificate();
    let mut failures = 0;
    loop {
        if let Some(issuer) = maintained.issuer() {
            return Some((issuer, !maintained.is_partial()));
        }
        if !lacks_issuer(shared, certificate) {
            return None;
        }
        let (above, missing) = climb(shared, &certificate.chain[0], Vec::new()).await;
        if let Some(issuer) = above.first().cloned() {
            completed(shared, maintained, &above, missing.as_deref());
            return Some((issuer, missing.is_none()));
        }
        failures += 1;
        let reason = missing.unwrap_or_else(|| "the certificate does not say where it is".to_owned());
        if maintained.failed(FetchKind::Issuer, reason.clone()) {
            tracing::warn!(certificate = certificate.title(), "its intermediate is still missing: {reason}");
        }
        // A start that waits for the first staples does not wait for retries.
        maintained.set_tried();
        shared.notify_tried();
        tokio::time::sleep(pause(failures, FIRST_PAUSE, LONGEST_PAUSE, random())).await;
    }
}

/// Fetches the certificates above the first issuer, with retries, unless `is_whole`.
pub(super) async fn complete_rest(shared: &Shared, maintained: &MaintainedCertificate, mut is_whole: bool) {
    let certificate = maintained.certificate();
    let mut failures = 0;
    while !is_whole {
        failures += 1;
        tokio::time::sleep(pause(failures, FIRST_PAUSE, LONGEST_PAUSE, random())).await;
        let known = maintained.completed().map(|whole| whole.chain[1..].to_vec()).unwrap_or_default();
        let before = known.len();
        let (above, missing) = climb(shared, &certificate.chain[0], known).await;
        is_whole = missing.is_none();
        match missing {
            Some(reason) if above.len() == before => still_missing(maintained, &reason),
            missing => completed(shared, maintained, &above, missing.as_deref()),
        }
    }
}

/// Extends `above`, the known issuers of `leaf`, up to a root or a certificate that names no issuer address. The second
/// value is the reason why an issuer could not be fetched.
async fn climb(
    shared: &Shared,
    leaf: &CertificateDer<'static>,
    mut above: Vec<CertificateDer<'static>>,
) -> (Vec<CertificateDer<'static>>, Option<String>) {
    // The issuers choose the addresses: without a limit, cross-signed certificates would be fetched in a
    // circle.
    while above.len() < LONGEST {
        match issuer_of(shared, above.last().unwrap_or(leaf)).await {
            Ok(Some(issuer)) => above.push(issuer),
            Ok(None) => break,
            Err(reason) => return (above, Some(reason)),
        }
    }
    (above, None)
}

/// The issuer of `certificate` from the first working address; `None` if it names no address.
async fn issuer_of(
    shared: &Shared,
    certificate: &CertificateDer<'static>,
) -> Result<Option<CertificateDer<'static>>, String> {
    let facts = Facts::read(certificate)?;
    if facts.self_issued() {
        return Ok(None);
    }
    let mut failed = None;
    for address in facts.services.issuers.iter().take(ADDRESSES) {
        let found = match shared.fetch(address, ISSUER_LIMIT).await {
            Ok(fetched) => issuer_in(&fetched.body, certificate).ok_or_else(|| {
                let damage = fault_in(&fetched.body).map(|fault| format!("; its PEM is damaged: {fault}"));
                format!("{address} has no certificate of \"{}\"{}", facts.issuer, damage.unwrap_or_default())
            }),
            Err(error) => Err(error),
        };
        match found {
            Ok(issuer) if is_current(&issuer, SystemTime::now()) => return Ok(Some(issuer)),
            Ok(_) => {
                let reason = format!("the certificate of \"{}\" at {address} is not valid now", facts.issuer);
                failed.get_or_insert(reason);
            }
            Err(reason) => drop(failed.get_or_insert(reason)),
        }
    }
    failed.map_or(Ok(None), Err)
}

fn still_missing(maintained: &MaintainedCertificate, reason: &str) {
    if maintained.failed(FetchKind::Issuer, reason.to_owned()) {
        let title = maintained.certificate().title();
        tracing::warn!(certificate = title, "what is above its intermediate is still missing: {reason}");
    }
}

fn completed(
    shared: &Shared,
    maintained: &MaintainedCertificate,
    above: &[CertificateDer<'static>],
    missing: Option<&str>,
) {
    let certificate = maintained.certificate();
    maintained.complete(with(certificate, above), missing.is_some());
    shared.apply(certificate.fingerprint);
    if let Some(missing) = missing {
        still_missing(maintained, missing);
    } else {
        maintained.succeeded(FetchKind::Issuer);
    }
    let kept: Vec<_> = above.iter().flat_map(|der| der.to_vec()).collect();
    // An incomplete chain is not stored: after a restart it would be taken for a complete one.
    if let Some(store) = shared.store.as_ref().filter(|_| missing.is_none())
        && let Err(error) = store.write(&name(certificate), &kept)
    {
        tracing::warn!(
            certificate = certificate.title(),
            "its intermediate is not kept over a restart: {error}"
        );
    }
    // After the file is written: an operator who restarts brisk because of this line has the intermediate.
    tracing::info!(
        certificate = certificate.title(),
        file = %certificate.source.display(),
        "its intermediate was fetched and is sent from now on; append it to the file all the same"
    );
}
