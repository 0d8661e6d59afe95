//! Periodic work for on-demand names: renewal, eviction from memory, comparison with the store, removal of unused
//! names.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_certs::{Certificate, Names};
use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::Instant;

use super::{NameDecider, OnDrop, Warning};
use crate::AcmeError;
use crate::attempt::rfc3339;
use crate::demand::ask::Decision;
use crate::demand::job::{DemandTask, Outcome};
use crate::demand::load::{Loaded, forget, is_over};
use crate::renewal::random_below;

/// Interval of checks of a certificate in use, and the time after its last use for which it stays in memory.
const CHECK_INTERVAL: Duration = Duration::from_hours(1);
const KEPT_UNUSED: Duration = Duration::from_hours(48);

/// Limits: queued checks, concurrent checks, and concurrent renewals.
const QUEUED_CHECKS: usize = 50;
pub(super) const CHECKS: usize = 4;
pub(super) const RENEWALS: usize = 4;

/// Names that one sweep checks per minute.
const SWEEP_SIZE: usize = 100;

/// Time for which a name must be without use before it is removed. Protects certificates against a clock that is wrong
/// after boot.
const UNUSED_FOR: Duration = Duration::from_hours(1);

impl NameDecider {
    /// Evicts certificates that no client used for [`KEPT_UNUSED`], and starts checks of those in use, the longest
    /// overdue first.
    pub(super) fn look_over(self: &Rc<Self>) {
        let now = Instant::now();
        let mut due = Vec::new();
        for (name, idle) in self.names.in_memory() {
            if idle > KEPT_UNUSED {
                self.names.drop_shown(&name);
                self.looks.borrow_mut().remove(&name);
                continue;
            }
            let at = self.looks.borrow().get(&name).copied();
            if at.is_none_or(|at| at <= now) && !self.under_way.borrow().contains(&name) {
                due.push((at, name));
            }
        }
        due.sort();
        for (_, name) in due.into_iter().take(QUEUED_CHECKS.saturating_sub(self.waiting.get())) {
            self.under_way.borrow_mut().insert(name.clone());
            self.waiting.set(self.waiting.get() + 1);
            let own = Rc::clone(self);
            spawn_local(async move {
                let _end = OnDrop(|| {
                    own.under_way.borrow_mut().remove(&name);
                });
                own.look_at(&name).await;
            });
        }
    }

    /// Presents certificates that other gateways obtained, and renews due certificates if the operator's server still
    /// accepts the name.
    async fn look_at(self: &Rc<Self>, name: &str) {
        let is_due = {
            let _end = OnDrop(|| self.waiting.set(self.waiting.get() - 1));
            let _place = self.looking.acquire().await.expect("it is never closed");
            let spread = Duration::from_secs(random_below(CHECK_INTERVAL.as_secs() / 10));
            // Set before the check, so that a failed check is not repeated with every tick.
            self.looks.borrow_mut().insert(name.to_owned(), Instant::now() + CHECK_INTERVAL + spread);
            self.compare_one(name).await && self.is_due(name).await
        };
        if is_due {
            // The permit for checks is free again, so that other names are checked while this one is renewed.
            let _place = self.renewing.acquire().await.expect("it is never closed");
            let _ = self.job(name, DemandTask::Obtain).await;
            self.compare_one(name).await;
        }
    }

    /// Returns whether a certificate may be ordered now: a renewal is due, or one is missing and a token is available.
    async fn is_due(&self, name: &str) -> bool {
        let outcome = self.job(name, DemandTask::Look).await;
        let (Outcome::Due(at) | Outcome::Missing(at)) = outcome else { return false };
        if at > SystemTime::now() {
            return false;
        }
        match self.ask(name, None).await {
            Decision::Accepted => {}
            Decision::Rejected => {
                tracing::info!(name, "certificate not renewed: the operator's server rejects the name");
                return false;
            }
            Decision::Unknown(reason) => {
                self.warn(Warning::Renewal, || {
                    tracing::warn!(name, reason, "no decision about the renewal of an on-demand certificate");
                });
                return false;
            }
        }
        // Renewals take no token. A kind of key that the configuration has added does.
        matches!(outcome, Outcome::Due(_)) || self.orders.borrow_mut().take(Instant::now()).is_ok()
    }

    /// Replaces the certificates in memory by those of the [`Store`]. Returns whether there are any.
    async fn compare_one(self: &Rc<Self>, name: &str) -> bool {
        // The store cannot be read now; certificates in memory stay.
        let Some(stored) = self.stored(name).await else { return false };
        let Some(Loaded { certificates, keys, ends }) = stored else {
            // No valid certificate is stored any more: the next handshake starts a decision.
            self.looks.borrow_mut().remove(name);
            self.names.drop_shown(name);
            return false;
        };
        self.keep(name);
        let Some(shown) = self.names.peek(name) else { return false };
        let is_shown = |own: &Arc<Certificate>| shown.iter().any(|one| own.chain == one.certificate.chain);
        if shown.len() != certificates.len() || !certificates.iter().all(is_shown) {
            self.names.replace(name, certificates, keys);
            tracing::info!(name, ends = rfc3339(ends), "renewed certificate published");
        }
        true
    }

    /// Reads the list of names with certificates, obtained by any gateway. Names that disappeared, for example by a
    /// revocation, are checked at the next tick.
    pub(super) async fn compare(&self) {
        let records = self.records.clone();
        match spawn_blocking(move || records.demanded()).await {
            Ok(Ok(names)) => {
                let now: HashSet<_> = names.into_iter().filter(|name| self.names.has(name)).collect();
                let before = self.kept.replace(now);
                let kept = self.kept.borrow();
                for gone in before.iter().filter(|name| !kept.contains(*name)) {
                    self.looks.borrow_mut().remove(gone);
                }
            }
            Ok(Err(error)) => {
                self.warn(Warning::Store, || tracing::warn!(%error, "cannot list on-demand names"));
            }
            // The closure panicked; the panic is in the log.
            Err(_) => {}
        }
    }

    /// Removes names whose certificates expired long ago or were never obtained, [`SWEEP_SIZE`] per call. Includes
    /// names of removed hosts.
    pub(super) async fn sweep(&self) {
        if self.sweep.borrow().is_empty() {
            let records = self.records.clone();
            let all = move || -> Result<Vec<String>, AcmeError> {
                Ok([records.demanded()?, records.tried()?].concat())
            };
            let names = spawn_blocking(all).await.ok().and_then(Result::ok).unwrap_or_default();
            self.sweep.replace(names.into());
        }
        for _ in 0..SWEEP_SIZE {
            let Some(name) = self.sweep.borrow_mut().pop_front() else { return };
            if self.names.peek(&name).is_some() || !self.is_long_over(&name).await {
                self.over.borrow_mut().remove(&name);
                continue;
            }
            let since = *self.over.borrow_mut().entry(name.clone()).or_insert_with(Instant::now);
            if since.elapsed() < UNUSED_FOR {
                continue;
            }
            self.over.borrow_mut().remove(&name);
            let (records, own) = (self.records.clone(), name.clone());
            let forgotten = spawn_blocking(move || forget(&records, &own, SystemTime::now())).await;
            if let Ok(Ok(true)) = forgotten {
                self.kept.borrow_mut().remove(&name);
                tracing::info!(
                    name,
                    "on-demand name removed: its certificate expired long ago or was never obtained"
                );
            }
        }
    }

    async fn is_long_over(&self, name: &str) -> bool {
        let (records, own) = (self.records.clone(), name.to_owned());
        let is_over = spawn_blocking(move || is_over(&records, &own, SystemTime::now())).await;
        matches!(is_over, Ok(Ok(true)))
    }
}
