//! States of keys for `/readyz` and metrics.

use std::fmt;
use std::sync::Arc;

use brisk_telemetry::metrics::{Collector, Encoder};

use super::KeyChecks;
use super::record::{CertificateUse, KeyState, Record, Wanted};

/// Maximum number of lines of `/readyz`, before the number of further ones.
const LINES: usize = 10;

/// Maximum number of keys with their own metric series; those that do not answer come first.
const SERIES: usize = 500;

impl KeyChecks {
    /// Hosts without a certificate whose key answers, for which `/readyz` responds with `503`; `None` if there is no such
    /// host.
    pub(crate) fn trouble(&self) -> Option<String> {
        lines(self.reasons(|used, _| used == CertificateUse::Unproven))
    }

    /// Certificates that are not used because their keys do not answer, key servers that lack the key of a certificate in
    /// use, and keys for which the last reload was refused. The host has a certificate all the same.
    pub(crate) fn notes(&self) -> Option<String> {
        let mut notes = self.reasons(|used, state| {
            used == CertificateUse::Withheld
                || matches!((used, state), (CertificateUse::Shown, KeyState::Partly(_)))
        });
        notes.extend(self.refused.all().into_iter().map(|refused| {
            format!("not reloaded, the certificates before stay in use: {}: {}", refused.path, refused.reason)
        }));
        lines(notes)
    }

    fn reasons(&self, is_meant: impl Fn(CertificateUse, &KeyState) -> bool) -> Vec<String> {
        let records = self.records();
        let mut reasons: Vec<_> = records
            .values()
            .flat_map(|record| record.wanted.iter().map(move |wanted| (record, wanted)))
            .filter_map(|(record, wanted)| {
                let (used, state) = (record.use_of(wanted), wanted.state());
                is_meant(used, &state).then(|| described(record, wanted, used, &state))
            })
            .collect();
        reasons.sort();
        reasons
    }
}

fn described(record: &Record, wanted: &Wanted, used: CertificateUse, state: &KeyState) -> String {
    let (host, file) = (&record.host, wanted.certificate.source.display());
    match (state, used) {
        (KeyState::Answers, _) => format!("{host}: the key of {file} answers"),
        (KeyState::Awaited, _) => format!("{host}: the key of {file} has not answered yet"),
        (KeyState::Partly(reasons), _) => {
            format!("{host}: not every key server has the key of {file}: {reasons}")
        }
        (KeyState::Silent(reasons), CertificateUse::Withheld) => {
            format!("{host}: {file} is not used, because its key does not answer ({reasons})")
        }
        (KeyState::Silent(reasons), _) => {
            format!(
                "{host}: the key of {file} does not answer ({reasons}), and there is no other certificate"
            )
        }
    }
}

fn lines(mut all: Vec<String>) -> Option<String> {
    let more = all.len().saturating_sub(LINES);
    all.truncate(LINES);
    all.extend((more > 0).then(|| format!("and {more} more")));
    (!all.is_empty()).then(|| all.join("\n"))
}

/// [`Collector`] of the states of keys outside this process.
#[derive(Debug)]
pub(crate) struct KeyMetrics(pub(crate) Arc<KeyChecks>);

/// One series: labels and value.
struct Series {
    host: String,
    key: String,
    holder: String,
    answers: bool,
}

impl Collector for KeyMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let (unused, mut all) = self.0.series();
        let mut family = page.gauge(
            "certificates_without_key",
            "Certificates whose key does not answer: not used, or used because the host has no other.",
        )?;
        family.gauge(&[], unused)?;
        // No family without series, for gateways whose keys are all in this process.
        if all.is_empty() {
            return Ok(());
        }
        let key = |one: &Series| (one.answers, one.host.clone(), one.key.clone(), one.holder.clone());
        // `false` sorts first: keys that do not answer must not be cut by the limit of series.
        all.sort_by_cached_key(key);
        all.dedup_by(|one, other| key(one) == key(other));
        all.truncate(SERIES);
        let mut family = page.gauge(
            "key_answers",
            "Whether the holder made a signature with the key of a host's certificate when it was asked last.",
        )?;
        for Series { host, key, holder, answers } in &all {
            family.gauge(&[("host", host), ("key", key), ("holder", holder)], u64::from(*answers))?;
        }
        Ok(())
    }
}

impl KeyChecks {
    /// Number of certificates without a key that answers, and a series for each holder of each key.
    fn series(&self) -> (u64, Vec<Series>) {
        let records = self.records();
        let (mut unused, mut all) = (0, Vec::new());
        for record in records.values() {
            for wanted in &record.wanted {
                unused += u64::from(!wanted.has_answered());
                let mut key = wanted.certificate.key.to_string();
                // Enough to distinguish the keys of one host.
                key.truncate(16);
                let series = |holder: &str, answers| Series {
                    host: record.host.clone(),
                    key: key.clone(),
                    holder: holder.to_owned(),
                    answers,
                };
                let each = wanted.answers().iter();
                all.extend(each.map(|answer| series(&answer.holder, answer.fault.is_none())));
                if wanted.answers().is_empty() && !wanted.has_answered() {
                    all.push(series("", false));
                }
            }
        }
        drop(records);
        for refused in self.refused.all() {
            unused += 1;
            let (host, holder) = (refused.host, refused.holder);
            all.push(Series { host, key: String::new(), holder, answers: false });
        }
        (unused, all)
    }
}

impl fmt::Debug for KeyChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyChecks").finish_non_exhaustive()
    }
}
