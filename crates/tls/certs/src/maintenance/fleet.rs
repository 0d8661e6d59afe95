//! Sharing of staples within a fleet: one gateway queries the responder and writes the staple into the shared
//! [`Store`]. Without a shared store, each gateway queries the responder.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::lock;
use super::schedule::{random, refresh};
use crate::ocsp::{CertId, Staple};
use crate::store::{Lock, Name, Store, StoreError};

/// Maximum wait for a gateway that holds the lock of a staple, and the interval at which the store is polled.
const OTHER: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(500);

/// How long a store is not used after an error.
const AWAY: Duration = Duration::from_secs(30);

/// Maximum number of threads blocked on the store at a time.
const MAX_CONCURRENT: usize = 4;

/// Access to the fleet's store; without a store, every [`claim`](Self::claim) is this gateway's own.
pub(super) struct Fleet {
    store: Option<Arc<dyn Store>>,
    access: Arc<StoreAccess>,
}

/// Permits for concurrent use of the store, and its state after errors.
struct StoreAccess {
    permits: Semaphore,
    away_until: Mutex<Option<Instant>>,
}

/// How to obtain a staple.
pub(super) enum StapleSource {
    /// From the store, where another gateway has put it.
    Shared(Staple),
    /// From the responder, queried by this gateway.
    Responder(ResponderTurn),
}

/// The right to query the responder, held until [`end`](Self::end).
pub(super) struct ResponderTurn {
    name: Name,
    /// `None` if there is no store or it is unavailable.
    store: Option<(Arc<dyn Store>, Arc<StoreAccess>)>,
    /// `None` if there is no store, or if the holder of the lock took longer than [`OTHER`].
    lock: Option<Box<dyn Lock>>,
}

/// Result of reading the store once.
enum StoreLookup {
    Found(Staple),
    Locked(Box<dyn Lock>),
    /// Another gateway holds the lock.
    Other,
    /// The store failed within the last [`AWAY`].
    Away,
}

impl StoreAccess {
    fn is_open(&self) -> bool {
        lock(&self.away_until).is_none_or(|until| until < Instant::now())
    }

    fn close(&self) {
        *lock(&self.away_until) = Some(Instant::now() + AWAY);
    }
}

impl Fleet {
    pub(super) fn new(store: Option<Arc<dyn Store>>) -> Self {
        let access = StoreAccess { permits: Semaphore::new(MAX_CONCURRENT), away_until: Mutex::default() };
        Self { store, access: Arc::new(access) }
    }

    pub(super) fn store(&self) -> Option<&Arc<dyn Store>> {
        self.store.as_ref()
    }

    /// Returns the staple for `cert_id` from the store if its `thisUpdate` is later than `before`; otherwise the right
    /// to query the responder. Waits up to 15 s for another gateway that queries it.
    pub(super) async fn claim(
        &self,
        name: &Name,
        cert_id: &CertId,
        before: Option<SystemTime>,
    ) -> StapleSource {
        let begun = Instant::now();
        let own = |store: Option<&Arc<dyn Store>>, lock| {
            let store = store.map(|store| (Arc::clone(store), Arc::clone(&self.access)));
            StapleSource::Responder(ResponderTurn { name: name.clone(), store, lock })
        };
        while let Some(store) = &self.store {
            match self.look(store, name, cert_id, before).await {
                Ok(StoreLookup::Found(staple)) => return StapleSource::Shared(staple),
                Ok(StoreLookup::Locked(lock)) => return own(Some(store), Some(lock)),
                // The interval is random, so that waiting gateways do not poll at the same time.
                Ok(StoreLookup::Other) if begun.elapsed() < OTHER => {
                    sleep(LOOK.mul_f64(0.5 + random())).await;
                }
                // Without the lock two gateways may query the responder; the result of either is valid for the fleet.
                Ok(StoreLookup::Other) => return own(Some(store), None),
                Ok(StoreLookup::Away) => break,
                Err(error) => {
                    self.access.close();
                    tracing::warn!(%error, "staples are not shared with the fleet for now");
                }
            }
        }
        own(None, None)
    }

    /// Removes the staple of a revoked certificate in the background, so that other gateways do not present it.
    pub(super) fn remove(&self, name: Name) {
        if let Some(store) = self.store.clone().filter(|_| self.access.is_open()) {
            // The error is ignored: a staple that remains is not reused after half of its lifetime.
            drop(spawn_blocking(move || store.remove(&name)));
        }
    }

    async fn look(
        &self,
        store: &Arc<dyn Store>,
        name: &Name,
        cert_id: &CertId,
        before: Option<SystemTime>,
    ) -> Result<StoreLookup, StoreError> {
        let _permit = self.access.permits.acquire().await.expect("it is never closed");
        // Checked again: the previous holder of the permit may have closed the door.
        if !self.access.is_open() {
            return Ok(StoreLookup::Away);
        }
        let (store, name, cert_id) = (Arc::clone(store), name.clone(), cert_id.clone());
        let looked = spawn_blocking(move || look(&*store, &name, &cert_id, before)).await;
        looked.expect("it does not panic")
    }
}

fn look(
    store: &dyn Store,
    name: &Name,
    cert_id: &CertId,
    before: Option<SystemTime>,
) -> Result<StoreLookup, StoreError> {
    let found = || -> Result<_, StoreError> {
        let now = SystemTime::now();
        let kept = store.read(name)?.and_then(|kept| cert_id.verify(&kept, now).ok());
        Ok(kept.filter(|staple| is_worth(staple, before, now)))
    };
    if let Some(staple) = found()? {
        return Ok(StoreLookup::Found(staple));
    }
    let Some(lock) = store.try_lock(name)? else { return Ok(StoreLookup::Other) };
    // Read again: another gateway may have written between the first read and the lock.
    Ok(found()?.map_or(StoreLookup::Locked(lock), StoreLookup::Found))
}

/// Whether a stored staple is newer than `before`; without `before`, whether it is not due for renewal.
fn is_worth(staple: &Staple, before: Option<SystemTime>, now: SystemTime) -> bool {
    match before {
        // Its age is not compared: some responders sign long in advance, and any newer response is the newest
        // available.
        Some(before) => staple.this_update > before,
        // The latest time of a renewal: a gateway would renew an older staple at once.
        None => now < refresh(staple.this_update, staple.next_update, 1.0),
    }
}

impl ResponderTurn {
    /// Writes `response` to the store and releases the lock.
    pub(super) async fn end(mut self, response: Option<Vec<u8>>) {
        let Some((store, access)) = self.store.take() else { return };
        let _permit = access.permits.acquire().await.expect("it is never closed");
        let (name, lock, is_open) = (self.name.clone(), self.lock.take(), access.is_open());
        let write = move || {
            let written =
                response.filter(|_| is_open).map_or(Ok(()), |response| store.write(&name, &response));
            // Released after the write, so that the next holder finds the staple and queries no responder.
            drop(lock);
            written
        };
        // The panic hook has logged a panic of the closure.
        if let Ok(Err(error)) = spawn_blocking(write).await {
            access.close();
            tracing::warn!(%error, "a staple is not shared with the fleet");
        }
    }
}

impl Drop for ResponderTurn {
    /// Releasing the lock blocks on the store, so a blocking thread does it.
    fn drop(&mut self) {
        if let (Some(lock), Ok(handle)) = (self.lock.take(), Handle::try_current()) {
            drop(handle.spawn_blocking(move || drop(lock)));
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("store", &self.store).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;
    use crate::fuzz::{GOOD, ISSUER, LEAF};
    use crate::store::Folder;

    fn fleet(folder: &tempfile::TempDir) -> Fleet {
        Fleet::new(Some(Arc::new(Folder::new(folder.path()))))
    }

    #[test]
    fn one_gateway_asks_and_the_other_waits_for_its_answer() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (fleet(&folder), fleet(&folder));
        let cert_id = CertId::new(LEAF, ISSUER).unwrap();
        let name = Name::of(["staples", "a"]);
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let StapleSource::Responder(own) = one.claim(&name, &cert_id, None).await else {
                panic!("there is no staple")
            };
            assert!(own.lock.is_some());
            let waits = async {
                let StapleSource::Responder(next) = other.claim(&name, &cert_id, None).await else {
                    panic!("there is no staple")
                };
                next
            };
            let ends = async {
                sleep(LOOK).await;
                own.end(None).await;
            };
            // The first claim ended without a response, so the second gets the lock.
            let (next, ()) = tokio::join!(waits, ends);
            assert!(next.lock.is_some());
            next.end(Some(GOOD[0].to_vec())).await;
        });
        let store = Folder::new(folder.path());
        assert_eq!(store.read(&name).unwrap().unwrap().as_slice(), GOOD[0]);
    }

    #[test]
    fn staples_that_are_older_or_near_their_end_are_not_taken_over() {
        let (begin, hour) = (SystemTime::UNIX_EPOCH, Duration::from_hours(1));
        let staple = Staple { der: vec![1], this_update: begin, next_update: begin + 10 * hour };
        assert!(is_worth(&staple, None, begin + hour));
        assert!(!is_worth(&staple, None, begin + 7 * hour));
        assert!(!is_worth(&staple, Some(begin), begin + hour));
        let newer = Staple { this_update: begin + hour, ..staple };
        assert!(is_worth(&newer, Some(begin), begin + hour));
        assert!(is_worth(&newer, Some(begin), begin + 8 * hour), "it was made beforehand");
    }

    #[test]
    fn the_staple_of_a_revoked_certificate_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (store, name) = (Folder::new(folder.path()), Name::of(["staples", "a"]));
        store.write(&name, GOOD[0]).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { fleet(&folder).remove(name.clone()) });
        brisk_testkit::process::wait_until("the removal", || {
            store.read(&name).unwrap().is_none().then_some(())
        });
    }

    #[test]
    fn a_turn_that_ends_early_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let (cert_id, name) = (CertId::new(LEAF, ISSUER).unwrap(), Name::of(["staples", "a"]));
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            drop(fleet(&folder).claim(&name, &cert_id, None).await);
            let StapleSource::Responder(next) = fleet(&folder).claim(&name, &cert_id, None).await else {
                panic!("there is no staple")
            };
            assert!(next.lock.is_some());
        });
    }

    #[test]
    fn a_gateway_without_a_fleet_asks_for_itself() {
        let cert_id = CertId::new(LEAF, ISSUER).unwrap();
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let turn = Fleet::new(None).claim(&Name::of(["staples", "a"]), &cert_id, None).await;
            let StapleSource::Responder(own) = turn else { panic!("there is no one else") };
            own.end(Some(vec![1])).await;
        });
    }
}
