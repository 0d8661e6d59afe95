//! Users with passwords: basic authentication (RFC 7617).
//!
//! Verifying a password takes tens of milliseconds on purpose, so it happens on [threads](PasswordThreads) of its own.
//! Verified credentials are remembered as a keyed hash for ten minutes.

mod apr1;
mod credentials;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hash;
mod pool;
mod users;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::{digest, hmac};
use tokio::sync::oneshot;

pub use self::credentials::Credentials;
pub use self::hash::HashError;
pub use self::pool::{Busy, PasswordThreads};
use self::users::Table;
pub use self::users::{LineError, LineFault};

/// Time for which verified credentials are remembered.
const REMEMBERED: Duration = Duration::from_mins(10);

/// Maximum number of remembered credentials.
const MOST_REMEMBERED: usize = 10_000;

/// Maximum number of requests that wait for the same verification; a further one is [`Busy`].
const MOST_WAITING: usize = 256;

/// The users of a file, and credentials that were verified. A changed file is read into new `Passwords`, which remember
/// nothing.
#[derive(Debug)]
pub struct Passwords {
    table: Table,
    /// Random, so that memory contains no hash that can be searched for.
    key: hmac::Key,
    /// Keyed hash of the file.
    content: Mark,
    /// Keyed hashes of verified credentials, until when they are valid. Read by workers, written by verifications.
    remembered: RwLock<HashMap<Mark, Instant>>,
    /// Requests that wait, by the keyed hash of their credentials: a page of many requests is verified once.
    waiting: Mutex<HashMap<Mark, Vec<oneshot::Sender<bool>>>>,
}

/// Keyed hash of credentials.
type Mark = [u8; digest::SHA256_OUTPUT_LEN];

impl Passwords {
    /// Reads a file in the format of `htpasswd`.
    ///
    /// # Errors
    ///
    /// A [`LineError`] for every line with a fault.
    pub fn read(text: &str) -> Result<Arc<Self>, Vec<LineError>> {
        let key =
            hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).expect("randomness of the system");
        Ok(Arc::new(Self {
            table: Table::read(text)?,
            content: mark(&key, text.as_bytes()),
            key,
            remembered: RwLock::default(),
            waiting: Mutex::default(),
        }))
    }

    /// Whether there is no user.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// The user with these `credentials`, if they were verified in the last ten minutes; `None` if [`Self::verify`] is needed.
    /// Never waits.
    pub fn remembered(&self, credentials: &Credentials) -> Option<Arc<str>> {
        self.remembers(&self.mark(credentials)).then(|| self.table.name(credentials.name()).cloned())?
    }

    /// Verifies `credentials` for the client at an address. `Ok(None)` if they are wrong, regardless of whether the user
    /// exists.
    ///
    /// # Errors
    ///
    /// [`Busy`] if too many verifications wait: 64, half of them of one client, or 256 requests for the same credentials.
    pub async fn verify(
        self: &Arc<Self>,
        credentials: Credentials,
        client: IpAddr,
        threads: &PasswordThreads,
    ) -> Result<Option<Arc<str>>, Busy> {
        let name = self.table.name(credentials.name()).cloned();
        let mark = self.mark(&credentials);
        let (done, is_right) = oneshot::channel();
        // The hash of an unknown user is verified too, so that the time discloses no names.
        if self.joins(mark, done)? {
            // If `run` refuses, the drop of `verification` also refuses the requests that have joined it.
            let verification = Verification { passwords: Arc::clone(self), mark, is_finished: false };
            threads.run(client, move || verification.run(&credentials))?;
        }
        // The sender is dropped if there was no place for the verification of another request, or if it panicked.
        let is_right = is_right.await.map_err(|_| Busy)?;
        Ok(name.filter(|_| is_right))
    }

    /// Adds a request to those that wait for a verification. Returns whether the verification is to be started.
    fn joins(&self, mark: Mark, done: oneshot::Sender<bool>) -> Result<bool, Busy> {
        let mut waiting = self.waiting();
        let requests = waiting.entry(mark).or_default();
        if requests.len() == MOST_WAITING {
            return Err(Busy);
        }
        requests.push(done);
        Ok(requests.len() == 1)
    }

    fn mark(&self, credentials: &Credentials) -> Mark {
        mark(&self.key, credentials.text())
    }

    fn remembers(&self, mark: &Mark) -> bool {
        let remembered = self.remembered.read().unwrap_or_else(PoisonError::into_inner);
        remembered.get(mark).is_some_and(|until| Instant::now() < *until)
    }

    fn remember(&self, mark: Mark) {
        let now = Instant::now();
        let mut remembered = self.remembered.write().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MOST_REMEMBERED {
            remembered.retain(|_, until| now < *until);
        }
        // Any entry: an order of use would need the write lock for each request.
        if remembered.len() >= MOST_REMEMBERED
            && let Some(any) = remembered.keys().next().copied()
        {
            remembered.remove(&any);
        }
        remembered.insert(mark, now + REMEMBERED);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Mark, Vec<oneshot::Sender<bool>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mark(key: &hmac::Key, text: &[u8]) -> Mark {
    hmac::sign(key, text).as_ref().try_into().expect("a tag has the length of the hash")
}

/// Files with users that a process has read. A reload that finds a file unchanged continues to use its [`Passwords`], which
/// remember verified credentials.
#[derive(Debug, Default)]
pub struct PasswordFiles(Mutex<HashMap<PathBuf, Weak<Passwords>>>);

impl PasswordFiles {
    /// The users of the file at `path`, which contains `text`.
    ///
    /// # Errors
    ///
    /// Those of [`Passwords::read`].
    pub fn read(&self, path: &Path, text: &str) -> Result<Arc<Passwords>, Vec<LineError>> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Without the files that no configuration uses any more: each renamed file would leave an entry otherwise.
        files.retain(|_, passwords| passwords.strong_count() > 0);
        let known = files.get(path).and_then(Weak::upgrade);
        // Under the key of the earlier reading, because each reading has a random key of its own.
        if let Some(known) = known.filter(|known| known.content == mark(&known.key, text.as_bytes())) {
            return Ok(known);
        }
        let passwords = Passwords::read(text)?;
        files.insert(path.to_owned(), Arc::downgrade(&passwords));
        Ok(passwords)
    }
}

/// A verification on its way to a thread. If it is dropped unfinished, the waiting requests are refused.
struct Verification {
    passwords: Arc<Passwords>,
    mark: Mark,
    is_finished: bool,
}

impl Verification {
    fn run(mut self, credentials: &Credentials) {
        let passwords = Arc::clone(&self.passwords);
        // The lock ends before the hash, which takes tens of milliseconds.
        {
            let mut waiting = passwords.waiting();
            // All clients may have gone in the meantime.
            if !waiting.get(&self.mark).is_some_and(|requests| requests.iter().any(|done| !done.is_closed()))
            {
                waiting.remove(&self.mark);
                self.is_finished = true;
                return;
            }
        }
        // Another verification may have ended between the look-up of the request and `joins`.
        let is_right = passwords.remembers(&self.mark)
            || passwords.table.is_right(credentials.name(), credentials.password());
        // Wrong credentials are not remembered: guesses would displace the credentials of users.
        if is_right {
            passwords.remember(self.mark);
        }
        // After `remember`: a request that finds no verification to join then finds its result.
        let requests = passwords.waiting().remove(&self.mark);
        self.is_finished = true;
        for done in requests.into_iter().flatten() {
            // A client that has gone does not listen.
            let _ = done.send(is_right);
        }
    }
}

impl Drop for Verification {
    fn drop(&mut self) {
        if !self.is_finished {
            self.passwords.waiting().remove(&self.mark);
        }
    }
}

#[cfg(test)]
mod tests;
