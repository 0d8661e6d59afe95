//! Store of a fleet: Redis, with values sealed by a key that only the fleet has.
//!
//! Each [`Name`] is a Redis key. Names below a common parent are also members of a set, so that they can be listed
//! without `SCAN`. Locks are keys with an expiry of [`LEASE`], so that the lock of a gateway that died becomes free.
//! Each gateway has a [local copy](LocalCopy) of the values that a restart without Redis needs.

mod copy;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use brisk_certs::store::{Lock, Name};
use brisk_certs::{Store, StoreError};
use brisk_session::{BlockingRedis, FleetSecret, Purpose, RedisSettings};
use redis::{Cmd, Pipeline, RedisResult, Value, cmd, pipe};
use zeroize::Zeroizing;

use self::copy::{LocalCopy, is_copied};
use crate::records::{CERTIFICATES, ON_DEMAND};

/// Expiry of a [`Lock`].
const LEASE: Duration = Duration::from_mins(2);

/// Age after which the holder extends a [`Lock`]: a quarter of [`LEASE`], so that several extensions may fail.
const RENEWAL: Duration = Duration::from_secs(30);

/// Age at which a [`Lock`] that could not be extended is given up: the rest of [`LEASE`] is for the work until the next call.
const GIVEN_UP: Duration = Duration::from_mins(1);

/// Expiry of the mark of a removed value, in seconds; longer than a gateway with a copy of the value is stopped.
const REMOVED: u64 = 400 * 24 * 3600;

/// Time after a failed connection in which operations fail at once, so that a start without Redis waits for one
/// timeout, and not for one per host.
const AWAY: Duration = Duration::from_secs(2);

/// Scripts that release or extend a [`Lock`] only if the key still has the mark of the holder.
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const EXTEND: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";

/// A [`Store`] in the Redis of a fleet.
pub struct FleetStore {
    redis: Arc<BlockingRedis>,
    key: LessSafeKey,
    prefix: String,
    copy: Option<LocalCopy>,
    /// Copy of a gateway on this machine, which a removal concerns too. Nothing is read from there.
    copy_of_gateway: Option<LocalCopy>,
    /// The last failed connection, and its error.
    away: Mutex<Option<(Instant, String)>>,
}

/// Content of a key in Redis.
enum SharedValue {
    /// A value, sealed and open.
    Found(Vec<u8>, Zeroizing<Vec<u8>>),
    /// A gateway has removed the value.
    Removed,
    /// The value cannot be decrypted. Counts as missing: a new certificate is obtained, and no gateway waits for an
    /// operator to remove the value.
    Undecryptable,
    /// The value was never written, or Redis has lost it.
    Missing,
}

impl FleetStore {
    /// Creates the `Store` of the fleet with this secret. Connects at the first operation.
    pub fn new(settings: RedisSettings, secret: &FleetSecret) -> Self {
        // The braces are a hash tag: a Redis cluster keeps all keys with it on one node, which transactions and scripts
        // require. The identifier of the secret separates the stores of two secrets, so that a rotation neither reads
        // nor disturbs the old values.
        let prefix = format!("{{{}certificates}}{}/", settings.prefix, secret.id());
        let derived = secret.derive(Purpose::CertificateStore);
        let key = UnboundKey::new(&AES_256_GCM, &*derived).expect("the key has 32 bytes");
        let (redis, key) = (Arc::new(BlockingRedis::new(settings)), LessSafeKey::new(key));
        Self { redis, key, prefix, copy: None, copy_of_gateway: None, away: Mutex::default() }
    }

    /// Keeps a sealed copy of certificates, accounts and on-demand names in `folder`. They are read from there while
    /// Redis is unavailable, and written back to a Redis that has lost them.
    #[must_use]
    pub fn with_copy(mut self, folder: PathBuf) -> Self {
        self.copy = Some(LocalCopy::new(folder));
        self
    }

    /// Removes values from the copy of a gateway in `folder` too, so that the gateway does not serve a removed certificate
    /// if it starts while Redis is unavailable.
    #[must_use]
    pub fn removing_copies_in(mut self, folder: PathBuf) -> Self {
        self.copy_of_gateway = Some(LocalCopy::new(folder));
        self
    }

    /// The local copy, if it has values with this name.
    fn copy_of(&self, name: &Name) -> Option<&LocalCopy> {
        self.copy.as_ref().filter(|_| is_copied(name))
    }

    fn value_key(&self, name: &Name) -> String {
        format!("{}value/{name}", self.prefix)
    }

    fn list_key(&self, parent: &str) -> String {
        format!("{}list/{parent}", self.prefix)
    }

    fn error(&self, attempt: &'static str, name: &Name, error: impl fmt::Display) -> StoreError {
        StoreError::new(attempt, format!("{name} in {}", self.place()), error.to_string())
    }

    fn ask(&self, attempt: &'static str, name: &Name, command: &Cmd) -> Result<Value, StoreError> {
        self.unless_away(attempt, name, || self.redis.execute(command))
    }

    fn ask_all(&self, attempt: &'static str, name: &Name, all: &Pipeline) -> Result<(), StoreError> {
        self.unless_away(attempt, name, || self.redis.execute_all(all))
    }

    /// Calls `act`, unless a connection has failed within the last [`AWAY`].
    fn unless_away<T>(
        &self,
        attempt: &'static str,
        name: &Name,
        act: impl FnOnce() -> RedisResult<T>,
    ) -> Result<T, StoreError> {
        let away = || self.away.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, error)) = away().as_ref().filter(|(since, _)| since.elapsed() < AWAY) {
            return Err(self.error(attempt, name, error));
        }
        act().map_err(|error| {
            // An error in the response of a reachable server costs no timeout, so the next operation need
            // not be skipped.
            if error.is_io_error() {
                *away() = Some((Instant::now(), error.to_string()));
            }
            self.error(attempt, name, error)
        })
    }

    fn look_up(&self, name: &Name) -> Result<SharedValue, StoreError> {
        let sealed = match self.ask("read", name, cmd("GET").arg(self.value_key(name)))? {
            Value::Nil => return Ok(SharedValue::Missing),
            Value::BulkString(sealed) => sealed,
            other => return Err(self.error("read", name, format!("unexpected response: {other:?}"))),
        };
        Ok(match self.open(name, &sealed) {
            Some(value) if value.is_empty() => SharedValue::Removed,
            Some(value) => SharedValue::Found(sealed, value),
            None => {
                tracing::warn!(%name, place = self.place(), "cannot decrypt a value; treating it as missing");
                SharedValue::Undecryptable
            }
        })
    }

    /// Writes the copy of a value that Redis has lost back, unless another gateway has written one meanwhile.
    fn put_back(&self, name: &Name, copy: &LocalCopy) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
        let Some(sealed) = copy.read(name).filter(|sealed| self.open(name, sealed).is_some()) else {
            return Ok(None);
        };
        let mut all = pipe();
        all.atomic().cmd("SET").arg(self.value_key(name)).arg(&*sealed).arg("NX").ignore();
        self.add_to_lists(name, &mut all);
        self.ask_all("write", name, &all)?;
        tracing::warn!(%name, place = self.place(), "the store has lost a value; it is written back from the local copy");
        match self.look_up(name)? {
            SharedValue::Found(sealed, value) => {
                copy.keep(name, &sealed);
                Ok(Some(value))
            }
            _ => Ok(None),
        }
    }

    fn add_to_lists(&self, name: &Name, all: &mut Pipeline) {
        for (parent, below) in parents(name) {
            all.cmd("SADD").arg(self.list_key(parent)).arg(below).ignore();
        }
    }

    fn list_shared(&self, parent: &Name) -> Result<Vec<Name>, StoreError> {
        let answer = self.ask("list", parent, cmd("SMEMBERS").arg(self.list_key(parent.as_str())))?;
        let members: Vec<String> =
            redis::from_redis_value(answer).map_err(|error| self.error("list", parent, error))?;
        Ok(members.iter().filter_map(|written| parent.below(written)).collect())
    }

    /// Completes `listed`, the on-demand names in Redis, with those that Redis has lost.
    fn add_lost(&self, listed: &mut Vec<Name>, parent: &Name, copy: &LocalCopy) -> Result<(), StoreError> {
        let known: HashSet<_> = listed.iter().cloned().collect();
        for name in copy.list(parent).into_iter().filter(|name| !known.contains(name)) {
            if self.read(&name)?.is_some() {
                listed.push(name);
                continue;
            }
            // The name was removed: its certificates are read, so that their copies are removed too.
            for certificate in copy.list(&Name::of([CERTIFICATES, &name.last()])) {
                self.read(&certificate)?;
            }
        }
        Ok(())
    }

    /// Seals a value: `nonce | ciphertext | tag` (AES-256-GCM). The name is authenticated, so that a value cannot be
    /// moved to another name.
    fn seal(&self, name: &Name, value: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        // A random nonce suffices: NIST SP 800-38D section 8.3 permits 2^32 of them for one key, and the
        // fleet writes far fewer values.
        rand::fill(&mut nonce).expect("the system's randomness");
        let mut sealed = Zeroizing::new(value.to_vec());
        let aad = Aad::from(name.as_str().as_bytes());
        let nonce_value = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(nonce_value, aad, &mut *sealed)
            .expect("values are shorter than 64 GiB");
        [&nonce[..], &sealed].concat()
    }

    fn open(&self, name: &Name, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut value = Zeroizing::new(rest.to_vec());
        let aad = Aad::from(name.as_str().as_bytes());
        let length =
            self.key.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut value).ok()?.len();
        value.truncate(length);
        Some(value)
    }
}

/// The parents of `name`, each with its direct child on the path to `name`.
fn parents(name: &Name) -> impl Iterator<Item = (&str, &str)> {
    let text = name.as_str();
    text.match_indices('/').map(move |(at, _)| {
        let below = &text[at + 1..];
        (&text[..at], below.split('/').next().unwrap_or(below))
    })
}

impl Store for FleetStore {
    fn read(&self, name: &Name) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
        let copy = self.copy_of(name);
        match (self.look_up(name), copy) {
            (Ok(SharedValue::Found(sealed, value)), copy) => {
                copy.inspect(|copy| copy.keep(name, &sealed));
                Ok(Some(value))
            }
            (Ok(SharedValue::Removed), copy) => {
                copy.inspect(|copy| copy.remove(name));
                Ok(None)
            }
            (Ok(SharedValue::Missing), Some(copy)) => self.put_back(name, copy),
            (Ok(SharedValue::Missing | SharedValue::Undecryptable), _) => Ok(None),
            (Err(error), copy) => {
                let copied = copy.and_then(|copy| self.open(name, &copy.read(name)?));
                copied.map(Some).ok_or(error)
            }
        }
    }

    fn write(&self, name: &Name, value: &[u8]) -> Result<(), StoreError> {
        let sealed = self.seal(name, value);
        let mut all = pipe();
        all.atomic().cmd("SET").arg(self.value_key(name)).arg(&sealed).ignore();
        self.add_to_lists(name, &mut all);
        self.ask_all("write", name, &all)?;
        // Copied last: a copy of a value that Redis never had would be written back as a lost one.
        self.copy_of(name).inspect(|copy| copy.keep(name, &sealed));
        Ok(())
    }

    fn remove(&self, name: &Name) -> Result<(), StoreError> {
        let mut all = pipe();
        all.atomic();
        if is_copied(name) {
            // An empty value is the mark of a removed one. `XX`: a value that never existed leaves none.
            let mark = self.seal(name, b"");
            all.cmd("SET").arg(self.value_key(name)).arg(mark).arg("XX").arg("EX").arg(REMOVED).ignore();
        } else {
            all.cmd("DEL").arg(self.value_key(name)).ignore();
        }
        // Only the direct parent's list is changed: lists further up may still have other children below the same
        // member.
        if let Some((parent, below)) = parents(name).last() {
            all.cmd("SREM").arg(self.list_key(parent)).arg(below).ignore();
        }
        self.ask_all("remove", name, &all)?;
        let copies = self.copy.iter().chain(&self.copy_of_gateway).filter(|_| is_copied(name));
        copies.for_each(|copy| copy.remove(name));
        Ok(())
    }

    fn list(&self, parent: &Name) -> Result<Vec<Name>, StoreError> {
        let Some(copy) = self.copy_of(parent) else { return self.list_shared(parent) };
        match self.list_shared(parent) {
            Ok(mut listed) => {
                if parent.as_str() == ON_DEMAND {
                    self.add_lost(&mut listed, parent, copy)?;
                }
                Ok(listed)
            }
            Err(error) => Some(copy.list(parent)).filter(|copied| !copied.is_empty()).ok_or(error),
        }
    }

    fn try_lock(&self, name: &Name) -> Result<Option<Box<dyn Lock>>, StoreError> {
        let key = format!("{}lock/{name}", self.prefix);
        let mut mark = [0; 16];
        rand::fill(&mut mark).expect("the system's randomness");
        let mut take = cmd("SET");
        take.arg(&key).arg(&mark).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
        // Before the request, because the lease may begin as early as that.
        let extended = (Instant::now(), SystemTime::now());
        match self.ask("lock", name, &take)? {
            Value::Nil => Ok(None),
            _ => Ok(Some(Box::new(RedisLock { redis: Arc::clone(&self.redis), key, mark, extended }))),
        }
    }

    fn place(&self) -> String {
        let servers: Vec<_> = self.redis.settings().servers.iter().map(ToString::to_string).collect();
        format!("Redis at {}", servers.join(", "))
    }
}

impl fmt::Debug for FleetStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetStore").field("redis", &self.redis).finish_non_exhaustive()
    }
}

/// A [`Lock`] in Redis, identified by a random mark that only the holder knows.
#[derive(Debug)]
struct RedisLock {
    redis: Arc<BlockingRedis>,
    key: String,
    mark: [u8; 16],
    /// Time of the last extension, by both clocks: the monotonic one stops while a machine sleeps, the system clock may
    /// be set back.
    extended: (Instant, SystemTime),
}

impl RedisLock {
    /// Returns whether the key had the mark.
    fn run(&self, script: &str) -> RedisResult<bool> {
        let mut eval = cmd("EVAL");
        eval.arg(script).arg(1).arg(&self.key).arg(&self.mark).arg(LEASE.as_millis() as u64);
        self.redis.execute(&eval).map(|value| value == Value::Int(1))
    }

    /// Time since the last extension.
    fn age(&self) -> Duration {
        // A system clock that was set back counts as expired.
        self.extended.0.elapsed().max(self.extended.1.elapsed().unwrap_or(LEASE))
    }
}

impl Lock for RedisLock {
    fn holds(&mut self) -> bool {
        if self.age() < RENEWAL {
            return true;
        }
        // Before the request, because the new lease may begin as early as that.
        let now = (Instant::now(), SystemTime::now());
        match self.run(EXTEND) {
            Ok(true) => {
                self.extended = now;
                true
            }
            Ok(false) => false,
            // Redis keeps the lease meanwhile, and the next call tries again. If responses of the authority are slow, that call may
            // be too late.
            Err(_) => self.age() < GIVEN_UP,
        }
    }
}

impl Drop for RedisLock {
    fn drop(&mut self) {
        // The result is ignored: a lock that cannot be released ends with its lease.
        let _ = self.run(RELEASE);
    }
}
