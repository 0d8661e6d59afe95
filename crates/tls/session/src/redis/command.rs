//! Each [`Command`] of a worker, and the interpretation of its reply. No command is executed twice.

use std::{
    mem,
    time::{Instant, SystemTime},
};

use redis::{Cmd, Pipeline, ServerErrorKind, Value};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::{
    link::{Link, is_elsewhere},
    problem::{Area, Problem},
    rates::TakeToken,
    router::Router,
    sealing::Stored,
    shared::Shared,
    used_sessions::tombstone,
};
use crate::{
    Claim, Miss,
    rotation::{Seconds, seconds},
};

/// A command of a worker.
pub(super) enum Command {
    /// Stores a session.
    Put { id: Box<[u8]>, session: Zeroizing<Vec<u8>>, expires: Seconds },
    /// Marks a session as taken, because its copy in memory was.
    Forget { id: Box<[u8]> },
    /// Takes a token of a rate.
    TakeToken(TakeToken),
    /// Looks up or takes a session.
    Find {
        id: Box<[u8]>,
        how: FindMode,
        started: Instant,
        answer: oneshot::Sender<Result<FoundSession, Miss>>,
    },
}

/// Kind of look-up in [`Command::Find`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FindMode {
    Get,
    Take(Claim),
}

/// A session from a look-up. Wiped when dropped.
pub(crate) struct FoundSession {
    pub(crate) session: Zeroizing<Vec<u8>>,
    /// Time of expiry.
    pub(crate) expires: Seconds,
}

impl FoundSession {
    /// The session; the caller is responsible for wiping it.
    pub(crate) fn into_session(mut self) -> Vec<u8> {
        mem::take(&mut *self.session)
    }
}

impl Command {
    /// The key in Redis, which also determines the server in a cluster.
    pub(super) fn key(&self, shared: &Shared) -> Vec<u8> {
        match self {
            Self::Put { id, .. } | Self::Forget { id } | Self::Find { id, .. } => {
                shared.key(&shared.sealer.name(id))
            }
            Self::TakeToken(TakeToken { name, .. }) => shared.key_of_rate(name),
        }
    }

    /// Number of commands in flight beyond which this one is not sent: rates leave half of the `queue` to sessions.
    pub(super) fn most_in_flight(&self, queue: usize) -> usize {
        match self {
            Self::TakeToken(_) => queue.div_ceil(2),
            Self::Put { .. } | Self::Forget { .. } | Self::Find { .. } => queue,
        }
    }

    /// Fails the command with `miss` and wakes the caller that waits for it.
    pub(super) fn give_up(self, miss: Miss, shared: &Shared) {
        // After this miss, the client sends the request of its early data again: the session counts as
        // used.
        match &self {
            Self::Forget { id } | Self::Find { id, how: FindMode::Take(Claim::Everywhere), .. } => {
                shared.spend(id);
            }
            Self::Put { .. } | Self::Find { .. } | Self::TakeToken(_) => {}
        }
        match self {
            Self::TakeToken(question) => question.give_up(miss),
            // An error means that the caller no longer waits.
            Self::Find { answer, .. } => drop(answer.send(Err(miss))),
            Self::Put { .. } | Self::Forget { .. } if miss == Miss::Late => {
                shared.counters.dropped_full.count();
            }
            Self::Put { .. } | Self::Forget { .. } => shared.counters.dropped_down.count(),
        }
    }

    /// Executes the command over `link`, or where `router` finds its key meanwhile; `key` is its key.
    pub(super) async fn perform(self, key: &[u8], link: &Link, router: &Router, shared: &Shared) {
        match self {
            Self::TakeToken(question) => question.perform(key, link, router, shared).await,
            Self::Put { id, session, expires } => {
                let now = seconds(SystemTime::now());
                // The command may have waited in the queue beyond the session's lifetime, and `EX 0` is an error in
                // Redis.
                let Some(left) = expires.checked_sub(now).filter(|&left| left > 0) else {
                    return;
                };
                let value = shared.sealer.seal(&id, (now, expires), link.epoch(), &session);
                // Wiped before the wait for the reply.
                drop(session);
                write(&put(key, &value, left), link, router, shared).await;
            }
            Self::Forget { id } => {
                if !write(&tombstone(key), link, router, shared).await {
                    shared.spend(&id);
                }
            }
            Self::Find { id, how, started, answer } => {
                // A caller that timed out may receive the same early data again, so the session is marked as used.
                if answer.is_closed() && how != FindMode::Take(Claim::Everywhere) {
                    return;
                }
                let found = find(&id, key, how, (link, router), shared).await;
                match found {
                    Err(Miss::Down) if how == FindMode::Take(Claim::Everywhere) => shared.spend(&id),
                    Err(Miss::Down) => {}
                    _ => shared.counters.answered(started.elapsed()),
                }
                // An error means that the caller has timed out, so the session is lost.
                drop(answer.send(found));
            }
        }
    }
}

/// `SET key value NX EX`: an existing value is a tombstone, which a delayed write must not replace.
fn put(key: &[u8], value: &[u8], lifetime: Seconds) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(key).arg(value).arg("NX").arg("EX").arg(lifetime);
    command
}

fn get(key: &[u8]) -> Cmd {
    let mut command = redis::cmd("GET");
    command.arg(key);
    command
}

/// Returns the value and leaves a tombstone in one command, so of several takes one gets the value. `XX` stores no
/// tombstones for unknown IDs, which attackers could make up.
fn take(key: &[u8]) -> Cmd {
    let mut command = tombstone(key);
    command.arg("XX").arg("GET");
    command
}

/// Returns whether the command was executed.
async fn write(command: &Cmd, link: &Link, router: &Router, shared: &Shared) -> bool {
    let answer = router.ask(link, command).await;
    if let Ok(Value::ServerError(error)) = &answer {
        refused("SET", error, link, shared);
    }
    let done = matches!(answer, Ok(Value::Okay | Value::Nil));
    if done {
        shared.counters.written.count();
        shared.problems.end(link.address(), Area::Sessions);
    } else {
        shared.counters.dropped_down.count();
    }
    done
}

async fn find(
    id: &[u8],
    key: &[u8],
    how: FindMode,
    (link, router): (&Link, &Router),
    shared: &Shared,
) -> Result<FoundSession, Miss> {
    let stored = match how {
        FindMode::Get => understand(id, router.ask(link, &get(key)).await, "GET", link, shared)?,
        FindMode::Take(Claim::Here) => {
            understand(id, router.ask(link, &take(key)).await, "SET", link, shared)?
        }
        FindMode::Take(Claim::Everywhere) => take_alone(id, key, link, shared).await?,
    };
    // Redis removes values by its own clock, which may be behind.
    if stored.expires <= seconds(SystemTime::now()) {
        return Err(Miss::Unknown);
    }
    Ok(FoundSession { session: stored.session, expires: stored.expires })
}

/// Takes a session exclusively: no other caller has or will get it. The documentation of [`redis`](super) contains the
/// proof.
async fn take_alone(id: &[u8], key: &[u8], link: &Link, shared: &Shared) -> Result<Stored, Miss> {
    let mut pipeline = Pipeline::new();
    pipeline.add_command(take(key));
    // Not by `Router::ask`: a session on another node has another epoch.
    let mut answers = link.ask_all(&link.with_epoch(pipeline)).await.map_err(|()| Miss::Down)?.into_iter();
    let answer = answers.next().ok_or(());
    if let Ok(Value::ServerError(error)) = &answer
        && is_elsewhere(error)
    {
        // The client sends its request again, so its early data must not be accepted once the slots are known.
        shared.spend(id);
    }
    let stored = understand(id, answer, "SET", link, shared)?;
    let epoch = link.epoch_in(answers);
    if !epoch.is_known() {
        return Err(Miss::Down);
    }
    if stored.epoch != epoch || shared.used_sessions.covers(stored.put) {
        shared.counters.outlived.count();
        return Err(Miss::Unknown);
    }
    Ok(stored)
}

/// Interprets the reply to `command` for the session `id`.
fn understand(
    id: &[u8],
    answer: Result<Value, ()>,
    command: &str,
    link: &Link,
    shared: &Shared,
) -> Result<Stored, Miss> {
    match answer {
        Ok(Value::BulkString(value)) if value.is_empty() => Err(Miss::Used),
        Ok(Value::BulkString(value)) => shared.sealer.open(id, value).ok_or(Miss::Forged),
        Ok(Value::Nil) => Err(Miss::Unknown),
        Ok(Value::ServerError(error)) => Err(refused(command, &error, link, shared)),
        Ok(_) => Err(Miss::Forged),
        Err(()) => Err(Miss::Down),
    }
}

/// Handles an error reply.
fn refused(command: &str, error: &redis::ServerError, link: &Link, shared: &Shared) -> Miss {
    match error.kind() {
        // Another program stored a value under this key.
        _ if error.code() == "WRONGTYPE" => return Miss::Forged,
        // A former primary: the node reconnects, and the router looks for the present primary.
        Some(ServerErrorKind::ReadOnly) => link.end(Problem::replica()),
        // The cached slots of the cluster are outdated.
        Some(ServerErrorKind::Moved) => {
            link.set_moved();
            return Miss::Unknown;
        }
        // `Router::ask` has reported the migration of the slot.
        _ if is_elsewhere(error) => return Miss::Unknown,
        _ => {
            shared.breaker.failed();
            shared.problems.begin(link.address(), Area::Sessions, Problem::refused(command, error));
        }
    }
    Miss::Down
}
