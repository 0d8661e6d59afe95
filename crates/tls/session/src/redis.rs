//! Sessions, ticket keys and rates shared by a fleet through Redis or Valkey.
//!
//! A thread of its own ([`client`]) communicates with Redis. Workers send it commands through a bounded queue and wait
//! for the reply until a deadline. [`router`] maps keys to servers, [`node`] maintains a connection to each server,
//! [`link`] is one such connection, and [`breaker`] suspends all commands while Redis does not work.
//!
//! # Requirements on Redis
//!
//! Redis 6.2, Valkey 7.2, or later. The ACL needs `+get +set +info` on the keys with the prefix of [`RedisSettings`];
//! for ticket keys also `+hgetall +hsetnx +hdel`; for rates of the fleet `+eval +time`; in a cluster
//! `+cluster|slots +cluster|info +asking`; on Sentinels `+sentinel|get-master-addr-by-name`. A user with read access learns the
//! number of sessions and their expiry. A user with write access can delete sessions, and can restore sessions that were taken:
//! restrict access to the prefix if early data is in use.
//!
//! # Why an exclusively taken session is returned once
//!
//! `take(id, Claim::Everywhere)` is the defence against replayed early data: of all gateways, at all times, at most one
//! call may return the session. The possible failures, and why they do no harm:
//!
//! * **Two concurrent takes.** A take is one command, `SET key "" PX 60000 XX GET`: it returns the value and leaves an
//!   empty tombstone, and Redis executes commands one at a time. The second take gets the tombstone.
//! * **A copy in memory.** Such a take never uses the copy in memory ([`TieredStore`](crate::TieredStore)).
//! * **The reply is late, or lost with its connection.** Then it is unknown whether the command was executed. It is not
//!   sent again, neither by this module nor by the library, whose multiplexed connection neither retries nor reconnects
//!   ([`link`]). The session is lost, or stays in Redis for a single later take.
//! * **The reply belongs to another command.** The key that seals a value is derived from the session's ID
//!   ([`sealing`]), so the wrong value does not open.
//! * **The session is put after it was taken.** A session is put by one command that is sent once, so there is one
//!   moment at which it appears in Redis. A take before that moment finds nothing. In case a caller puts an ID twice,
//!   `NX` keeps the second put from replacing a tombstone.
//! * **Redis restarts from data on disk, or a replica is promoted that missed the take.** Then the session is in Redis
//!   again. Therefore each value contains the *epoch* in which it was put ([`epoch`]): the life of one process as a
//!   primary, identified by its random `run_id` and `master_replid`. `INFO` follows the take on the same connection,
//!   which leads to one process. An epoch that has ended never returns, so a reply with the value's own epoch proves
//!   that this one process held the session from the put to the take, without a restart and without another server's
//!   data in between. After any other reply, or none, the session is not returned. The epoch in a value may have been
//!   read a second before the put: if it had ended by then, the value would never be returned.
//! * **A primary is cut off, and another is promoted.** Both may have the session, but its epoch is that of the first.
//! * **A cluster moves a slot away and back.** The importing node takes a new `cluster_my_epoch`, which is part of the
//!   epoch in a cluster. A key that has moved is not looked up on another node: it counts as not found, and as spent.
//! * **A session is put while its slot is being moved.** `ASK`, which proves that the put was not executed, leads it to
//!   the other node with the epoch of the first, which is never that of the other. Look-ups for handshakes without early
//!   data follow `ASK` too.
//! * **It is taken for a handshake without early data.** `Claim::Here` may use a copy in memory, and marks the session
//!   in Redis afterwards. Such a session may still be taken once for early data elsewhere, and a session that was taken
//!   for early data may resume another handshake if a copy of it remains. Neither accepts early data twice.
//! * **Redis did not reply when the early data first arrived.** The client got a full handshake and sent its request
//!   again. To refuse a later replay of the early data, sessions that could not be taken are remembered ([`used_sessions`]) and
//!   marked in Redis before this gateway takes sessions from it again, or within a second if Redis was only too busy.
//!   Beyond 10,000 such sessions, whose IDs an attacker can make up, this gateway returns no session that was put
//!   before. This is best effort: RFC 8446 section 8 leaves to applications that a client's second attempt is a second
//!   request.
//!
//! These arguments assume an unmodified Redis. The module does not notice a proxy that replies to `INFO` itself or
//! distributes one connection over several servers, a virtual machine that is reset to an image with a running Redis,
//! `DEBUG RELOAD`, and a program that restores old values. Services that do not report `run_id` and `master_replid` are
//! refused.

mod blocking;
mod bounded;
mod breaker;
mod client;
mod command;
mod dial;
mod epoch;
mod error;
mod exchange;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod link;
mod node;
mod problem;
mod rates;
mod router;
mod sealing;
mod settings;
mod shared;
mod slot;
mod statistics;
mod store;
mod used_sessions;

pub use blocking::BlockingRedis;
pub(crate) use command::{FindMode, FoundSession};
pub use error::RedisError;
pub use exchange::{PreparedKeySync, TicketKeySync};
pub use rates::{FleetRate, Taken};
pub use settings::{RedisAddress, RedisCredentials, RedisSettings, RedisTls, RedisTopology};
pub use statistics::RedisStatistics;
pub use store::RedisStore;
