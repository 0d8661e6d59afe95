//! Rates that a fleet counts together in Redis: the generic cell rate algorithm (GCRA) as one script.
//!
//! A decision is one `EVAL`, by the clock of Redis, so gateways need no common clock. The value of a key is the time at
//! which its bucket is full again, and it expires at that time: Redis forgets full buckets. Names are keyed hashes, so
//! they disclose neither addresses nor tokens.

use std::time::Duration;

use redis::{Cmd, ServerErrorKind, Value};
use tokio::sync::oneshot;

use super::{
    link::{Link, is_elsewhere},
    problem::{Area, Problem},
    router::Router,
    sealing::Name,
    shared::Shared,
};
use crate::Miss;

/// Takes a token. Returns 0, or the microseconds until the next token. Times are microseconds, which are exact as
/// numbers of Lua until the year 2255.
const TAKE: &str = "local t = redis.call('TIME') \
local now = t[1] * 1000000 + t[2] \
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) \
local wait = full - now - ARGV[2] \
if wait > 0 then return wait end \
full = full + ARGV[1] \
redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000)) \
return 0";

/// A rate of a fleet, for [`RedisStore::take_token`](super::RedisStore::take_token).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetRate {
    /// Time in which a bucket gains a token. At least a microsecond.
    pub interval: Duration,
    /// Maximum number of tokens; at least one.
    pub burst: u32,
}

/// A token was taken, or the time until the next one.
pub type Taken = Result<(), Duration>;

/// A question for a token at a [`FleetRate`].
pub(super) struct TakeToken {
    /// Keyed hash of the limit and the key, so that a long key is not held.
    pub(super) name: Name,
    pub(super) rate: FleetRate,
    pub(super) answer: oneshot::Sender<Result<Taken, Miss>>,
}

impl TakeToken {
    /// Fails the question with `miss`.
    pub(super) fn give_up(self, miss: Miss) {
        // An error means that the caller no longer waits.
        let _ = self.answer.send(Err(miss));
    }

    /// Asks over `link`, or where `router` finds the bucket meanwhile; `key` is the key of the bucket.
    pub(super) async fn perform(self, key: &[u8], link: &Link, router: &Router, shared: &Shared) {
        // A caller that has timed out has decided without Redis.
        if self.answer.is_closed() {
            return;
        }
        let taken = match router.ask(link, &take(key, self.rate)).await {
            Ok(Value::Int(wait)) => {
                shared.problems.end(link.address(), Area::Rates);
                let wait = u64::try_from(wait).unwrap_or(0);
                Ok(if wait == 0 { Ok(()) } else { Err(Duration::from_micros(wait)) })
            }
            Ok(Value::ServerError(error)) => {
                refused(&error, link, shared);
                Err(Miss::Down)
            }
            _ => Err(Miss::Down),
        };
        // An error means that the caller has timed out.
        let _ = self.answer.send(taken);
    }
}

fn take(key: &[u8], rate: FleetRate) -> Cmd {
    // With an interval of 0 every bucket would be full at once, and nothing limited.
    let interval = rate.interval.as_micros().max(1);
    let tolerance = interval.saturating_mul(u128::from(rate.burst.saturating_sub(1)));
    let mut command = redis::cmd("EVAL");
    command.arg(TAKE).arg(1).arg(key).arg(interval.to_string()).arg(tolerance.to_string());
    command
}

/// Handles an error reply. It does not count for the breaker: sessions may work where scripts do not.
fn refused(error: &redis::ServerError, link: &Link, shared: &Shared) {
    match error.kind() {
        // A former primary: the node reconnects, and the router looks for the present primary.
        Some(ServerErrorKind::ReadOnly) => link.end(Problem::replica()),
        // The cached slots of the cluster are outdated.
        Some(ServerErrorKind::Moved) => link.set_moved(),
        // `Router::ask` has reported the migration of the slot.
        _ if is_elsewhere(error) => {}
        _ => shared.problems.begin(link.address(), Area::Rates, Problem::refused("EVAL", error)),
    }
}
