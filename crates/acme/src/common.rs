//! What the certificates of all hosts have in common: settings, the store, accounts, and the report of how they stand.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::sync::Semaphore;

use crate::AcmeError;
use crate::account::Authority;
use crate::answers::Answers;
use crate::records::Records;
use crate::settings::{AcmeSettings, AuthoritySettings, KeyKind};

/// Orders under way at the same time: authorities limit them, and so do we.
const ORDERS: usize = 8;

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
    /// A permit for each order under way.
    pub(crate) orders: Semaphore,
    authorities: RefCell<HashMap<String, Rc<Authority>>>,
    statuses: Statuses,
}

impl Common {
    pub(crate) fn new(
        settings: AcmeSettings,
        records: Records,
        answers: Answers,
        statuses: Statuses,
    ) -> Self {
        let orders = Semaphore::new(ORDERS);
        Self { settings, records, answers, orders, authorities: RefCell::default(), statuses }
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

    pub(crate) fn report(&self, status: HostStatus) {
        let name = status.names.first().cloned().unwrap_or_default();
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).insert(name, status);
    }
}
