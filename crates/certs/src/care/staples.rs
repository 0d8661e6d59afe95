//! Keeps the staple of a certificate: from the store at the start, then from the responder that the certificate names.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;

use super::Shared;
use super::fleet::Turn;
use super::schedule::{Due, pause, random, refresh, sleep_towards};
use super::ward::{Matter, Ward, Witness};
use crate::certificate::{Certificate, Fingerprint};
use crate::ocsp::{OcspError, Question, RESPONSE_LIMIT, Staple, ends};
use crate::store::Name;

/// Pauses between attempts that fail.
const FIRST_PAUSE: Duration = Duration::from_secs(4);
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

fn name(of: Fingerprint) -> Name {
    Name::of(["staples", &of.to_string()])
}

/// Removes staples from the store that have expired: of certificates that are no more. Blocks.
pub(super) fn sweep(shared: &Shared) {
    let parent = Name::of(["staples"]);
    for store in [shared.store.as_ref(), shared.fleet.store()].into_iter().flatten() {
        // What cannot be read or removed is a small file too many.
        for name in store.list(&parent).unwrap_or_default() {
            let is_over = |kept: &[u8]| ends(kept).is_none_or(|end| end <= SystemTime::now());
            if let Ok(Some(kept)) = store.read(&name)
                && is_over(&kept)
            {
                let _ = store.remove(&name);
            }
        }
    }
}

/// Takes the staple that the store has, if it is still good.
pub(super) fn recall(shared: &Shared, ward: &Ward) {
    let certificate = ward.certificate();
    if !wants(shared, certificate) {
        ward.set_tried();
        return;
    }
    let (Some(store), Some(issuer)) = (&shared.store, ward.issuer()) else { return };
    let Ok(Some(kept)) = store.read(&name(certificate.fingerprint)) else { return };
    let verified = Question::new(&certificate.chain[0], &issuer)
        .and_then(|question| question.verify(&kept, SystemTime::now()).ok());
    if verified.is_some() {
        ward.set_staple(verified);
    }
}

/// Removes what the store has for a certificate that is not shown any more.
pub(super) fn forget(shared: &Shared, fingerprint: Fingerprint) {
    if let Some(store) = &shared.store {
        // What cannot be removed is a small file too many.
        let _ = store.remove(&name(fingerprint));
    }
}

/// Whether a staple is to be fetched.
fn wants(shared: &Shared, certificate: &Certificate) -> bool {
    shared.settings().staples && certificate.staple.is_none() && !certificate.services.responders.is_empty()
}

/// Says why there is no staple for a certificate whose issuer is not known.
pub(super) fn complain_of_issuer(shared: &Shared, ward: &Ward) {
    let reason = "no staple: its issuer is not known; append the certificate of the issuer to the chain file";
    if wants(shared, ward.certificate()) && ward.failed(Matter::Staple, reason.to_owned()) {
        tracing::warn!(certificate = ward.certificate().title(), "{reason}");
    }
}

/// Keeps the staple until the task ends.
pub(super) async fn keep(shared: &Shared, ward: &Ward, issuer: &CertificateDer<'static>) {
    let certificate = Arc::clone(ward.certificate());
    if let Some(staple) = &certificate.staple {
        // Of a file, which a reload replaces.
        while staple.is_fresh(SystemTime::now()) {
            sleep_towards(staple.next_update).await;
        }
        shared.apply(certificate.fingerprint);
        tracing::warn!(
            certificate = certificate.title(),
            "its staple file has expired, and is not shown any more"
        );
        return;
    }
    let question = Question::new(&certificate.chain[0], issuer).filter(|_| wants(shared, &certificate));
    let Some(question) = question else {
        ward.set_tried();
        shared.notify_tried();
        return;
    };
    let (mut failures, mut next) = (0, Due::at(first(ward)));
    loop {
        let now = SystemTime::now();
        let shown = ward.staple();
        if shown.as_ref().is_some_and(|staple| !staple.is_fresh(now)) {
            ward.set_staple(None);
            shared.apply(certificate.fingerprint);
        }
        if !next.is_past() {
            let end = shown.as_ref().filter(|staple| staple.is_fresh(now)).map(|staple| staple.next_update);
            sleep_towards(end.map_or(next.moment(), |end| end.min(next.moment()))).await;
            continue;
        }
        match obtain(shared, ward, &question).await {
            Ok(staple) => {
                failures = 0;
                let half = refresh(staple.this_update, staple.next_update, random());
                // One that is beyond half of its life already was made beforehand: the next is not there yet.
                next = Due::at(half.max(SystemTime::now() + LONGEST_PAUSE.min(remaining(&staple) / 4)));
                succeeded(shared, ward, staple);
            }
            Err(failure) => {
                failures += 1;
                next = Due::after(pause(failures, FIRST_PAUSE, LONGEST_PAUSE, random()));
                failed(shared, ward, &failure);
            }
        }
        ward.set_tried();
        shared.notify_tried();
    }
}

/// When the responder is first asked.
fn first(ward: &Ward) -> SystemTime {
    let kept = ward.staple();
    kept.map_or(SystemTime::UNIX_EPOCH, |staple| refresh(staple.this_update, staple.next_update, random()))
}

fn remaining(staple: &Staple) -> Duration {
    staple.next_update.duration_since(SystemTime::now()).unwrap_or_default()
}

/// Why there is no new staple.
enum Failure {
    Fetch(String),
    Answer(OcspError),
    /// It was made before the certificate was revoked: a cache has it still.
    Outdated,
}

/// A staple that is newer than the last: what another gateway of the fleet has got, or what the responder says. Of a
/// certificate that the responder has called revoked only the responder says that it is not.
async fn obtain(shared: &Shared, ward: &Ward, question: &Question) -> Result<Staple, Failure> {
    let certificate = ward.certificate();
    let url = address(&certificate.services.responders[0], &question.request());
    // The place first: who has the turn of the fleet does nothing but ask.
    let _place = shared.places.of(&url).await;
    let revoked = ward.revoked_by(Witness::Responder);
    let turn = if revoked.is_some() {
        None
    } else {
        match shared.fleet.turn(&name(certificate.fingerprint), question, ward.last_update()).await {
            Turn::Found(staple) => return Ok(staple),
            Turn::Own(turn) => Some(turn),
        }
    };
    let staple = ask(shared, question, &url).await;
    let is_outdated = |staple: &Staple| revoked.is_some_and(|since| staple.this_update < since);
    if staple.as_ref().is_ok_and(is_outdated) {
        return Err(Failure::Outdated);
    }
    if let Some(turn) = turn {
        // What the list calls revoked is good for no other gateway.
        let good = staple.as_ref().ok().filter(|_| !ward.is_revoked());
        turn.end(good.map(|staple| staple.der.clone())).await;
    }
    staple
}

async fn ask(shared: &Shared, question: &Question, url: &str) -> Result<Staple, Failure> {
    let fetched = shared.fetch.get(url, RESPONSE_LIMIT).await.map_err(Failure::Fetch)?;
    question.verify(&fetched.body, SystemTime::now()).map_err(Failure::Answer)
}

// RFC 6960 appendix A.1, RFC 5019 section 5: by GET, so that caches between can answer.
fn address(responder: &str, request: &[u8]) -> String {
    let mut url = responder.trim_end_matches('/').to_owned() + "/";
    for character in STANDARD.encode(request).chars() {
        match character {
            '+' => url.push_str("%2B"),
            '/' => url.push_str("%2F"),
            '=' => url.push_str("%3D"),
            plain => url.push(plain),
        }
    }
    url
}

fn succeeded(shared: &Shared, ward: &Ward, staple: Staple) {
    let certificate = ward.certificate();
    let until = crate::error::day(staple.next_update);
    let der = staple.der.clone();
    ward.set_staple(Some(staple));
    restored(ward, Witness::Responder);
    ward.succeeded(Matter::Staple);
    // What the list calls revoked is not to be shown after a restart either, when the list is not there yet.
    if let Some(store) = shared.store.as_ref().filter(|_| !ward.is_revoked())
        && let Err(error) = store.write(&name(certificate.fingerprint), &der)
    {
        tracing::warn!(certificate = certificate.title(), "its staple is not kept over a restart: {error}");
    }
    shared.apply(certificate.fingerprint);
    if !ward.is_revoked() {
        tracing::info!(certificate = certificate.title(), until, "new staple");
    }
}

fn failed(shared: &Shared, ward: &Ward, failure: &Failure) {
    let certificate = ward.certificate();
    let (title, responder) = (certificate.title(), &certificate.services.responders[0]);
    if let Failure::Answer(OcspError::Revoked(since)) = failure {
        revoked(shared, ward, Witness::Responder, *since, responder);
        return;
    }
    let reason = match failure {
        Failure::Fetch(error) => format!("no staple from {responder}: {error}"),
        Failure::Outdated => format!("the answer of {responder} is older than the revocation"),
        Failure::Answer(error) => format!("the answer of {responder} is not shown to clients: {error}"),
    };
    if ward.failed(Matter::Staple, reason.clone()) {
        let shown =
            if ward.staple().is_some() { "the last one is shown until it expires" } else { "none is shown" };
        tracing::warn!(certificate = title, "{reason}; {shown}");
    }
}

/// Notes that a certificate is revoked, as `by` says, and raises the alarm the first time.
pub(super) fn revoked(shared: &Shared, ward: &Ward, witness: Witness, since: SystemTime, by: &str) {
    let certificate = ward.certificate();
    if ward.set_revoked(witness, Some(since)) {
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

/// Notes that a certificate is not revoked.
pub(super) fn restored(ward: &Ward, witness: Witness) {
    if ward.set_revoked(witness, None) {
        tracing::warn!(certificate = ward.certificate().title(), "it is not revoked any more");
    }
}
