//! State that the tasks of all hosts share: settings, store, accounts and permits.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::AcmeError;
use crate::account::Authority;
use crate::records::Records;
use crate::renewal::pause;
use crate::responses::ChallengeResponses;
use crate::revoked::Revoked;
use crate::settings::{AcmeSettings, AuthoritySettings, KeyKind};

/// Concurrent orders of one process. Authorities limit pending orders per account.
const ORDERS: usize = 8;

/// Permits for on-demand orders, of [`ORDERS`]. The remainder is reserved for configured hosts, which unknown clients
/// must not delay.
const DEMAND_ORDERS: usize = 6;

/// Status of the certificates of one host, for `brisk cert`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStatus {
    /// Names of the host; the first names it in store and log.
    pub names: Vec<String>,
    /// One entry for each wanted kind of key.
    pub keys: Vec<KeyStatus>,
}

/// Status of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    /// Kind of its key.
    pub kind: KeyKind,
    /// Issuer's name; `None` without a certificate.
    pub issuer: Option<String>,
    /// End of validity; `None` without a certificate.
    pub not_after: Option<SystemTime>,
    /// Time of the next renewal or order.
    pub renewal: SystemTime,
    /// Consecutive failed attempts.
    pub failures: u32,
    /// Reason of the last failure.
    pub last_error: Option<String>,
}

/// State that the tasks of all hosts share.
pub(crate) struct AcmeContext {
    pub(crate) settings: AcmeSettings,
    pub(crate) records: Records,
    pub(crate) answers: ChallengeResponses,
    pub(crate) revoked: Revoked,
    /// Permits for orders, [`ORDERS`] in all.
    pub(crate) orders: Semaphore,
    /// Additional permits that on-demand orders need, [`DEMAND_ORDERS`] in all.
    pub(crate) demand_orders: Semaphore,
    /// One permit for DNS providers that keep the records of only one order.
    pub(crate) dns_orders: Semaphore,
    unwritten: RefCell<HashMap<(String, KeyKind), Unwritten>>,
    authorities: RefCell<HashMap<String, Rc<Authority>>>,
}

/// Consecutive attempts whose outcome the store rejected.
#[derive(Clone, Copy)]
struct Unwritten {
    attempts: u32,
    next: Instant,
}

impl AcmeContext {
    pub(crate) fn new(
        settings: AcmeSettings,
        records: Records,
        answers: ChallengeResponses,
        revoked: Revoked,
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
        }
    }

    /// Returns the account with the authority at `directory`, opened once per process.
    pub(crate) async fn authority(
        &self,
        settings: &AuthoritySettings,
        directory: &str,
    ) -> Result<Rc<Authority>, AcmeError> {
        if let Some(open) = self.authorities.borrow().get(directory) {
            return Ok(Rc::clone(open));
        }
        // Two tasks may open an account at once. The lock in the store lets one create it and the other
        // open the same.
        let opened = Rc::new(Authority::open(settings, directory, &self.settings, &self.records).await?);
        self.authorities.borrow_mut().insert(directory.to_owned(), Rc::clone(&opened));
        Ok(opened)
    }

    /// Closes the account with the authority at `directory`; the next use opens it again.
    pub(crate) fn forget(&self, directory: &str) {
        self.authorities.borrow_mut().remove(directory);
    }

    /// Remembers whether the outcome of an attempt could not be stored.
    pub(crate) fn remember(&self, host: &str, kind: KeyKind, is_unwritten: bool) {
        let (mut all, key) = (self.unwritten.borrow_mut(), (host.to_owned(), kind));
        if is_unwritten {
            let attempts = all.get(&key).map_or(0, |before| before.attempts).saturating_add(1);
            all.insert(key, Unwritten { attempts, next: Instant::now() + pause(attempts, None) });
        } else {
            all.remove(&key);
        }
    }

    /// Remaining pause after attempts whose outcome could not be stored.
    pub(crate) fn remaining_pause(&self, host: &str, kind: KeyKind) -> Option<Duration> {
        let next = self.unwritten.borrow().get(&(host.to_owned(), kind))?.next;
        Some(next.saturating_duration_since(Instant::now())).filter(|rest| !rest.is_zero())
    }
}
