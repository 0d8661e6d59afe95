//! One certificate that is looked after, and what is known of it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use brisk_keys::KeyAlgorithm;
use rustls_pki_types::CertificateDer;

use super::lock;
use crate::certificate::{Certificate, Fingerprint};
use crate::ocsp::Staple;

/// A certificate that is looked after.
#[derive(Debug)]
pub(super) struct Ward {
    certificate: Arc<Certificate>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    completed: Option<Arc<Certificate>>,
    issuer: Option<CertificateDer<'static>>,
    staple: Option<Arc<Staple>>,
    tried: bool,
    /// Since when it is revoked, as the list says and as the responder says.
    revoked: [Option<SystemTime>; 2],
    list_read: Option<SystemTime>,
    failures: Failures,
    trouble: Option<String>,
}

/// The source of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Witness {
    List,
    Responder,
}

impl State {
    fn revoked(&self) -> Option<SystemTime> {
        self.revoked.into_iter().flatten().min()
    }
}

/// How often something failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// To get a staple.
    pub staple: u64,
    /// To get the revocation list.
    pub list: u64,
    /// To get the issuer's certificate.
    pub issuer: u64,
}

/// What is known of a certificate.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first of its names.
    pub title: String,
    /// All of them.
    pub names: Vec<String>,
    /// The type of its key.
    pub algorithm: KeyAlgorithm,
    /// The chain file.
    pub source: PathBuf,
    /// SHA-256 of the server certificate.
    pub fingerprint: Fingerprint,
    /// Start of its validity.
    pub not_before: SystemTime,
    /// End of its validity.
    pub not_after: SystemTime,
    /// Certificates that are sent.
    pub chain_length: usize,
    /// No intermediate is known to be missing.
    pub is_complete: bool,
    /// It names a responder, or has a staple file.
    pub wants_staple: bool,
    /// When its staple was made and until when it is shown.
    pub staple: Option<(SystemTime, SystemTime)>,
    /// It names a revocation list.
    pub names_list: bool,
    /// When its revocation list was last looked at.
    pub list_read: Option<SystemTime>,
    /// Since when it is revoked.
    pub revoked: Option<SystemTime>,
    /// What has failed since the start.
    pub failures: Failures,
    /// What failed last, and has not succeeded since.
    pub trouble: Option<String>,
}

impl Ward {
    pub(super) fn new(certificate: Arc<Certificate>) -> Self {
        let issuer = certificate.issuer.clone();
        Self { certificate, state: Mutex::new(State { issuer, ..State::default() }) }
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

    pub(super) fn complete(&self, whole: Certificate) {
        let mut state = lock(&self.state);
        state.issuer.clone_from(&whole.issuer);
        state.completed = Some(Arc::new(whole));
        state.trouble = None;
    }

    pub(super) fn staple(&self) -> Option<Arc<Staple>> {
        let state = lock(&self.state);
        state.staple.clone().filter(|_| state.revoked().is_none())
    }

    pub(super) fn set_staple(&self, staple: Option<Staple>) {
        let mut state = lock(&self.state);
        if staple.is_some() {
            (state.tried, state.trouble) = (true, None);
        }
        state.staple = staple.map(Arc::new);
    }

    /// Whether there is nothing to wait for before it is shown.
    pub(super) fn is_tried(&self) -> bool {
        lock(&self.state).tried
    }

    pub(super) fn set_tried(&self) {
        lock(&self.state).tried = true;
    }

    /// Notes since when it is revoked, or that it is not. Whether it became so, or ceased to be.
    pub(super) fn set_revoked(&self, witness: Witness, since: Option<SystemTime>) -> bool {
        let mut state = lock(&self.state);
        let before = state.revoked().is_some();
        state.revoked[witness as usize] = since;
        before != state.revoked().is_some()
    }

    pub(super) fn is_revoked(&self) -> bool {
        lock(&self.state).revoked().is_some()
    }

    pub(super) fn list_was_read(&self, now: SystemTime) {
        lock(&self.state).list_read = Some(now);
    }

    /// Counts a failure. Whether the one before it was another: only that is worth a line of the log.
    pub(super) fn failed(&self, trouble: String, count: impl FnOnce(&mut Failures)) -> bool {
        let mut state = lock(&self.state);
        count(&mut state.failures);
        let news = state.trouble.as_ref() != Some(&trouble);
        state.trouble = Some(trouble);
        news
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
            wants_staple: shown.staple.is_some() || !shown.services.responders.is_empty(),
            staple: staple.map(|staple| (staple.this_update, staple.next_update)),
            names_list: !shown.services.lists.is_empty(),
            list_read: state.list_read,
            revoked: state.revoked(),
            failures: state.failures,
            trouble: state.trouble.clone(),
        }
    }
}
