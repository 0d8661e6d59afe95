//! [`Problems`] with Redis: logged when they begin and when they end, in the statistics while they last.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::settings::RedisAddress;

/// Minimum interval between log lines of problems that alternate.
const QUIET: Duration = Duration::from_mins(1);

/// Maximum number of servers whose [`Problem`]s are kept. It exceeds the size of a fleet, and bounds made-up addresses.
const MOST: usize = 64;

/// A problem that keeps Redis from working, as a message for operators with fault and correction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem(String);

impl Problem {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// A connection failed to open, or ended. `connect_timeout` is the timeout that applied.
    pub(super) fn connecting(error: &RedisError, connect_timeout: Duration) -> Self {
        if error.is_timeout() {
            return Self::silent(connect_timeout);
        }
        match (error.kind(), error.code()) {
            (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOPERM")) => Self::new(format!(
                "refuses our user or password ({error}): the user name and the password have to be those of its ACL"
            )),
            _ if error.is_connection_refusal() => {
                Self::new("refuses connections: nothing listens there, or a firewall keeps us off")
            }
            _ => Self::new(error.to_string()),
        }
    }

    pub(super) fn silent(connect_timeout: Duration) -> Self {
        Self::new(format!("did not answer within {connect_timeout:?}: it hangs, or the way to it is blocked"))
    }

    pub(super) fn closed() -> Self {
        Self::new("closed the connection")
    }

    pub(super) fn replica() -> Self {
        Self::new("is a replica, and takes no writes: name the primary, or its Sentinels")
    }

    pub(super) fn slow(took: Duration, deadline: Duration) -> Self {
        Self::new(format!(
            "answers after {took:.1?}: it is not asked for sessions while it takes longer than the deadline, {deadline:?}"
        ))
    }

    /// The server does not identify its epoch, so no session can be taken exclusively.
    pub(super) fn anonymous() -> Self {
        Self::new(
            "does not report its run_id and master_replid: no session is taken from it for early data; our user needs \
             +info, in a cluster +cluster|info too, and there must be no proxy that answers in its place",
        )
    }

    pub(super) fn no_slots(error: Option<&redis::ServerError>) -> Self {
        let error = error.map(|error| format!(" ({error})")).unwrap_or_default();
        Self::new(format!(
            "does not report the nodes of its cluster{error}: our user needs +cluster|slots, and it has to be a cluster"
        ))
    }

    pub(super) fn unknown_service(service: &str) -> Self {
        Self::new(format!(
            "is a Sentinel that knows no service {service:?}: name what `sentinel monitor` names"
        ))
    }

    /// A slot of the cluster is being moved, and neither node executes commands for one of its keys.
    pub(super) fn migration(error: &redis::ServerError) -> Self {
        Self::new(format!(
            "has a slot in migration, for which neither node takes commands ({error}): complete it, for example with \
             redis-cli --cluster fix, and permit our user +asking"
        ))
    }

    /// The problem behind an error reply to the first command of a connection.
    pub(super) fn greeted(error: &redis::ServerError) -> Option<Self> {
        match error.code() {
            "NOAUTH" => Some(Self::new("asks for a password, and none is set: set the user's password")),
            _ => None,
        }
    }

    /// Redis refused a command.
    pub(super) fn refused(command: &str, error: &redis::ServerError) -> Self {
        let hint = match error.kind() {
            Some(ServerErrorKind::NoPerm) => {
                ": its ACL has to allow our user +get +set +info on keys with our prefix, and for the exchange of \
                 ticket keys +hgetall +hsetnx +hdel, for limits of the fleet +eval +time, and in a cluster +asking"
            }
            Some(ServerErrorKind::ResponseError) => ": Redis 6.2 or Valkey 7.2 is needed, or later",
            _ => "",
        };
        Self::new(format!("refuses {command} ({error}){hint}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Functions that a [`Problem`] can affect. It ends when the function works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Area {
    /// The whole connection.
    Connection,
    /// The report of a cluster's slots, which other commands do not need.
    Slots,
    /// Storing and finding sessions.
    Sessions,
    /// The exchange of ticket keys.
    Exchange,
    /// Rates of the fleet.
    Rates,
    /// Commands for keys whose slot is being moved to another node of the cluster.
    Migration,
}

/// The current problems of all servers.
#[derive(Debug, Default)]
pub(super) struct Problems {
    entries: Mutex<BTreeMap<(RedisAddress, Area), Entry>>,
    /// Whether there may be a current problem; checked after each successful command, without a lock.
    any: AtomicBool,
}

#[derive(Debug)]
struct Entry {
    problem: Problem,
    lasts: bool,
    logged: Instant,
}

impl Problems {
    /// Records that `server` has this problem now.
    pub(super) fn begin(&self, server: &RedisAddress, area: Area, problem: Problem) {
        let mut entries = self.lock();
        let (now, key) = (Instant::now(), (server.clone(), area));
        let former = entries.get(&key);
        if former.is_none() && entries.len() >= MOST {
            return;
        }
        let is_news = former.is_none_or(|former| {
            let repeats = former.lasts && former.problem == problem;
            !repeats && now.duration_since(former.logged) >= QUIET
        });
        if is_news {
            tracing::warn!("session store: Redis at {server} {problem}");
        }
        // The time of the last line: with `now`, problems that alternate quickly would never be logged
        // again.
        let logged = if is_news { now } else { former.map_or(now, |former| former.logged) };
        entries.insert(key, Entry { problem, lasts: true, logged });
        // Under the lock, so that a concurrent `end` does not reset it.
        self.any.store(true, Ordering::Relaxed);
    }

    /// Records that this function of `server` works.
    pub(super) fn end(&self, server: &RedisAddress, area: Area) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut entries = self.lock();
        if let Some(entry) = entries.get_mut(&(server.clone(), area)).filter(|entry| entry.lasts) {
            entry.lasts = false;
            tracing::info!("session store: Redis at {server} works again");
        }
        self.any.store(entries.values().any(|entry| entry.lasts), Ordering::Relaxed);
    }

    /// Records that this function works, which needs one server only. Removes its problems with all servers but `server`, since
    /// their end would not be noticed.
    pub(super) fn end_area(&self, server: &RedisAddress, area: Area) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        self.lock().retain(|(other, kind), _| *kind != area || other == server);
        // Last, because it sets `any` according to the remaining problems.
        self.end(server, area);
    }

    /// Removes the problems of `server`, which is no longer used.
    pub(super) fn forget(&self, server: &RedisAddress) {
        self.lock().retain(|(other, _), _| other != server);
    }

    /// The current problems, one line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let entries = self.lock();
        let lasting = entries.iter().filter(|(_, entry)| entry.lasts);
        lasting.map(|((server, _), entry)| format!("Redis at {server} {}", entry.problem)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(RedisAddress, Area), Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> RedisAddress {
        RedisAddress { host: "redis.example".to_owned(), port }
    }

    #[test]
    fn a_problem_is_listed_while_it_lasts() {
        let problems = Problems::default();
        problems.begin(&server(1), Area::Connection, Problem::closed());
        problems.begin(&server(1), Area::Connection, Problem::replica());
        problems.begin(&server(2), Area::Connection, Problem::closed());
        let lines = problems.lines();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("Redis at redis.example:1 is a replica"), "{lines:?}");
        problems.end(&server(1), Area::Sessions);
        assert_eq!(problems.lines().len(), 2);
        problems.end(&server(1), Area::Connection);
        problems.forget(&server(2));
        assert_eq!(problems.lines(), [""; 0]);
    }

    #[test]
    fn a_problem_with_slots_ends_when_any_server_reports_them() {
        let problems = Problems::default();
        for port in 1..=2 {
            problems.begin(&server(port), Area::Slots, Problem::no_slots(None));
            problems.end(&server(port), Area::Connection);
        }
        assert_eq!(problems.lines().len(), 2);
        problems.end_area(&server(1), Area::Slots);
        assert_eq!(problems.lines(), [""; 0]);
        assert!(!problems.any.load(Ordering::Relaxed), "the next end needs no lock");
        problems.begin(&server(2), Area::Slots, Problem::no_slots(None));
        problems.end_area(&server(1), Area::Slots);
        assert!(!problems.any.load(Ordering::Relaxed), "the only problem was that of another server");
    }

    #[test]
    fn the_problems_kept_are_bounded() {
        let problems = Problems::default();
        for port in 0..1000 {
            problems.begin(&server(port), Area::Connection, Problem::closed());
        }
        assert_eq!(problems.lines().len(), MOST);
    }

    #[test]
    fn a_refused_password_differs_from_a_refused_connection() {
        let refused = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        let problem = Problem::connecting(&refused, Duration::from_secs(2)).to_string();
        assert!(problem.contains("nothing listens there"), "{problem}");
        let wrong = RedisError::from((ErrorKind::AuthenticationFailed, "Password authentication failed"));
        let problem = Problem::connecting(&wrong, Duration::from_secs(2)).to_string();
        assert!(problem.contains("user name and the password"), "{problem}");
    }
}
