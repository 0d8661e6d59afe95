//! Looks after what is in memory for a host, and what is in the store for names on demand.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_certs::{Certificate, Names};
use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::Instant;

use super::{AtEnd, Intake, Warning};
use crate::AcmeError;
use crate::attempt::rfc3339;
use crate::demand::ask::Answer;
use crate::demand::job::{Outcome, Task};
use crate::demand::load::{Loaded, forget, is_over};
use crate::renewal::random_below;

/// How often a certificate that is used is looked at, and how long after its last use it is.
const LOOK: Duration = Duration::from_hours(1);
const USED: Duration = Duration::from_hours(48);

/// Certificates that are to be looked at, that are looked at, and that are renewed at a time.
const LOOKS: usize = 50;
pub(super) const LOOKING: usize = 4;
pub(super) const RENEWING: usize = 4;

/// Names that are looked at in a minute, whether they ended long ago.
const SWEPT: usize = 100;

/// How long a name is seen to be over before it is forgotten: a clock that is wrong at the start is set right meanwhile.
const SEEN_OVER: Duration = Duration::from_hours(1);

impl Intake {
    /// Drops what no client has asked for lately, and looks at what is in use, the longest due first.
    pub(super) fn look_over(self: &Rc<Self>) {
        let now = Instant::now();
        let mut due = Vec::new();
        for (name, idle) in self.names.in_memory() {
            if idle > USED {
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
        for (_, name) in due.into_iter().take(LOOKS.saturating_sub(self.waiting.get())) {
            self.under_way.borrow_mut().insert(name.clone());
            self.waiting.set(self.waiting.get() + 1);
            let own = Rc::clone(self);
            spawn_local(async move {
                let _end = AtEnd(|| {
                    own.under_way.borrow_mut().remove(&name);
                });
                own.look_at(&name).await;
            });
        }
    }

    /// Shows what others have obtained, and renews what is due, if the name is still served.
    async fn look_at(self: &Rc<Self>, name: &str) {
        let is_due = {
            let _end = AtEnd(|| self.waiting.set(self.waiting.get() - 1));
            let _place = self.looking.acquire().await.expect("it is never closed");
            let spread = Duration::from_secs(random_below(LOOK.as_secs() / 10));
            self.looks.borrow_mut().insert(name.to_owned(), Instant::now() + LOOK + spread);
            self.compare_one(name).await && self.is_due(name).await
        };
        if is_due {
            // Others are looked at meanwhile.
            let _place = self.renewing.acquire().await.expect("it is never closed");
            let _ = self.job(name, Task::Obtain).await;
            self.compare_one(name).await;
        }
    }

    /// Whether a certificate is to be renewed now, or is missing and may be ordered.
    async fn is_due(&self, name: &str) -> bool {
        let outcome = self.job(name, Task::Look).await;
        let (Outcome::Due(at) | Outcome::Missing(at)) = outcome else { return false };
        if at > SystemTime::now() {
            return false;
        }
        match self.ask(name, None).await {
            Answer::Yes => {}
            Answer::No => {
                tracing::info!(name, "its certificate is not renewed: the name is refused now");
                return false;
            }
            Answer::Unknown(reason) => {
                self.warn(Warning::Renewal, || {
                    tracing::warn!(name, reason, "its renewal cannot be decided on");
                });
                return false;
            }
        }
        // A renewal is none of the orders that are counted; a kind of key that is new to the configuration is.
        matches!(outcome, Outcome::Due(_)) || self.orders.borrow_mut().take(Instant::now()).is_ok()
    }

    /// Shows what the store has now in the place of what is in memory. Whether there is anything to show.
    async fn compare_one(self: &Rc<Self>, name: &str) -> bool {
        // What cannot be read now has not gone.
        let Some(stored) = self.stored(name).await else { return false };
        let Some(Loaded { certificates, keys, ends }) = stored else {
            // Nothing valid any more: the next handshake has it asked about.
            self.looks.borrow_mut().remove(name);
            self.names.drop_shown(name);
            return false;
        };
        self.keep(name);
        let Some(shown) = self.names.peek(name) else { return false };
        let is_shown = |own: &Arc<Certificate>| shown.iter().any(|one| own.chain == one.certificate.chain);
        if shown.len() != certificates.len() || !certificates.iter().all(is_shown) {
            self.names.replace(name, certificates, keys);
            tracing::info!(name, ends = rfc3339(ends), "new handshakes are shown a renewed certificate");
        }
        true
    }

    /// Learns which names have certificates, of this gateway or another. What has gone, as by a revocation, is looked at with the
    /// next tick.
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
                self.warn(Warning::Store, || tracing::warn!(%error, "names on demand are not known"));
            }
            Err(_) => {}
        }
    }

    /// Forgets names whose certificates ended long ago, or that never had one, a few at a time. Those of hosts that are gone too.
    pub(super) async fn sweep(&self) {
        if self.sweep.borrow().is_empty() {
            let records = self.records.clone();
            let all = move || -> Result<Vec<String>, AcmeError> {
                Ok([records.demanded()?, records.tried()?].concat())
            };
            let names = spawn_blocking(all).await.ok().and_then(Result::ok).unwrap_or_default();
            self.sweep.replace(names.into());
        }
        for _ in 0..SWEPT {
            let Some(name) = self.sweep.borrow_mut().pop_front() else { return };
            if self.names.peek(&name).is_some() || !self.is_long_over(&name).await {
                self.over.borrow_mut().remove(&name);
                continue;
            }
            let since = *self.over.borrow_mut().entry(name.clone()).or_insert_with(Instant::now);
            if since.elapsed() < SEEN_OVER {
                continue;
            }
            self.over.borrow_mut().remove(&name);
            let (records, own) = (self.records.clone(), name.clone());
            let forgotten = spawn_blocking(move || forget(&records, &own, SystemTime::now())).await;
            if let Ok(Ok(true)) = forgotten {
                self.kept.borrow_mut().remove(&name);
                tracing::info!(
                    name,
                    "its certificate ended long ago, or was never obtained: the name is forgotten"
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
