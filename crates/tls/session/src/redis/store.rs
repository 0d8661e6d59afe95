//! [`RedisStore`], as workers use it: a bounded queue, and replies until a deadline.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::{
    sync::{
        mpsc::{self, OwnedPermit, Sender, error::TrySendError},
        oneshot,
    },
    time,
};
use zeroize::Zeroizing;

use super::{
    client::{self, Job},
    command::{Command, FindMode, FoundSession},
    error::RedisError,
    rates::{FleetRate, TakeToken, Taken},
    settings::RedisSettings,
    shared::Shared,
    statistics::RedisStatistics,
};
use crate::{Claim, FleetSecret, Lookup, Miss, SessionOrMiss, SessionStore, rotation::seconds};

/// Maximum size of a session in bytes. Only sessions with unusually long client certificate chains are larger.
const LONGEST: usize = 64 * 1024;

/// Stores encrypted sessions in Redis or Valkey for all gateways with the same secret.
///
/// Nothing blocks: `put` queues the session and returns at once. Look-ups end at the deadline of the settings, or at
/// once while Redis does not work. They have to be awaited on a tokio runtime with a timer.
///
/// Clones share one thread, which ends with the last clone. An ID can be stored once: `put` changes nothing if the ID
/// is in Redis or was taken within the last minute.
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
}

impl RedisStore {
    /// Starts a thread that connects to Redis and reconnects as needed. Sessions are encrypted with a key derived from
    /// `secret`. Without a connection every look-up returns [`Miss::Down`].
    pub fn start(settings: RedisSettings, secret: &FleetSecret) -> Result<Self, RedisError> {
        settings.check()?;
        let (jobs, receiver) = mpsc::channel(settings.queue);
        let shared = Arc::new(Shared::new(settings, secret));
        client::start(Arc::clone(&shared), receiver).map_err(RedisError::Thread)?;
        Ok(Self { shared, jobs })
    }

    /// The [`RedisSettings`] of the store.
    pub fn settings(&self) -> &RedisSettings {
        &self.shared.settings
    }

    /// The [`RedisStatistics`] of the store.
    pub fn statistics(&self) -> RedisStatistics {
        let shared = &self.shared;
        let counted = shared.counters.statistics();
        let queued = self.jobs.max_capacity() - self.jobs.capacity();
        RedisStatistics {
            queue_length: counted.queue_length + queued as u64,
            breaker_open: !shared.breaker.is_closed(),
            breaker_opened: shared.breaker.times_opened(),
            troubles: shared.problems.lines(),
            ..counted
        }
    }

    /// Marks a session as taken in Redis, because its copy in this process was. Asynchronous and best effort.
    pub(crate) fn forget(&self, id: &[u8]) {
        // On an error the session is remembered as spent until Redis can be reached.
        let _ = self.send(Command::Forget { id: id.into() });
    }

    /// Like `get` and `take`, with the expiry of the session.
    pub(crate) fn find(&self, id: &[u8], how: FindMode) -> Lookup<Result<FoundSession, Miss>> {
        let shared = &self.shared;
        // The deadline includes the time in the queue, since it bounds the wait of the handshake.
        let (started, (answer, answered)) = (Instant::now(), oneshot::channel());
        let command = Command::Find { id: id.into(), how, started, answer };
        if let Err(miss) = self.send(command) {
            // A full queue means that Redis does not keep up, which counts like a missed deadline.
            if miss == Miss::Late {
                shared.breaker.failed();
            }
            let found = Err(miss);
            shared.counters.found(&found);
            return Lookup::Ready(found);
        }
        let shared = Arc::clone(shared);
        let deadline = time::Instant::from_std(started + shared.settings.deadline);
        Lookup::Pending(Box::pin(async move {
            let found = match time::timeout_at(deadline, answered).await {
                Ok(answer) => answer.unwrap_or(Err(Miss::Down)),
                Err(_) => Err(Miss::Late),
            };
            match &found {
                Err(Miss::Late) => shared.breaker.failed(),
                // The cause has been noted where it is known: at the end of the link, or at an error reply.
                Err(Miss::Down) => {}
                _ => shared.breaker.succeeded(),
            }
            shared.counters.found(&found);
            if how == FindMode::Take(Claim::Everywhere) && matches!(found, Err(Miss::Used)) {
                shared.counters.replays.count();
            }
            found
        }))
    }

    /// Takes a token of `key` at the limit called `limit`, which all gateways with the same secret share. The reply comes
    /// until the deadline of the settings, in one round trip.
    ///
    /// # Errors
    ///
    /// [`Miss::Late`] or [`Miss::Down`] without a decision. A token may have been taken nevertheless.
    pub fn take_token(&self, limit: &str, key: &[u8], rate: FleetRate) -> Lookup<Result<Taken, Miss>> {
        // `most_in_flight` bounds the commands that were sent; this bounds the queue before them.
        if self.is_half_full() {
            return Lookup::Ready(Err(Miss::Late));
        }
        let (answer, answered) = oneshot::channel();
        let name = self.shared.sealer.name(&[limit.as_bytes(), b"\0", key].concat());
        if let Err(miss) = self.send(Command::TakeToken(TakeToken { name, rate, answer })) {
            return Lookup::Ready(Err(miss));
        }
        let shared = Arc::clone(&self.shared);
        let deadline = time::Instant::now() + shared.settings.deadline;
        Lookup::Pending(Box::pin(async move {
            let answered = time::timeout_at(deadline, answered).await;
            let taken = answered.map_or(Err(Miss::Late), |answer| answer.unwrap_or(Err(Miss::Down)));
            match taken {
                Ok(_) => shared.breaker.succeeded(),
                Err(Miss::Late) => shared.breaker.failed(),
                Err(_) => {}
            }
            taken
        }))
    }

    /// Whether the circuit breaker is closed: Redis works, as far as is known.
    pub fn is_up(&self) -> bool {
        self.shared.breaker.is_closed()
    }

    /// Reserves an entry of the queue for a job, regardless of the state of Redis.
    pub(super) fn reserve(&self) -> Result<OwnedPermit<Job>, RedisError> {
        self.jobs.clone().try_reserve_owned().map_err(|_| RedisError::Busy)
    }

    /// Whether half of the queue is taken. The other half is for sessions, which a flood of requests must not displace.
    fn is_half_full(&self) -> bool {
        self.jobs.capacity() < self.jobs.max_capacity() / 2
    }

    /// Queues `command`, or fails it with the returned [`Miss`].
    fn send(&self, command: Command) -> Result<(), Miss> {
        let refused = if self.shared.breaker.is_closed() {
            match self.jobs.try_reserve() {
                Ok(place) => {
                    place.send(Job::Command(command));
                    return Ok(());
                }
                Err(TrySendError::Full(())) => (command, Miss::Late),
                Err(TrySendError::Closed(())) => (command, Miss::Down),
            }
        } else {
            (command, Miss::Down)
        };
        let (command, miss) = refused;
        // Also for commands that were never queued: a session that was to be taken is remembered as used.
        command.give_up(miss, &self.shared);
        Err(miss)
    }
}

impl SessionStore for RedisStore {
    /// Queues the session for writing. Returns false if it is too long, Redis does not work, or the queue is full.
    fn put(&self, id: &[u8], session: Vec<u8>, lifetime: Duration) -> Lookup<bool> {
        let session = Zeroizing::new(session);
        if session.len() > LONGEST {
            return Lookup::Ready(false);
        }
        let expires = seconds(SystemTime::now()).saturating_add(lifetime.as_secs());
        Lookup::Ready(self.send(Command::Put { id: id.into(), session, expires }).is_ok())
    }

    fn get(&self, id: &[u8]) -> Lookup<SessionOrMiss> {
        only_session(self.find(id, FindMode::Get))
    }

    fn take(&self, id: &[u8], claim: Claim) -> Lookup<SessionOrMiss> {
        only_session(self.find(id, FindMode::Take(claim)))
    }
}

fn only_session(found: Lookup<Result<FoundSession, Miss>>) -> Lookup<SessionOrMiss> {
    match found {
        Lookup::Ready(found) => Lookup::Ready(found.map(FoundSession::into_session)),
        Lookup::Pending(found) => {
            Lookup::Pending(Box::pin(async move { found.await.map(FoundSession::into_session) }))
        }
    }
}

impl fmt::Debug for RedisStore {
    /// Prints settings and counters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("settings", self.settings())
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
