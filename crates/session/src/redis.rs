//! Sessions and ticket keys shared by a fleet through Redis or Valkey.
//!
//! A thread of its own ([`client`]) talks to Redis; workers hand it commands through a bounded queue and wait for an
//! answer no longer than the deadline. [`router`] knows which server has a key, [`node`] keeps a connection to each and
//! watches it, [`link`] is one such connection, [`breaker`] spares everyone the wait when Redis is out of order.
//!
//! # What Redis has to allow
//!
//! Redis 6.2, Valkey 7.2, or later. `+get +set +info` on the keys with our prefix; for ticket keys `+hgetall +hsetnx
//! +hdel` as well; in a cluster `+cluster|slots +cluster|info`; on Sentinels `+sentinel|get-master-addr-by-name`.
//! Who can read there learns how many sessions there are, and when they end. Who can write can delete sessions, and
//! can bring those back that were taken: keep others away from the prefix if early data is in use.
//!
//! # Why a session that is taken against everyone is given once
//!
//! `take(id, Claim::Everywhere)` is the defence against replayed early data: of all gateways, at all times, one call
//! at most may return the session. What could go wrong, and why it does not:
//!
//! * **Two take at once.** A take is one command, `SET key "" PX 60000 XX GET`: it returns the value and leaves an
//!   empty tombstone in one step of a server that does one thing at a time. The second gets the tombstone.
//! * **A copy in memory.** Memory is never asked for such a take ([`TieredStore`](crate::TieredStore)).
//! * **The answer is late, or lost with its connection.** Then it is unknown whether the command was
//!   executed. It is not sent again, by us or by the library, whose multiplexed connection neither retries nor
//!   reconnects ([`link`]). The session is lost, or it is there for one who takes it later, alone.
//! * **The answer is another question's.** A value is sealed with a key made of its session's ID ([`sealing`]), so
//!   that the wrong one does not open.
//! * **The session is put after it was taken.** A session is put by one command that is sent once, so there is one
//!   moment at which it appears in Redis. A take before that moment finds nothing. To be sure of callers who put an ID
//!   twice, `NX` keeps a put from replacing a tombstone.
//! * **Redis starts again from what its disk remembers, or a replica is promoted that missed the take.** Then the
//!   session is there again. Each value therefore says in which *epoch* it was put ([`epoch`]): the life of one
//!   process as a primary, by its random `run_id` and `master_replid`. `INFO` is sent behind the take on the same
//!   connection, which leads to one process; since an epoch that is over never comes back, an answer that
//!   has the value's own epoch proves that this one process held the session from the put to the take, with no
//!   restart and no other's data in between. Any other answer, or none, and the session is not given. It makes no
//!   difference that the epoch a value was put with was learned a second before: were it over by then, the value would
//!   never be given.
//! * **A primary is cut off, and another is promoted beside it.** Both may have the session, but its epoch is the
//!   first one's alone.
//! * **A cluster moves a slot away and back.** The importing node takes a new `cluster_my_epoch`, which is part of the
//!   epoch in a cluster. A key that is not where the cluster said is not looked for elsewhere: it is not found.
//! * **It is taken for a handshake without early data.** `Claim::Here` is satisfied with a copy in memory, and
//!   informs Redis afterwards: such a session may still be taken once for early data elsewhere, and one that was taken for
//!   early data may resume another handshake where a copy of it is left. Neither accepts early data twice.
//! * **Redis did not answer when the early data first came.** Its client got a full handshake and sent its request
//!   again. So that the early data is not accepted from a replay later on, what could not be taken is remembered
//!   ([`spent`]) and marked in Redis before this gateway asks for it again, or within a second where it
//!   was only too busy. Beyond 10,000 of them, which strangers can make up, this gateway gives no session any more that
//!   was put before. This is done as well as it can be: RFC 8446 section 8 leaves it to applications that a client's
//!   second attempt is a second request.
//!
//! What this leans on: that Redis is Redis. A proxy that answers `INFO` itself or spreads one connection over several
//! servers, a virtual machine that is set back to an image with Redis running in it, `DEBUG RELOAD`, and a program that
//! writes old values back are not noticed. Services that do not report `run_id` and `master_replid` are refused.

mod breaker;
mod client;
mod command;
mod epoch;
mod errands;
mod error;
mod exchange;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod link;
mod node;
mod router;
mod sealing;
mod settings;
mod shared;
mod slot;
mod spent;
mod statistics;
mod store;
mod trouble;

pub(crate) use command::{How, Kept};
pub use errands::RedisErrands;
pub use error::RedisError;
pub use exchange::{PreparedKeySync, TicketKeySync};
pub use settings::{RedisAddress, RedisCredentials, RedisSettings, RedisTls, RedisTopology};
pub use statistics::RedisStatistics;
pub use store::RedisStore;
