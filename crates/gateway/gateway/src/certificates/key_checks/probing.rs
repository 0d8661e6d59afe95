//! The task that has keys make signatures, on the thread that maintains certificates.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use brisk_certs::{Certificate, Slot};
use brisk_keys::{KeyAlgorithm, KeyElsewhere, KeyId, ProbeAnswer};
use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::KeyChecks;
use super::record::Record;

/// Keys that are asked at the same time. More would take the place of handshakes in the queues of engines.
const CONCURRENT: usize = 32;

/// Timeout of one question, at all holders of a key together.
const DEADLINE: Duration = Duration::from_secs(5);

/// Pause between two questions to one key, per key that does not answer, so that many such keys cost at most 200
/// operations per second at each holder.
const SHARE: Duration = Duration::from_millis(5);

/// Wait without a key that is to be asked; `wake` ends it.
const IDLE: Duration = Duration::from_hours(1);

/// Asks keys until `checks` is dropped elsewhere, and calls `shown` with the [`Slot`]s that have changed. Holds no strong
/// reference to `checks` while it waits.
pub(crate) async fn run(checks: Weak<KeyChecks>, wake: Arc<Notify>, shown: impl Fn(&[Arc<Slot>])) {
    let mut running: JoinSet<(KeyElsewhere, Vec<ProbeAnswer>)> = JoinSet::new();
    let mut in_progress: HashMap<KeyId, Vec<KeyElsewhere>> = HashMap::new();
    loop {
        // Not for each answer: the search looks at all certificates.
        let mut next = None;
        if running.len() <= CONCURRENT / 2 {
            let Some(checks) = checks.upgrade() else { return };
            let (due, later) = checks.due(CONCURRENT - running.len(), &in_progress);
            next = later;
            for (key, certificate) in due {
                in_progress.entry(key.id()).or_default().push(key.clone());
                running.spawn(ask(key, certificate.algorithm));
            }
        }
        let wait = next.map_or(IDLE, |next| next.saturating_duration_since(Instant::now()));
        tokio::select! {
            Some(Ok((key, answers))) = running.join_next() => {
                if let Some(same) = in_progress.get_mut(&key.id()) {
                    same.retain(|own| !own.is_same(&key));
                }
                in_progress.retain(|_, same| !same.is_empty());
                let Some(checks) = checks.upgrade() else { return };
                shown(&checks.take(&key, &answers));
            }
            () = wake.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn ask(key: KeyElsewhere, algorithm: KeyAlgorithm) -> (KeyElsewhere, Vec<ProbeAnswer>) {
    let probe = AssertUnwindSafe(key.probe(algorithm, Instant::now() + DEADLINE)).catch_unwind().await;
    // A panic of the engine is an answer with a fault, which leads to the next question: a key without an answer would not be
    // asked again.
    let panicked = || ProbeAnswer { holder: String::new(), fault: Some("the engine panicked".to_owned()) };
    let answers = probe.unwrap_or_else(|_| vec![panicked()]);
    (key, answers)
}

impl KeyChecks {
    /// Up to `most` keys that are to be asked now and are not `in_progress`, and the time of the next one.
    fn due(
        &self,
        most: usize,
        in_progress: &HashMap<KeyId, Vec<KeyElsewhere>>,
    ) -> (Vec<(KeyElsewhere, Arc<Certificate>)>, Option<Instant>) {
        let (now, mut next) = (Instant::now(), None);
        let mut due: Vec<(KeyElsewhere, Arc<Certificate>)> = Vec::new();
        for (at, key, certificate) in self.records().values().flat_map(Record::questions) {
            // By engine too: after a reload, the same key may have to answer in a new engine, which an
            // earlier answer does not prove.
            let is_asked =
                in_progress.get(&key.id()).is_some_and(|all| all.iter().any(|own| own.is_same(key)));
            if is_asked || due.iter().any(|(own, _)| own.is_same(key)) {
                continue;
            }
            if at > now {
                next = Some(next.map_or(at, |next: Instant| next.min(at)));
            } else if due.len() < most {
                due.push((key.clone(), Arc::clone(certificate)));
            }
        }
        (due, next)
    }

    /// Notes `answers` of `key`, and shows the certificates that may be shown now. Returns the [`Slot`]s that have changed.
    fn take(&self, key: &KeyElsewhere, answers: &[ProbeAnswer]) -> Vec<Arc<Slot>> {
        let mut records = self.records();
        let faulty = records.values().filter(|record| record.questions().next().is_some()).count();
        let longest = SHARE * u32::try_from(faulty).unwrap_or(u32::MAX);
        let mut changed = Vec::new();
        for record in records.values_mut() {
            // Shown together with the other certificates of the slot, by the publication that waits for all of them.
            if record.answer(key, answers, longest)
                && !record.is_unanswered()
                && record.show(&self.maintenance)
            {
                changed.push(Arc::clone(&record.slot));
            }
        }
        // Before the notification, so that a publication that wakes finds the lock free.
        drop(records);
        self.answered.notify_all();
        changed
    }
}

#[cfg(test)]
mod tests {
    use brisk_keys::{KeyOperation, Keystore, PendingOperation, PrivateKeyEngine};

    use super::*;

    #[derive(Debug)]
    struct Broken;

    impl PrivateKeyEngine for Broken {
        fn submit(&self, _operation: KeyOperation) -> PendingOperation {
            panic!("as a bug would");
        }
    }

    #[tokio::test]
    async fn a_question_that_panics_is_answered_with_a_fault_and_so_asked_again() {
        let mut keys = Keystore::new();
        let id = keys.add_elsewhere(b"a public key", Arc::new(Broken));
        let key = keys.elsewhere(id).expect("a key").clone();
        let (asked, answers) = ask(key.clone(), KeyAlgorithm::EcdsaP256).await;
        assert!(asked.is_same(&key));
        assert!(answers.iter().any(|answer| answer.fault.is_some()));
    }
}
