//! What the certificates of all hosts have in common: settings, the store, accounts, and the report of how they stand.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::AcmeError;
use crate::account::Authority;
use crate::answers::Answers;
use crate::records::Records;
use crate::renewal::pause;
use crate::revoked::Revoked;
use crate::settings::{AcmeSettings, AuthoritySettings, KeyKind};

/// Orders under way at the same time: authorities limit them, and so do we.
const ORDERS: usize = 8;

/// How many of them may be for names on demand: the rest is for hosts of the configuration.
const DEMAND_ORDERS: usize = 6;

/// How a host stands, for people and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStatus {
    /// Its names.
    pub names: Vec<String>,
    /// Its certificates, one of each kind of key that is wanted.
    pub keys: Vec<KeyStatus>,
}

/// How a certificate stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    /// The kind of its key.
    pub kind: KeyKind,
    /// Who issued it; `None` if there is none yet.
    pub issuer: Option<String>,
    /// When it ends; `None` if there is none yet.
    pub not_after: Option<SystemTime>,
    /// When it is renewed, or ordered.
    pub renewal: SystemTime,
    /// Attempts that have failed since the last one that succeeded.
    pub failures: u32,
    /// Why the last one failed.
    pub last_error: Option<String>,
}

/// How all hosts stand, by their first names.
pub(crate) type Statuses = Arc<Mutex<BTreeMap<String, HostStatus>>>;

/// What the tasks of all hosts share.
pub(crate) struct Common {
    pub(crate) settings: AcmeSettings,
    pub(crate) records: Records,
    pub(crate) answers: Answers,
    pub(crate) revoked: Revoked,
    /// A permit for each order under way.
    pub(crate) orders: Semaphore,
    /// A permit beside it for each one for a name on demand.
    pub(crate) demand_orders: Semaphore,
    /// The permit of an order whose records have no room for those of another.
    pub(crate) dns_orders: Semaphore,
    unwritten: RefCell<HashMap<(String, KeyKind), Unwritten>>,
    authorities: RefCell<HashMap<String, Rc<Authority>>>,
    statuses: Statuses,
}

/// Attempts in a row whose outcome the store did not take.
#[derive(Clone, Copy)]
struct Unwritten {
    attempts: u32,
    next: Instant,
}

impl Common {
    pub(crate) fn new(
        settings: AcmeSettings,
        records: Records,
        answers: Answers,
        revoked: Revoked,
        statuses: Statuses,
    ) -> Self {
        let (orders, demand_orders) = (Semaphore::new(ORDERS), Semaphore::new(DEMAND_ORDERS));
        let (dns_orders, unwritten) = (Semaphore::new(1), RefCell::default());
        let authorities = RefCell::default();
        Self {
            settings,
            records,
            answers,
            revoked,
            orders,
            demand_orders,
            dns_orders,
            unwritten,
            authorities,
            statuses,
        }
    }

    /// The account with the authority of this directory, opened once.
    pub(crate) async fn authority(
        &self,
        settings: &AuthoritySettings,
        directory: &str,
    ) -> Result<Rc<Authority>, AcmeError> {
        if let Some(open) = self.authorities.borrow().get(directory) {
            return Ok(Rc::clone(open));
        }
        let opened = Rc::new(Authority::open(settings, directory, &self.settings, &self.records).await?);
        self.authorities.borrow_mut().insert(directory.to_owned(), Rc::clone(&opened));
        Ok(opened)
    }

    /// The authority is opened anew when it is needed next.
    pub(crate) fn forget(&self, directory: &str) {
        self.authorities.borrow_mut().remove(directory);
    }

    /// Notes whether the outcome of an attempt could not be written.
    pub(crate) fn remember(&self, host: &str, kind: KeyKind, is_unwritten: bool) {
        let (mut all, key) = (self.unwritten.borrow_mut(), (host.to_owned(), kind));
        if is_unwritten {
            let attempts = all.get(&key).map_or(0, |before| before.attempts).saturating_add(1);
            all.insert(key, Unwritten { attempts, next: Instant::now() + pause(attempts, None) });
        } else {
            all.remove(&key);
        }
    }

    /// How long the pause after such attempts still is.
    pub(crate) fn rest_of(&self, host: &str, kind: KeyKind) -> Option<Duration> {
        let next = self.unwritten.borrow().get(&(host.to_owned(), kind))?.next;
        Some(next.saturating_duration_since(Instant::now())).filter(|rest| !rest.is_zero())
    }

    pub(crate) fn report(&self, status: HostStatus) {
        let name = status.names.first().cloned().unwrap_or_default();
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).insert(name, status);
    }
}
