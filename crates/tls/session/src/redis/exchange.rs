//! Synchronizes ticket keys of a fleet through Redis: the first gateway creates a key, published before it seals.
//!
//! The keys are in one hash, `ticket-keys` after the prefix; a field is the second from which its key seals. `HSETNX`
//! decides which gateway was first, and every gateway installs the keys in Redis, even instead of its own. If Redis
//! loses them, gateways that still have them restore them before new ones are created for the same time. Keys are
//! published long enough before they seal that all gateways agree by then.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use redis::{Cmd, Value};
use tokio::{
    sync::{mpsc::OwnedPermit, oneshot},
    time,
};
use zeroize::Zeroizing;

use super::{
    client::Job,
    error::RedisError,
    link::{Link, is_elsewhere},
    problem::{Area, Problem},
    router::Router,
    sealing::{VERSION, opened, sealed},
    settings::RedisAddress,
    shared::Shared,
    store::RedisStore,
};
use crate::{FleetSecret, Purpose, RotationSettings, SharedKey, TicketKeyring};

/// Interval of reading the keys, and of checking [`TicketKeyring::take_forced`].
const POLL: Duration = Duration::from_secs(2);

/// Time by which a published key is on every ring, even if polls in between fail.
const SETTLE: Duration = Duration::from_secs(6);

/// Maximum number of fields that are read; a fleet has about thirty.
const MOST_FIELDS: usize = 1000;

/// Distributes the ticket keys of a fleet: fills a [`TicketKeyring`] with the source
/// [`KeySource::Shared`](crate::KeySource::Shared), and creates missing keys. It stops when it or the last clone of the
/// store is dropped; the keys stay on the ring.
///
/// While Redis does not work, the keys on the ring remain valid. They are published one interval ahead, so tickets are
/// sealed for at least one interval. After that no tickets are sent until Redis works again.
#[derive(Debug)]
pub struct TicketKeySync {
    _stop: oneshot::Sender<()>,
}

impl TicketKeySync {
    /// Prepares the exchange of keys that rotate according to `rotation` through the Redis of `store`, encrypted with a
    /// key derived from `secret`. The keyring does not change before [`PreparedKeySync::begin`].
    ///
    /// The first keys are on the ring when Redis is reachable. They seal at most 12 seconds later, when every gateway has
    /// them. With rotation intervals below 12 seconds there are times without a sealing key.
    pub fn prepare(
        store: &RedisStore,
        secret: &FleetSecret,
        rotation: RotationSettings,
        keyring: Arc<TicketKeyring>,
    ) -> Result<PreparedKeySync, RedisError> {
        let (stop, stopped) = oneshot::channel();
        let key = UnboundKey::new(&AES_256_GCM, &*secret.derive(Purpose::TicketKeySync)).expect("32 bytes");
        let exchange = Exchange {
            key: LessSafeKey::new(key),
            hash: [store.settings().prefix.as_bytes(), b"ticket-keys"].concat(),
            rotation,
            keyring,
            held: BTreeMap::new(),
            forced: false,
            redirection: None,
            stopped,
        };
        Ok(PreparedKeySync { queue: store.reserve()?, exchange: Box::new(exchange), stop })
    }
}

/// A synchronization of ticket keys that has not begun. It occupies one entry of the store's queue, so it should begin,
/// or be dropped, at once.
pub struct PreparedKeySync {
    queue: OwnedPermit<Job>,
    exchange: Box<Exchange>,
    stop: oneshot::Sender<()>,
}

impl PreparedKeySync {
    /// Begins to exchange keys, until the returned [`TicketKeySync`] is dropped.
    pub fn begin(self) -> TicketKeySync {
        self.queue.send(Job::Exchange(self.exchange));
        TicketKeySync { _stop: self.stop }
    }
}

/// The exchange on the thread that communicates with Redis.
pub(super) struct Exchange {
    key: LessSafeKey,
    hash: Vec<u8>,
    rotation: RotationSettings,
    keyring: Arc<TicketKeyring>,
    /// The keys in Redis at the last [`round`](Self::round), by slot.
    held: BTreeMap<u64, SharedKey>,
    /// Whether a rotation was forced and no [`round`](Self::round) has succeeded since.
    forced: bool,
    /// The node that redirected the last [`round`](Self::round) to another one, and its reply.
    redirection: Option<(RedisAddress, Problem)>,
    stopped: oneshot::Receiver<()>,
}

/// Why a round failed.
enum Failed {
    /// The link has ended, the reply was unexpected, or Redis refused a command. Recorded in
    /// [`Problems`](super::problem::Problems), except an unexpected reply.
    Here,
    /// Another node of the cluster has the keys, or a migration of their slot goes on without [`Router::ask`]. Not recorded.
    Elsewhere(Problem),
}

impl Exchange {
    /// Executes a [`round`](Self::round) every [`POLL`] until the [`TicketKeySync`] is dropped.
    pub(super) async fn run(mut self: Box<Self>, router: &Router, shared: &Shared) {
        loop {
            // A failed round has no effect and is repeated.
            let _ = time::timeout(shared.settings.connect_timeout, self.round(router, shared)).await;
            tokio::select! {
                () = time::sleep(POLL) => {}
                _ = &mut self.stopped => return,
            }
        }
    }

    async fn round(&mut self, router: &Router, shared: &Shared) {
        // Before the exchange, which the timeout may cancel.
        let former = self.redirection.take();
        let Some(link) = router.node(&self.hash).and_then(|node| node.link()) else { return };
        let Err(Failed::Elsewhere(problem)) = self.exchange(&link, router, shared).await else { return };
        // The slots of the cluster are outdated.
        router.doubt();
        let redirection = (link.address().clone(), problem);
        // One redirection is usual during a migration. While a migration stays open, every round fails.
        if former.as_ref() == Some(&redirection) {
            shared.problems.begin(link.address(), Area::Exchange, redirection.1.clone());
        }
        self.redirection = Some(redirection);
    }

    async fn exchange(&mut self, link: &Link, router: &Router, shared: &Shared) -> Result<(), Failed> {
        let now = SystemTime::now();
        let mut published = self.read(link, router, shared).await?;
        let dead: Vec<u64> =
            published.iter().filter(|(_, key)| !key.is_live(now)).map(|(slot, _)| *slot).collect();
        if !dead.is_empty() {
            published.retain(|slot, _| !dead.contains(slot));
            // Each gateway deletes expired keys; a repeated deletion has no effect.
            self.write(redis::cmd("HDEL").arg(&self.hash).arg(dead), link, router, shared).await?;
        }
        self.forced |= self.keyring.take_forced();
        let additions = self.additions(&published, now);
        if !additions.is_empty() {
            for key in &additions {
                // The first of two gateways that publish a key for one slot wins. Both read afterwards, so both install
                // the winner's key.
                let mut command = redis::cmd("HSETNX");
                command.arg(&self.hash).arg(key.slot()).arg(self.seal(key));
                self.write(&command, link, router, shared).await?;
            }
            published = self.read(link, router, shared).await?;
            published.retain(|_, key| key.is_live(now));
        }
        // In every round, because a reload may have switched the keyring to shared keys since the last.
        let keys: Vec<SharedKey> = published.values().cloned().collect();
        self.keyring.install(&keys, now);
        (self.held, self.forced) = (published, false);
        // The keys may have been on another node before.
        shared.problems.end_area(link.address(), Area::Exchange);
        Ok(())
    }

    /// Keys to publish in addition to `published`: those that Redis has lost, then those that do not exist yet.
    fn additions(&self, published: &BTreeMap<u64, SharedKey>, now: SystemTime) -> Vec<SharedKey> {
        let held = self.held.values().filter(|key| key.is_live(now));
        let mut additions: Vec<SharedKey> =
            held.filter(|key| !published.contains_key(&key.slot())).cloned().collect();
        let all: Vec<SharedKey> = published.values().chain(&additions).cloned().collect();
        let mut slots = SharedKey::missing(&all, &self.rotation, SETTLE, now);
        if self.forced {
            slots.push(SharedKey::soon(SETTLE, now));
        }
        slots.sort_unstable();
        slots.dedup();
        additions.extend(slots.into_iter().map(|slot| SharedKey::generate(slot, &self.rotation)));
        additions
    }

    /// The keys in Redis by slot. Values that this fleet did not seal are skipped.
    async fn read(
        &self,
        link: &Link,
        router: &Router,
        shared: &Shared,
    ) -> Result<BTreeMap<u64, SharedKey>, Failed> {
        let mut command = redis::cmd("HGETALL");
        command.arg(&self.hash);
        let fields = match router.ask(link, &command).await {
            Ok(Value::Array(fields)) => fields,
            Ok(Value::ServerError(error)) => return Err(refused("HGETALL", &error, link, shared)),
            _ => return Err(Failed::Here),
        };
        let pairs = fields.chunks_exact(2).take(MOST_FIELDS);
        Ok(pairs.filter_map(|pair| self.open(&pair[0], &pair[1])).map(|key| (key.slot(), key)).collect())
    }

    async fn write(
        &self,
        command: &Cmd,
        link: &Link,
        router: &Router,
        shared: &Shared,
    ) -> Result<(), Failed> {
        match router.ask(link, command).await {
            Ok(Value::ServerError(error)) => Err(refused("HSETNX or HDEL", &error, link, shared)),
            Ok(_) => Ok(()),
            Err(()) => Err(Failed::Here),
        }
    }

    fn seal(&self, key: &SharedKey) -> Vec<u8> {
        sealed(&self.key, &context(key.slot()), &[&key.to_bytes()])
    }

    fn open(&self, field: &Value, value: &Value) -> Option<SharedKey> {
        let (Value::BulkString(field), Value::BulkString(value)) = (field, value) else { return None };
        let slot: u64 = std::str::from_utf8(field).ok()?.parse().ok()?;
        let mut value = Zeroizing::new(value.clone());
        let bytes = opened(&self.key, &context(slot), &mut value)?;
        SharedKey::from_bytes(bytes).filter(|key| key.slot() == slot)
    }
}

/// Associated data that binds a key to its slot.
fn context(slot: u64) -> Vec<u8> {
    [VERSION, &slot.to_be_bytes()].concat()
}

fn refused(command: &str, error: &redis::ServerError, link: &Link, shared: &Shared) -> Failed {
    let problem = Problem::refused(command, error);
    if is_elsewhere(error) {
        return Failed::Elsewhere(problem);
    }
    shared.problems.begin(link.address(), Area::Exchange, problem);
    Failed::Here
}
