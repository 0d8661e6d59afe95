//! State of one maintained certificate.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use brisk_keys::KeyAlgorithm;
use rustls_pki_types::CertificateDer;

use super::lock;
use crate::certificate::{Certificate, Fingerprint};
use crate::ocsp::Staple;

/// Minimum interval between two log lines about different failures.
const QUIET: Duration = Duration::from_hours(1);

/// A maintained certificate.
#[derive(Debug)]
pub(super) struct MaintainedCertificate {
    certificate: Arc<Certificate>,
    origin: Origin,
    since: Instant,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    completed: Option<Arc<Certificate>>,
    issuer: Option<CertificateDer<'static>>,
    /// Whether a certificate above the issuer is known to be missing.
    is_partial: bool,
    staple: Option<Arc<Staple>>,
    tried: bool,
    /// Revocation dates by [`RevocationSource`].
    revoked: [Option<SystemTime>; 2],
    list_read: Option<SystemTime>,
    failures: Failures,
    /// The last failure of each [`FetchKind`]; `None` after a success.
    last_failures: [Option<LastFailure>; 3],
}

/// Source of a certificate. The order matters: a host has precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// A catalogue name. Its certificate may be evicted, and its revocation list is not watched.
    Folder,
    /// A host of the configuration.
    Host,
}

/// Kinds of fetched data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchKind {
    Staple,
    List,
    Issuer,
}

#[derive(Clone, Debug)]
struct LastFailure {
    reason: String,
    logged: Instant,
}

/// Sources that report a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RevocationSource {
    List,
    Responder,
}

impl State {
    fn revoked(&self) -> Option<SystemTime> {
        self.revoked.into_iter().flatten().min()
    }

    fn trouble(&self) -> Option<String> {
        let all: Vec<_> = self.last_failures.iter().flatten().map(|trouble| &*trouble.reason).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// Failed attempts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Fetches of a staple.
    pub staple: u64,
    /// Fetches of the revocation list.
    pub list: u64,
    /// Fetches of the issuer's certificate.
    pub issuer: u64,
}

/// State of a maintained certificate.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Report {
    /// Its first name.
    pub title: String,
    /// All of its names.
    pub names: Vec<String>,
    /// Type of its key.
    pub algorithm: KeyAlgorithm,
    /// Path of the chain file.
    pub source: PathBuf,
    /// SHA-256 of the server certificate.
    pub fingerprint: Fingerprint,
    /// Start of the validity.
    pub not_before: SystemTime,
    /// End of the validity.
    pub not_after: SystemTime,
    /// Number of certificates that are sent.
    pub chain_length: usize,
    /// Whether no intermediate is known to be missing.
    pub is_complete: bool,
    /// Whether clients refuse the certificate without a staple (must-staple, RFC 7633).
    pub must_staple: bool,
    /// Whether the certificate names a responder or has a staple file.
    pub wants_staple: bool,
    /// `thisUpdate` and `nextUpdate` of the staple.
    pub staple: Option<(SystemTime, SystemTime)>,
    /// Whether the certificate names a revocation list.
    pub names_list: bool,
    /// Time of the last look-up in the revocation list.
    pub list_read: Option<SystemTime>,
    /// Date of the revocation.
    pub revoked: Option<SystemTime>,
    /// Numbers of failures since the start.
    pub failures: Failures,
    /// Failures that have not been followed by a success.
    pub trouble: Option<String>,
    /// Whether the certificate is of a catalogue, and so in memory only while clients use it.
    pub is_of_folder: bool,
    /// Whether a staple was obtained, failed to be fetched, or is not to be fetched.
    pub is_tried: bool,
}

impl MaintainedCertificate {
    pub(super) fn new(certificate: Arc<Certificate>, origin: Origin) -> Self {
        let issuer = certificate.issuer.clone();
        let state = State { issuer, ..State::default() };
        Self { certificate, origin, since: Instant::now(), state: Mutex::new(state) }
    }

    /// The same certificate, loaded with another chain or staple file, that keeps the state of this one.
    pub(super) fn again(&self, certificate: Arc<Certificate>, origin: Origin) -> Self {
        let before = lock(&self.state).clone();
        let issuer = certificate.issuer.clone().or(before.issuer);
        let whole = before.completed.filter(|_| !certificate.is_complete).zip(issuer.as_ref());
        let completed =
            whole.map(|(whole, issuer)| Arc::new(certificate.with_chain(&whole.chain[1..], issuer)));
        let tried = before.staple.is_some();
        let is_partial = before.is_partial && completed.is_some();
        let state = State { completed, issuer, is_partial, tried, ..before };
        Self { certificate, origin, since: Instant::now(), state: Mutex::new(state) }
    }

    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether `certificate` was loaded from the same chain and staple as this one. The same certificate may be in
    /// several files.
    pub(super) fn is_of(&self, certificate: &Arc<Certificate>) -> bool {
        let own = &self.certificate;
        Arc::ptr_eq(own, certificate)
            || (own.chain == certificate.chain
                && own.issuer == certificate.issuer
                && own.staple == certificate.staple)
    }

    /// Time since its maintenance began.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    pub(super) fn certificate(&self) -> &Arc<Certificate> {
        &self.certificate
    }

    pub(super) fn issuer(&self) -> Option<CertificateDer<'static>> {
        lock(&self.state).issuer.clone()
    }

    pub(super) fn completed(&self) -> Option<Arc<Certificate>> {
        lock(&self.state).completed.clone()
    }

    /// Stores the completed chain. `is_partial` if a certificate above the issuer is missing.
    pub(super) fn complete(&self, completed: Certificate, is_partial: bool) {
        let mut state = lock(&self.state);
        state.issuer.clone_from(&completed.issuer);
        state.completed = Some(Arc::new(completed));
        state.is_partial = is_partial;
    }

    /// Whether a certificate above the issuer is known to be missing.
    pub(super) fn is_partial(&self) -> bool {
        lock(&self.state).is_partial
    }

    pub(super) fn staple(&self) -> Option<Arc<Staple>> {
        let state = lock(&self.state);
        state.staple.clone().filter(|_| state.revoked().is_none())
    }

    /// `thisUpdate` of the last staple, even if it is withheld because of a revocation.
    pub(super) fn last_update(&self) -> Option<SystemTime> {
        lock(&self.state).staple.as_ref().map(|staple| staple.this_update)
    }

    pub(super) fn set_staple(&self, staple: Option<Staple>) {
        let mut state = lock(&self.state);
        state.tried |= staple.is_some();
        state.staple = staple.map(Arc::new);
    }

    /// Whether the first staple need not be waited for any longer.
    pub(super) fn is_tried(&self) -> bool {
        lock(&self.state).tried
    }

    pub(super) fn set_tried(&self) {
        lock(&self.state).tried = true;
    }

    /// Sets the revocation date that `source` reports. Returns whether the certificate became revoked or ceased to be.
    pub(super) fn set_revoked(&self, source: RevocationSource, since: Option<SystemTime>) -> bool {
        let mut state = lock(&self.state);
        let before = state.revoked().is_some();
        state.revoked[source as usize] = since;
        before != state.revoked().is_some()
    }

    /// Whether clients refuse the certificate, because it requires a staple (must-staple, RFC 7633) and none is valid
    /// after an attempt to obtain one.
    pub(super) fn lacks_required_staple(&self, now: SystemTime) -> bool {
        if !self.certificate.services.must_staple {
            return false;
        }
        let state = lock(&self.state);
        let staple = self.certificate.staple.as_ref().or(state.staple.as_ref());
        state.tried && !staple.is_some_and(|staple| staple.is_fresh(now) && state.revoked().is_none())
    }

    /// The revocation date that `source` reports.
    pub(super) fn revoked_by(&self, source: RevocationSource) -> Option<SystemTime> {
        lock(&self.state).revoked[source as usize]
    }

    pub(super) fn is_revoked(&self) -> bool {
        lock(&self.state).revoked().is_some()
    }

    pub(super) fn list_was_read(&self, now: SystemTime) {
        lock(&self.state).list_read = Some(now);
    }

    /// Counts a failure. Returns whether to log it: the first is logged, and later ones if the reason differs and the
    /// last log line is an hour old.
    pub(super) fn failed(&self, kind: FetchKind, reason: String) -> bool {
        let mut state = lock(&self.state);
        let Failures { staple, list, issuer } = &mut state.failures;
        let count = match kind {
            FetchKind::Staple => staple,
            FetchKind::List => list,
            FetchKind::Issuer => issuer,
        };
        *count += 1;
        let place = &mut state.last_failures[kind as usize];
        let is_news =
            place.as_ref().is_none_or(|before| before.reason != reason && before.logged.elapsed() >= QUIET);
        let before = place.take().filter(|_| !is_news);
        let logged = before.map_or_else(Instant::now, |before| before.logged);
        *place = Some(LastFailure { reason, logged });
        is_news
    }

    /// Clears the last failure of `kind`.
    pub(super) fn succeeded(&self, kind: FetchKind) {
        lock(&self.state).last_failures[kind as usize] = None;
    }

    pub(super) fn report(&self, now: SystemTime) -> Report {
        let state = lock(&self.state);
        let shown = state.completed.as_ref().unwrap_or(&self.certificate);
        let staple = shown.staple.as_ref().or(state.staple.as_ref());
        let staple = staple.filter(|staple| staple.is_fresh(now) && state.revoked().is_none());
        Report {
            title: shown.title(),
            names: shown.names.clone(),
            algorithm: shown.algorithm,
            source: shown.source.clone(),
            fingerprint: shown.fingerprint,
            not_before: shown.not_before,
            not_after: shown.not_after,
            chain_length: shown.chain.len(),
            is_complete: shown.is_complete,
            must_staple: shown.services.must_staple,
            wants_staple: shown.staple.is_some() || !shown.services.responders.is_empty(),
            staple: staple.map(|staple| (staple.this_update, staple.next_update)),
            names_list: !shown.services.lists.is_empty(),
            list_read: state.list_read,
            revoked: state.revoked(),
            failures: state.failures,
            trouble: state.trouble(),
            is_of_folder: self.origin == Origin::Folder,
            is_tried: state.tried,
        }
    }
}

#[cfg(test)]
mod tests {
    use brisk_keys::Keystore;
    use brisk_testkit::ca::{Leaf, TestCa};

    use super::*;
    use crate::certificate::load;

    fn certificate(leaf: &Leaf) -> Certificate {
        load(&leaf.chain, &leaf.key, &mut Keystore::new(), SystemTime::now()).unwrap().certificate
    }

    fn staple() -> Staple {
        let this_update = SystemTime::now();
        Staple { der: vec![1], this_update, next_update: this_update + QUIET }
    }

    #[test]
    fn one_success_ends_its_own_trouble_alone() {
        let maintained = MaintainedCertificate::new(
            Arc::new(certificate(&TestCa::new().server(&["a.test"]).issue())),
            Origin::Host,
        );
        assert!(maintained.failed(FetchKind::Staple, "no answer".to_owned()));
        assert!(maintained.failed(FetchKind::List, "no list".to_owned()));
        let trouble = || maintained.report(SystemTime::now()).trouble;
        assert_eq!(trouble().as_deref(), Some("no answer; no list"));
        maintained.succeeded(FetchKind::List);
        assert_eq!(trouble().as_deref(), Some("no answer"));
        maintained.succeeded(FetchKind::Staple);
        assert_eq!(trouble(), None);
        assert!(maintained.failed(FetchKind::Staple, "no answer".to_owned()));
    }

    #[test]
    fn reasons_that_take_turns_are_logged_once() {
        let maintained = MaintainedCertificate::new(
            Arc::new(certificate(&TestCa::new().server(&["a.test"]).issue())),
            Origin::Host,
        );
        let logged: Vec<_> = ["refused", "slow", "refused", "slow"]
            .map(|why| maintained.failed(FetchKind::List, why.to_owned()))
            .into();
        assert_eq!(logged, [true, false, false, false]);
        assert_eq!(maintained.report(SystemTime::now()).failures.list, 4);
    }

    #[test]
    fn what_is_loaded_again_with_another_staple_file_is_another_ward_that_knows_the_same() {
        let first = certificate(&TestCa::new().server(&["a.test"]).issue());
        let maintained = MaintainedCertificate::new(Arc::new(first.clone()), Origin::Host);
        maintained.set_staple(Some(staple()));
        let copy = Certificate { source: "copy.pem".into(), ..first.clone() };
        assert!(maintained.is_of(&Arc::new(copy)), "it is the same in another file");
        let second = Arc::new(Certificate { staple: Some(Arc::new(staple())), ..first });
        assert!(!maintained.is_of(&second));
        let again = maintained.again(Arc::clone(&second), Origin::Host);
        assert!(again.is_of(&second) && again.is_tried());
        assert_eq!(again.staple(), maintained.staple());
    }

    #[test]
    fn a_chain_that_was_completed_stays_so_when_its_file_is_loaded_again() {
        let ca = TestCa::new();
        let leaf = ca.server(&["a.test"]).issuer_at("http://a.test").issue();
        std::fs::write(&leaf.chain, &leaf.certificate_pem).unwrap();
        let first = certificate(&leaf);
        let maintained = MaintainedCertificate::new(Arc::new(first.clone()), Origin::Host);
        let issuer = CertificateDer::from(ca.intermediate_der());
        maintained.complete(first.with_chain(std::slice::from_ref(&issuer), &issuer), true);
        let second = Arc::new(Certificate { staple: Some(Arc::new(staple())), ..first });
        let again = maintained.again(Arc::clone(&second), Origin::Host);
        assert!(again.is_partial(), "what is above is still to be fetched");
        let again = again.completed().unwrap();
        assert_eq!((again.chain.len(), &again.staple), (2, &second.staple));
    }
}
