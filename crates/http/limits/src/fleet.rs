//! Rates that the gateways of a fleet count together.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use brisk_net::rates::Rate;
use brisk_session::{FleetRate, Lookup, Miss, RedisStore, Taken};

/// The decision about a request while Redis does not work, or does not reply in time: `on_failure` of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Each gateway applies the rate to its own requests.
    Local,
    /// The request passes.
    Allow,
    /// The request is refused with [`Excess::Undecided`](crate::Excess::Undecided).
    Deny,
}

/// The Redis of the fleet, once the process has one.
pub(crate) type Store = Arc<OnceLock<RedisStore>>;

/// A rate in Redis.
#[derive(Debug)]
pub(crate) struct Fleet {
    name: Box<str>,
    rate: FleetRate,
    pub(crate) on_failure: OnFailure,
    store: Store,
}

impl Fleet {
    pub(crate) fn new(name: &str, rate: Rate, on_failure: OnFailure, store: Store) -> Self {
        Self {
            name: name.into(),
            rate: FleetRate { interval: rate.interval, burst: rate.burst },
            on_failure,
            store,
        }
    }

    /// Whether Redis works, as far as is known; `false` before the process has a [`RedisStore`].
    pub(crate) fn is_up(&self) -> bool {
        self.store.get().is_some_and(RedisStore::is_up)
    }

    /// Asks for a token of `key`. The call itself sends the question; [`Question::reply`] waits for the decision.
    pub(crate) fn ask(&self, key: &[u8]) -> Lookup<Result<Taken, Miss>> {
        match self.store.get() {
            Some(store) => store.take_token(&self.name, key, self.rate),
            // Without a store, the request is undecided, and `on_failure` decides.
            None => Lookup::Ready(Err(Miss::Down)),
        }
    }
}

/// A question to Redis from [`Limit::ask`](crate::Limit::ask). A dropped question does not return the token.
pub struct Question(pub(crate) Lookup<Result<Taken, Miss>>);

impl Question {
    /// Waits for the reply, until the deadline of Redis. The inner `Err` is the time until the next token.
    pub(crate) async fn reply(self) -> Result<Result<(), Duration>, Miss> {
        self.0.answer().await
    }
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Question")
    }
}
