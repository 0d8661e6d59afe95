//! Fetches the intermediates that a chain file lacks, from the addresses that certificates name.

use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;

use super::Shared;
use super::schedule::{pause, random};
use super::ward::Ward;
use crate::certificate::Certificate;
use crate::issuers::{ISSUER_LIMIT, issuer_in};
use crate::signature::is_signed_by;
use crate::store::Name;
use crate::x509::Facts;

/// Intermediates of a chain. Usual is one, sometimes two.
const LONGEST: usize = 4;

const FIRST_PAUSE: Duration = Duration::from_secs(4);
const LONGEST_PAUSE: Duration = Duration::from_hours(6);

fn name(certificate: &Certificate) -> Name {
    Name::of(["issuers", &certificate.fingerprint.to_string()])
}

/// Takes the intermediates that the store has, if they still fit.
pub(super) fn recall(shared: &Shared, ward: &Ward) {
    let certificate = ward.certificate();
    let Some(store) = shared.store.as_ref().filter(|_| lacks_issuer(shared, certificate)) else { return };
    let Ok(Some(kept)) = store.read(&name(certificate)) else { return };
    let mut above = Vec::new();
    let mut rest = crate::der::Reader::new(&kept);
    while let Ok(element) = rest.next() {
        above.push(CertificateDer::from(element.whole.to_vec()));
    }
    let now = SystemTime::now();
    let below = std::iter::once(&certificate.chain[0]).chain(&above);
    let fits = below.zip(&above).all(|(below, above)| is_signed_by(below, above) && is_current(above, now));
    if fits && !above.is_empty() {
        ward.complete(with(certificate, &above));
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

/// The issuer of the certificate, fetched if the chain file has none, however often that takes. `None`: it cannot be
/// known.
pub(super) async fn complete(shared: &Shared, ward: &Ward) -> Option<CertificateDer<'static>> {
    let certificate = ward.certificate();
    let mut failures = 0;
    loop {
        if let Some(issuer) = ward.issuer() {
            return Some(issuer);
        }
        if !lacks_issuer(shared, certificate) {
            return None;
        }
        match climb(shared, &certificate.chain[0]).await {
            Ok(above) => {
                completed(shared, ward, &above);
                return above.into_iter().next();
            }
            Err(reason) => {
                failures += 1;
                if ward.failed(reason.clone(), |failures| failures.issuer += 1) {
                    tracing::warn!(
                        certificate = certificate.title(),
                        "its intermediate is still missing: {reason}"
                    );
                }
                // The start does not wait for it.
                ward.set_tried();
                shared.notify_tried();
                tokio::time::sleep(pause(failures, FIRST_PAUSE, LONGEST_PAUSE, random())).await;
            }
        }
    }
}

/// The certificates above `leaf`, up to the root or to one that does not say who issued it; at least one.
async fn climb(
    shared: &Shared,
    leaf: &CertificateDer<'static>,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut above: Vec<CertificateDer<'static>> = Vec::new();
    while above.len() < LONGEST {
        let last = above.last().unwrap_or(leaf);
        let facts = Facts::read(last)?;
        let Some(address) = facts.services.issuers.first().filter(|_| !facts.self_issued()) else { break };
        let fetched = shared.fetch(address, ISSUER_LIMIT).await?;
        let issuer = issuer_in(&fetched.body, last)
            .ok_or_else(|| format!("{address} has no certificate of \"{}\"", facts.issuer))?;
        above.push(issuer);
    }
    Ok(above)
}

fn completed(shared: &Shared, ward: &Ward, above: &[CertificateDer<'static>]) {
    let certificate = ward.certificate();
    ward.complete(with(certificate, above));
    shared.apply(|fingerprint| *fingerprint == certificate.fingerprint);
    tracing::info!(
        certificate = certificate.title(),
        file = %certificate.source.display(),
        "its intermediate was fetched and is sent from now on; append it to the file all the same"
    );
    let kept: Vec<_> = above.iter().flat_map(|der| der.to_vec()).collect();
    if let Some(store) = &shared.store
        && let Err(error) = store.write(&name(certificate), &kept)
    {
        tracing::warn!(
            certificate = certificate.title(),
            "its intermediate is not kept over a restart: {error}"
        );
    }
}
