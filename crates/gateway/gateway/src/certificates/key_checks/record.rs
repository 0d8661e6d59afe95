//! The certificates that one slot is to show, the answers of their keys, and the choice of those that it shows.

use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_certs::{Certificate, Maintenance, Served, Slot};
use brisk_keys::{Engines, KeyElsewhere, Keystore, PrivateKeyEngine, ProbeAnswer};

use super::Publication;

/// Pause before a key is asked again: the first, and the longest, unless many keys are asked.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// A [`Slot`] with the certificates that it is to show.
pub(super) struct Record {
    pub(super) host: String,
    pub(super) slot: Arc<Slot>,
    pub(super) wanted: Vec<Wanted>,
    engine: Arc<dyn PrivateKeyEngine>,
    /// Certificates shown before, which stay in use for those of `wanted` whose keys have not answered.
    previous: Vec<Served>,
    is_announced: bool,
    is_shown: bool,
}

/// A [`Certificate`] that is to be shown.
pub(super) struct Wanted {
    pub(super) certificate: Arc<Certificate>,
    place: KeyPlace,
    /// The [`KeyState`] that the log has. Further reasons of a holder are not logged.
    logged: KeyState,
}

/// Place of a private key.
enum KeyPlace {
    /// In this process.
    Here,
    /// In no engine.
    Nowhere,
    /// Outside this process.
    Elsewhere(Asked),
}

/// A key outside this process with its answers.
struct Asked {
    key: KeyElsewhere,
    /// One [`ProbeAnswer`] for each holder; `None` before the first answer.
    answers: Option<Vec<ProbeAnswer>>,
    /// Time at which the key is asked again; `None` once all holders have made a signature.
    due: Option<Instant>,
    pause: Duration,
}

/// State of the key of a certificate, from the [`ProbeAnswer`]s of its holders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum KeyState {
    /// All holders have made a signature.
    #[default]
    Answers,
    /// Some holders have; the reasons of the others.
    Partly(String),
    /// No holder has; the reasons.
    Silent(String),
    /// The key has not answered yet.
    Awaited,
}

/// Use of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateUse {
    /// Shown, and its key has answered.
    Shown,
    /// Shown although its key has not answered: the slot has no other certificate.
    Unproven,
    /// Not shown, because its key has not answered.
    Withheld,
}

impl Record {
    /// The record of `publication`. A key that `known` has with the same engine keeps its answers, and the certificates
    /// that the slot of `known` shows stay in use if the keys of any of them answer.
    pub(super) fn new(publication: Publication, engines: &dyn Engines, known: Option<&Self>) -> Self {
        let Publication { host, slot, before, certificates, keys, is_announced } = publication;
        let wanted = certificates.into_iter().map(|own| Wanted::new(own, &keys, known)).collect();
        let shown = slot.load();
        let shown =
            before.filter(|_| shown.is_empty()).map_or_else(|| shown.to_vec(), |slot| slot.load().to_vec());
        // A certificate that was shown for want of another is no fallback: its key has not answered either.
        let is_proven = known.is_none_or(|known| !known.is_unproven());
        let previous = if is_proven { shown } else { Vec::new() };
        let engine = slot.engine(keys, engines);
        Self { host, slot, wanted, engine, previous, is_announced, is_shown: false }
    }

    /// Whether the answer of a key is unknown.
    pub(super) fn is_unanswered(&self) -> bool {
        self.wanted
            .iter()
            .any(|wanted| matches!(&wanted.place, KeyPlace::Elsewhere(Asked { answers: None, .. })))
    }

    /// Whether no certificate has a key that answers, now or before.
    pub(super) fn is_unproven(&self) -> bool {
        self.previous.is_empty() && !self.wanted.iter().any(Wanted::has_answered)
    }

    /// Use of a certificate of this record.
    pub(super) fn use_of(&self, wanted: &Wanted) -> CertificateUse {
        if wanted.has_answered() {
            CertificateUse::Shown
        } else if self.is_unproven() {
            CertificateUse::Unproven
        } else {
            CertificateUse::Withheld
        }
    }

    /// Notes `answers` of `key`, and sets `due` after a pause of at most `longest` unless all holders have made a signature.
    /// Returns whether this record has the key.
    pub(super) fn answer(&mut self, key: &KeyElsewhere, answers: &[ProbeAnswer], longest: Duration) -> bool {
        let mut has_key = false;
        for asked in self.asked_mut().filter(|asked| asked.key.is_same(key)) {
            // One signature suffices to show the certificate; the other holders are asked again, so
            // that the log names them.
            let is_complete = answers.iter().all(|answer| answer.fault.is_none());
            asked.answers = Some(answers.to_vec());
            asked.due = (!is_complete).then(|| Instant::now() + asked.pause);
            asked.pause = (asked.pause * 2).min(PAUSES.1.max(longest));
            has_key = true;
        }
        has_key
    }

    /// Keys outside this process that are to be asked, with the time (`due`).
    pub(super) fn questions(&self) -> impl Iterator<Item = (Instant, &KeyElsewhere, &Arc<Certificate>)> {
        self.wanted.iter().filter_map(|wanted| match &wanted.place {
            KeyPlace::Elsewhere(asked) => Some((asked.due?, &asked.key, &wanted.certificate)),
            KeyPlace::Here | KeyPlace::Nowhere => None,
        })
    }

    /// Shows the certificates whose keys have answered, and for each other one the certificates before with the same kind
    /// of key. Returns whether the slot has changed.
    pub(super) fn show(&mut self, maintenance: &Maintenance) -> bool {
        let served = self.chosen(maintenance);
        let shown = self.slot.load();
        let is_same = |(old, new): (&Served, &Served)| {
            Arc::ptr_eq(&old.certificate, &new.certificate) && Arc::ptr_eq(&old.engine, &new.engine)
        };
        let has_changed =
            !self.is_shown || shown.len() != served.len() || !shown.iter().zip(&served).all(is_same);
        if has_changed {
            if self.is_announced {
                announce(&self.host, &shown, &served);
            }
            self.slot.publish(served);
        }
        self.is_shown = true;
        self.log();
        if self.wanted.iter().all(Wanted::has_answered) {
            // Their keys are not needed any more.
            self.previous = Vec::new();
        }
        has_changed
    }

    fn chosen(&self, maintenance: &Maintenance) -> Vec<Served> {
        let mut chosen: Vec<Served> = Vec::new();
        let add_previous = |chosen: &mut Vec<Served>, is_wanted: &dyn Fn(&Certificate) -> bool| {
            for old in self.previous.iter().filter(|old| is_wanted(&old.certificate)) {
                // Two certificates with one kind of key that do not answer have the same certificates before.
                if chosen.iter().all(|other| other.certificate.fingerprint != old.certificate.fingerprint) {
                    chosen.push(maintenance.served(&old.certificate, &old.engine));
                }
            }
        };
        for wanted in &self.wanted {
            if wanted.has_answered() {
                chosen.push(maintenance.served(&wanted.certificate, &self.engine));
            } else {
                // By kind of key: clients that verify this kind only would otherwise have no
                // certificate until the key answers.
                let label = wanted.certificate.algorithm.label();
                add_previous(&mut chosen, &|old| old.algorithm.label() == label);
            }
        }
        if chosen.is_empty() {
            add_previous(&mut chosen, &|_| true);
        }
        // Resumed handshakes need no key, and full ones succeed without a restart once a holder has the key.
        if chosen.is_empty() {
            let all = self.wanted.iter();
            chosen.extend(all.map(|wanted| maintenance.served(&wanted.certificate, &self.engine)));
        }
        chosen
    }

    fn log(&mut self) {
        let uses: Vec<_> = self.wanted.iter().map(|wanted| self.use_of(wanted)).collect();
        let host = &self.host;
        for (wanted, used) in self.wanted.iter_mut().zip(uses) {
            let state = wanted.state();
            if mem::discriminant(&state) == mem::discriminant(&wanted.logged) {
                continue;
            }
            let file = wanted.certificate.source.display();
            match (&state, used) {
                (KeyState::Answers, _) => tracing::info!(host, %file, "the key of the certificate answers"),
                (KeyState::Awaited, _) => {
                    tracing::warn!(host, %file, "the key of the certificate has not answered yet");
                }
                (KeyState::Partly(reasons), _) => tracing::warn!(
                    host, %file, "not every key server has the key of the certificate: {reasons}"
                ),
                (KeyState::Silent(reasons), CertificateUse::Withheld) => tracing::error!(
                    host, %file,
                    "the certificate is not used, because its key does not answer ({reasons}): the one before stays in use"
                ),
                (KeyState::Silent(reasons), _) => tracing::error!(
                    host, %file,
                    "the key of the certificate does not answer ({reasons}): it is used all the same, because the host has \
                     no other"
                ),
            }
            wanted.logged = state;
        }
    }

    fn asked_mut(&mut self) -> impl Iterator<Item = &mut Asked> {
        self.wanted.iter_mut().filter_map(|wanted| match &mut wanted.place {
            KeyPlace::Elsewhere(asked) => Some(asked),
            KeyPlace::Here | KeyPlace::Nowhere => None,
        })
    }
}

impl Wanted {
    fn new(certificate: Arc<Certificate>, keys: &Keystore, known: Option<&Record>) -> Self {
        let place = match keys.elsewhere(certificate.key) {
            None if keys.algorithm(certificate.key).is_some() => KeyPlace::Here,
            None => KeyPlace::Nowhere,
            Some(key) => KeyPlace::Elsewhere(Asked::new(key, known)),
        };
        Self { certificate, place, logged: KeyState::Answers }
    }

    /// Whether a holder of the key has made a signature, or the key is in this process.
    pub(super) fn has_answered(&self) -> bool {
        match &self.place {
            KeyPlace::Here => true,
            KeyPlace::Nowhere => false,
            KeyPlace::Elsewhere(_) => self.answers().iter().any(|answer| answer.fault.is_none()),
        }
    }

    /// The answers of all holders of a key outside this process; empty before the first.
    pub(super) fn answers(&self) -> &[ProbeAnswer] {
        match &self.place {
            KeyPlace::Elsewhere(Asked { answers: Some(answers), .. }) => answers,
            _ => &[],
        }
    }

    /// State of the key.
    pub(super) fn state(&self) -> KeyState {
        let reasons = match &self.place {
            KeyPlace::Here => return KeyState::Answers,
            KeyPlace::Nowhere => return KeyState::Silent("no engine has it".to_owned()),
            KeyPlace::Elsewhere(Asked { answers: None, .. }) => {
                return KeyState::Awaited;
            }
            KeyPlace::Elsewhere(_) => self.answers().iter().filter_map(reason).collect::<Vec<_>>().join("; "),
        };
        if reasons.is_empty() {
            KeyState::Answers
        } else if self.has_answered() {
            KeyState::Partly(reasons)
        } else {
            KeyState::Silent(reasons)
        }
    }
}

impl Asked {
    /// `key` with the answers that `known` has, or to be asked now.
    fn new(key: &KeyElsewhere, known: Option<&Record>) -> Self {
        let places = known.into_iter().flat_map(|record| &record.wanted).map(|wanted| &wanted.place);
        let same = places.filter_map(|place| match place {
            KeyPlace::Elsewhere(asked) if asked.key.is_same(key) => Some(asked),
            _ => None,
        });
        // An answer that was an error is asked for again at once: the operator may have removed the cause.
        let answers =
            same.into_iter().find_map(|asked| asked.answers.clone().filter(|_| asked.due.is_none()));
        let due = answers.is_none().then(Instant::now);
        Self { key: key.clone(), answers, due, pause: PAUSES.0 }
    }
}

/// The reason of a holder that made no signature, with its name.
fn reason(answer: &ProbeAnswer) -> Option<String> {
    let fault = answer.fault.as_ref()?;
    Some(if answer.holder.is_empty() { fault.clone() } else { format!("{}: {fault}", answer.holder) })
}

/// Logs the certificates of `served` that are new in a slot that shows `shown`.
fn announce(host: &str, shown: &[Served], served: &[Served]) {
    // The chain of an incomplete certificate is completed later by fetching issuers, so a difference in it is not news.
    let is_same = |old: &Certificate, new: &Certificate| {
        old.fingerprint == new.fingerprint && (old.chain == new.chain || !new.is_complete)
    };
    let is_shown = |new: &Certificate| shown.iter().any(|old| is_same(&old.certificate, new));
    for new in served.iter().filter(|new| !shown.is_empty() && !is_shown(&new.certificate)) {
        let file: &Path = &new.certificate.source;
        tracing::info!(host, file = %file.display(), "new handshakes are shown a new certificate");
    }
}
