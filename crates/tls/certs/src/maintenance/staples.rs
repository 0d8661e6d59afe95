//! Staples: restored from the store at the start, then renewed from the OCSP responders that the certificate names.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;

use super::Shared;
use super::fleet::StapleSource;
use super::maintained::{FetchKind, MaintainedCertificate, RevocationSource};
use super::responders::{Refusal, Round, RoundFailure};
use super::schedule::{Due, pause, random, refresh, sleep_towards};
use crate::certificate::{Certificate, Fingerprint};
use crate::ocsp::{CertId, OcspError, Staple, ends};
use crate::store::Name;

/// Bounds of the pause between failed attempts.
const FIRST_PAUSE: Duration = Duration::from_secs(4);
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

fn name(of: Fingerprint) -> Name {
    Name::of(["staples", &of.to_string()])
}

/// Removes expired staples from the stores; they belong to certificates that are no longer in use. Blocks.
pub(super) fn sweep(shared: &Shared) {
    let parent = Name::of(["staples"]);
    for store in [shared.store.as_ref(), shared.fleet.store()].into_iter().flatten() {
        // Errors are ignored: a leftover costs a few kilobytes.
        for name in store.list(&parent).unwrap_or_default() {
            // Not verified, because the issuer is not at hand. The worst result of a forged time is one
            // more fetch.
            let is_over = |kept: &[u8]| ends(kept).is_none_or(|end| end <= SystemTime::now());
            if let Ok(Some(kept)) = store.read(&name)
                && is_over(&kept)
            {
                let _ = store.remove(&name);
            }
        }
    }
}

/// Restores the staple from the store if it is still valid.
pub(super) fn recall(shared: &Shared, maintained: &MaintainedCertificate) {
    let certificate = maintained.certificate();
    if !wants(shared, certificate) {
        maintained.set_tried();
        return;
    }
    let (Some(store), Some(issuer)) = (&shared.store, maintained.issuer()) else { return };
    let Ok(Some(kept)) = store.read(&name(certificate.fingerprint)) else { return };
    let verified = CertId::new(&certificate.chain[0], &issuer)
        .and_then(|cert_id| cert_id.verify(&kept, SystemTime::now()).ok());
    if verified.is_some() {
        maintained.set_staple(verified);
    }
}

/// Removes the stored staple of a certificate that is no longer in use.
pub(super) fn forget(shared: &Shared, fingerprint: Fingerprint) {
    if let Some(store) = &shared.store {
        // The error is ignored: a leftover costs a few kilobytes.
        let _ = store.remove(&name(fingerprint));
    }
}

/// Whether a staple is fetched for `certificate`.
fn wants(shared: &Shared, certificate: &Certificate) -> bool {
    shared.settings().staples && certificate.staple.is_none() && !certificate.services.responders.is_empty()
}

/// Logs that there is no staple, because the issuer of the certificate is unknown.
pub(super) fn warn_of_issuer(shared: &Shared, maintained: &MaintainedCertificate) {
    let reason = "no staple: its issuer is not known; append the certificate of the issuer to the chain file";
    if wants(shared, maintained.certificate()) && maintained.failed(FetchKind::Staple, reason.to_owned()) {
        complain(maintained, reason);
    }
}

/// Logs a failure: as an error if clients refuse the certificate without the staple that it lacks.
fn complain(maintained: &MaintainedCertificate, reason: &str) {
    let certificate = maintained.certificate();
    if certificate.services.must_staple && maintained.staple().is_none() {
        tracing::error!(
            certificate = certificate.title(),
            "{reason}; clients refuse this certificate without a staple (must-staple)"
        );
    } else {
        tracing::warn!(certificate = certificate.title(), "{reason}");
    }
}

/// Renews the staple of `maintained`. Returns only if none is to be fetched; otherwise the caller aborts the task.
pub(super) async fn keep(
    shared: &Shared,
    maintained: &MaintainedCertificate,
    issuer: &CertificateDer<'static>,
) {
    let certificate = Arc::clone(maintained.certificate());
    if let Some(staple) = &certificate.staple {
        // A staple from a file is replaced by a reload only.
        while staple.is_fresh(SystemTime::now()) {
            sleep_towards(staple.next_update).await;
        }
        shared.apply(certificate.fingerprint);
        complain(maintained, "its staple file has expired, and is not shown any more");
        return;
    }
    let cert_id = CertId::new(&certificate.chain[0], issuer).filter(|_| wants(shared, &certificate));
    let Some(cert_id) = cert_id else {
        if certificate.services.must_staple {
            complain(maintained, "no staple is fetched");
        }
        maintained.set_tried();
        shared.notify_tried();
        return;
    };
    let (mut failures, mut next) = (0, Due::at(first(maintained)));
    loop {
        let now = SystemTime::now();
        let shown = maintained.staple();
        if shown.as_ref().is_some_and(|staple| !staple.is_fresh(now)) {
            maintained.set_staple(None);
            shared.apply(certificate.fingerprint);
            complain(maintained, "its staple has expired, and there is no newer one");
        }
        if !next.is_past() {
            // Wakes at the end of the staple too: an expired one is withdrawn even while the retry is hours
            // away.
            let end = shown.as_ref().filter(|staple| staple.is_fresh(now)).map(|staple| staple.next_update);
            sleep_towards(end.map_or(next.moment(), |end| end.min(next.moment()))).await;
            continue;
        }
        match obtain(shared, maintained, &cert_id).await {
            Ok(staple) => {
                failures = 0;
                let half = refresh(staple.this_update, staple.next_update, random());
                // The responder signs in advance if the response is already past half of its validity; a newer one does
                // not exist yet, so immediate renewal would be useless.
                next = Due::at(half.max(SystemTime::now() + LONGEST_PAUSE.min(remaining(&staple) / 4)));
                succeeded(shared, maintained, staple);
            }
            Err(all) => {
                failures += 1;
                next = Due::after(pause(failures, FIRST_PAUSE, LONGEST_PAUSE, random()));
                failed(shared, maintained, &all);
            }
        }
        maintained.set_tried();
        shared.notify_tried();
    }
}

/// The time of the first query: now, or when the restored staple is due.
fn first(maintained: &MaintainedCertificate) -> SystemTime {
    let kept = maintained.staple();
    kept.map_or(SystemTime::UNIX_EPOCH, |staple| refresh(staple.this_update, staple.next_update, random()))
}

fn remaining(staple: &Staple) -> Duration {
    staple.next_update.duration_since(SystemTime::now()).unwrap_or_default()
}

/// Returns a newer staple than the last, from the fleet's store or a responder. For a certificate that a responder
/// reported as revoked, only responders are queried: the store may contain an older response.
async fn obtain(
    shared: &Shared,
    maintained: &MaintainedCertificate,
    cert_id: &CertId,
) -> Result<Staple, Vec<RoundFailure>> {
    let certificate = maintained.certificate();
    let revoked = maintained.revoked_by(RevocationSource::Responder);
    let round = Round { shared, cert_id, responders: &certificate.services.responders, revoked };
    let permit = round.permit().await;
    let turn = if revoked.is_some() {
        None
    } else {
        match shared.fleet.claim(&name(certificate.fingerprint), cert_id, maintained.last_update()).await {
            StapleSource::Shared(staple) => return Ok(staple),
            StapleSource::Responder(turn) => Some(turn),
        }
    };
    let staple = round.ask(permit).await;
    if let Some(turn) = turn {
        // A certificate on the revocation list gets no staple in any gateway of the fleet.
        let good = staple.as_ref().ok().filter(|_| !maintained.is_revoked());
        turn.end(good.map(|staple| staple.der.clone())).await;
    }
    staple
}

fn succeeded(shared: &Shared, maintained: &MaintainedCertificate, staple: Staple) {
    let certificate = maintained.certificate();
    let until = crate::error::day(staple.next_update);
    let der = staple.der.clone();
    maintained.set_staple(Some(staple));
    restored(maintained, RevocationSource::Responder);
    maintained.succeeded(FetchKind::Staple);
    // Not stored: after a restart, the staple would be presented before the revocation list is fetched.
    if let Some(store) = shared.store.as_ref().filter(|_| !maintained.is_revoked())
        && let Err(error) = store.write(&name(certificate.fingerprint), &der)
    {
        tracing::warn!(certificate = certificate.title(), "its staple is not kept over a restart: {error}");
    }
    shared.apply(certificate.fingerprint);
    if !maintained.is_revoked() {
        tracing::info!(certificate = certificate.title(), until, "new staple");
    }
}

fn failed(shared: &Shared, maintained: &MaintainedCertificate, failures: &[RoundFailure]) {
    for failure in failures {
        if let Refusal::Response(OcspError::Revoked(since)) = failure.reason {
            revoked(shared, maintained, RevocationSource::Responder, since, failure.responder());
            return;
        }
    }
    let reason = failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if maintained.failed(FetchKind::Staple, reason.clone()) {
        let shown = if maintained.staple().is_some() {
            "the last one is shown until it expires"
        } else {
            "none is shown"
        };
        complain(maintained, &format!("{reason}; {shown}"));
    }
}

/// Records the revocation that `source` reports, and raises the alarm unless it was known. `by` names the source in
/// the log.
pub(super) fn revoked(
    shared: &Shared,
    maintained: &MaintainedCertificate,
    source: RevocationSource,
    since: SystemTime,
    by: &str,
) {
    let certificate = maintained.certificate();
    if maintained.set_revoked(source, Some(since)) {
        forget(shared, certificate.fingerprint);
        shared.fleet.remove(name(certificate.fingerprint));
        shared.apply(certificate.fingerprint);
        let since = crate::error::day(since);
        tracing::error!(
            certificate = certificate.title(),
            file = %certificate.source.display(),
            since,
            "REVOKED, as {by} says: clients refuse this certificate; have a new one issued, with a new key"
        );
        shared.alarm(certificate);
    }
}

/// Records that `source` no longer reports the certificate as revoked.
pub(super) fn restored(maintained: &MaintainedCertificate, source: RevocationSource) {
    if maintained.set_revoked(source, None) {
        tracing::warn!(certificate = maintained.certificate().title(), "it is not revoked any more");
    }
}
