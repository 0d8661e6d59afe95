//! Publication of certificates: a certificate is shown once its key has answered, and the one before stays in use until
//! then.
//!
//! Certificates from files and from authorities are published through [`KeyChecks::publish`]. A key in this process was
//! compared with its certificate when it was loaded. A key elsewhere makes one signature at each of its holders; this is
//! repeated after pauses until all of them have made one. Certificates of folders and names on demand have their keys in
//! this process.

mod probing;
mod record;
mod report;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use brisk_certs::{Certificate, Maintenance, RefusedKeys, Slot};
use brisk_keys::{Engines, Keystore};
use tokio::sync::Notify;

pub(crate) use probing::run;
use record::Record;
pub(crate) use report::KeyMetrics;

/// Longest time for which [`KeyChecks::publish`] waits for answers of keys, at a start, a reload or a renewal. Certificates
/// whose keys have not answered by then are shown when they have.
const WAIT: Duration = Duration::from_secs(2);

/// The certificates that a [`Slot`] is to show.
pub(crate) struct Publication {
    /// First name of the host, for messages.
    pub(crate) host: String,
    pub(crate) slot: Arc<Slot>,
    /// The [`Slot`] of a host before with other names, whose certificates stay in use if `slot` is empty.
    pub(crate) before: Option<Arc<Slot>>,
    pub(crate) certificates: Vec<Arc<Certificate>>,
    /// The private keys, or the engines that have them.
    pub(crate) keys: Keystore,
    /// Whether a line of the log announces a new certificate. Certificates by ACME have lines of their own.
    pub(crate) is_announced: bool,
}

/// Certificates of all [`Slot`]s with the answers of their keys.
pub(crate) struct KeyChecks {
    maintenance: Arc<Maintenance>,
    engines: Arc<dyn Engines>,
    refused: RefusedKeys,
    records: Mutex<Records>,
    /// Signals an answer, to callers that [wait](WAIT).
    answered: Condvar,
    /// Wakes [`probing::run`].
    pub(crate) wake: Arc<Notify>,
}

/// Records by the [`address`] of their slot.
type Records = HashMap<usize, Record>;

impl KeyChecks {
    /// Checks of keys in `engines`. `refused` are the keys for which a configuration was refused; [`Self::notes`] lists them.
    pub(crate) fn new(
        maintenance: &Arc<Maintenance>,
        engines: &Arc<dyn Engines>,
        refused: RefusedKeys,
    ) -> Arc<Self> {
        Arc::new(Self {
            maintenance: Arc::clone(maintenance),
            engines: Arc::clone(engines),
            refused,
            records: Mutex::default(),
            answered: Condvar::new(),
            wake: Arc::default(),
        })
    }

    /// Shows the certificates of `publications` whose keys answer within [`WAIT`], and all others as soon as their keys
    /// answer. Blocks only for keys elsewhere that are new or have a new engine.
    pub(crate) fn publish(&self, publications: Vec<Publication>) {
        let slots: HashSet<_> = publications.iter().map(|publication| address(&publication.slot)).collect();
        let mut records = self.records();
        for publication in publications {
            self.record(&mut records, publication);
        }
        // Before the wait below: the task on another thread has the keys make their signatures meanwhile.
        self.wake.notify_one();
        let until = Instant::now() + WAIT;
        while slots.iter().any(|slot| records.get(slot).is_some_and(Record::is_unanswered)) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.answered.wait_timeout(records, left);
            records = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        for slot in slots {
            if let Some(record) = records.get_mut(&slot) {
                record.show(&self.maintenance);
            }
        }
    }

    /// Forgets all slots except `slots`, with the keys of their certificates.
    pub(crate) fn keep(&self, slots: &[Arc<Slot>]) {
        let slots: HashSet<_> = slots.iter().map(address).collect();
        // Also for memory: a record owns the previous certificates, and with them their engine and its keys.
        self.records().retain(|slot, _| slots.contains(slot));
    }

    /// Adds a [`Record`] of `publication` with the answers that are known already.
    fn record(&self, records: &mut Records, publication: Publication) {
        let own = address(&publication.slot);
        // A host without certificates in the configuration must not show its old ones.
        if publication.certificates.is_empty() {
            publication.slot.publish(Vec::new());
            records.remove(&own);
            return;
        }
        // Only for an empty slot: the names of a host have changed, and with them its slot.
        let before = publication.before.as_ref().filter(|_| publication.slot.load().is_empty());
        let known = records.get(&before.map_or(own, address));
        let record = Record::new(publication, &*self.engines, known);
        records.insert(own, record);
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Identifies a slot as long as a record has it.
fn address(slot: &Arc<Slot>) -> usize {
    Arc::as_ptr(slot).addr()
}
