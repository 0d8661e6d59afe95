//! [`Router`], which maps keys to servers: one server, the primary that Sentinels name, or the nodes of a cluster by slot.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use redis::{AsyncConnectionConfig, Cmd, ServerError, ServerErrorKind, Value};
use tokio::{sync::Notify, time};

use super::{
    dial::{Dialed, dial},
    link::Link,
    node::Node,
    problem::{Area, Problem},
    settings::{RedisAddress, RedisTopology},
    shared::Shared,
    slot::slot,
};

/// Interval of querying Sentinels for the primary.
const SENTINEL_POLL: Duration = Duration::from_secs(1);

/// Interval of querying a cluster for its slots (`CLUSTER SLOTS`) while there is no sign of a change.
const CLUSTER_POLL: Duration = Duration::from_secs(10);

/// Minimum interval between two queries, regardless of [`Router::doubt`].
const LEAST_POLL: Duration = Duration::from_millis(200);

/// Repetitions of a command with the reply `TRYAGAIN`, and the pause before each.
const REPETITIONS: usize = 3;
const REPETITION: Duration = Duration::from_millis(10);

/// Maximum number of [`Router::migrating`] servers, which bounds made-up addresses.
const MOST_MIGRATING: usize = 16;

/// The currently known servers with data, each a [`Node`].
pub(super) struct Router {
    shared: Arc<Shared>,
    nodes: RefCell<BTreeMap<RedisAddress, Rc<Node>>>,
    slots: RefCell<Vec<SlotRange>>,
    /// Servers that have received keys of a slot in migration since the last report of the slots, also such as have no slot
    /// yet, and servers that could not be asked about such keys.
    migrating: RefCell<BTreeSet<RedisAddress>>,
    /// Notified when the known topology may be out of date.
    doubt: Rc<Notify>,
}

/// A range of slots and the server that has them. Without a cluster, one range contains all slots.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SlotRange {
    first: u16,
    last: u16,
    server: RedisAddress,
}

impl Router {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let (nodes, slots, migrating) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { shared, nodes, slots, migrating, doubt: Rc::default() }
    }

    /// The server that has `key`; `None` while it is unknown.
    pub(super) fn node(&self, key: &[u8]) -> Option<Rc<Node>> {
        let slot = slot(key);
        let slots = self.slots.borrow();
        let range = slots.get(slots.partition_point(|range| range.last < slot))?;
        self.nodes.borrow().get(&range.server).filter(|_| range.first <= slot).cloned()
    }

    /// Sends `command` over `link` and returns its reply. While the slot of its key is being moved, the command goes once to the
    /// node that the reply `ASK` names, and is repeated after `TRYAGAIN`; neither reply means that it was executed. `Err` as for
    /// [`Link::ask`].
    ///
    /// Without a reply of the other node, the reply is that of the first, and the migration is a problem unless the other
    /// node has one of its own.
    pub(super) async fn ask(&self, link: &Link, command: &Cmd) -> Result<Value, ()> {
        let mut answer = link.ask(command).await?;
        for _ in 0..REPETITIONS {
            let Value::ServerError(error) = &answer else { break };
            match error.kind() {
                Some(ServerErrorKind::Ask) => {
                    let Some(receiver) = self.receiver(error, link.address()) else { break };
                    // Not connected yet, or not any more: the `Node` reports the reason.
                    let Some(receiver) = receiver.link() else { return Ok(answer) };
                    match receiver.ask_importing(command).await? {
                        // Without the permission, the second reply only leads back.
                        [Value::ServerError(refusal), _] => {
                            self.note_migration(receiver.address(), &refusal);
                            return Ok(answer);
                        }
                        [_, reply] => return Ok(reply),
                    }
                }
                Some(ServerErrorKind::TryAgain) => {
                    time::sleep(REPETITION).await;
                    answer = link.ask(command).await?;
                }
                _ => return Ok(answer),
            }
        }
        if let Value::ServerError(error) = &answer
            && matches!(error.kind(), Some(ServerErrorKind::Ask | ServerErrorKind::TryAgain))
        {
            self.note_migration(link.address(), error);
        }
        Ok(answer)
    }

    /// The node that receives a slot of the server `asked`. A node without slots is started.
    fn receiver(&self, error: &ServerError, asked: &RedisAddress) -> Option<Rc<Node>> {
        let address = error.details()?.split_ascii_whitespace().nth(1)?;
        let address = RedisAddress::of_redirection(address, asked)?;
        if !self.add_migrating(&address) {
            return None;
        }
        let mut nodes = self.nodes.borrow_mut();
        let node = nodes.entry(address.clone());
        Some(Rc::clone(node.or_insert_with(|| self.start(address))))
    }

    /// Adds a server to those in a migration. Returns whether it is among them.
    fn add_migrating(&self, address: &RedisAddress) -> bool {
        let mut migrating = self.migrating.borrow_mut();
        migrating.contains(address) || (migrating.len() < MOST_MIGRATING && migrating.insert(address.clone()))
    }

    fn note_migration(&self, address: &RedisAddress, error: &ServerError) {
        if self.add_migrating(address) {
            self.shared.problems.begin(address, Area::Migration, Problem::migration(error));
        }
    }

    fn start(&self, address: RedisAddress) -> Rc<Node> {
        Node::start(address, Arc::clone(&self.shared), Rc::clone(&self.doubt))
    }

    /// Signals that the known topology may be out of date.
    pub(super) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// Follows the topology until the store is dropped.
    pub(super) async fn keep(&self) {
        match &self.shared.settings.topology {
            RedisTopology::Single => {
                let server = self.shared.settings.servers[0].clone();
                self.set(vec![SlotRange { first: 0, last: u16::MAX, server }]);
            }
            RedisTopology::Sentinel { service } => self.follow_sentinels(service).await,
            RedisTopology::Cluster => self.follow_cluster().await,
        }
    }

    fn set(&self, mut slots: Vec<SlotRange>) {
        slots.sort_by_key(|range| range.first);
        // Servers of a migration that goes on are named again.
        let migrating = self.migrating.take();
        let mut nodes = self.nodes.borrow_mut();
        nodes.retain(|address, node| {
            let is_migrating = migrating.contains(address);
            if !is_migrating {
                self.shared.problems.end(address, Area::Migration);
            }
            let stays = is_migrating || slots.iter().any(|range| range.server == *address);
            if !stays {
                node.stop();
            }
            stays
        });
        for range in &slots {
            nodes.entry(range.server.clone()).or_insert_with(|| self.start(range.server.clone()));
        }
        for (address, node) in nodes.iter() {
            let own = slots.iter().filter(|range| range.server == *address);
            node.set_slots(own.map(|range| range.first..=range.last).collect());
        }
        self.slots.replace(slots);
    }

    /// Forgets problems of servers that are no longer queried, since their recovery would not be noticed.
    fn forget_problems(&self, which: impl Fn(&RedisAddress) -> bool) {
        for server in self.shared.settings.servers.iter().filter(|server| which(server)) {
            self.shared.problems.forget(server);
        }
    }

    async fn follow_sentinels(&self, service: &str) {
        let servers = &self.shared.settings.servers;
        let (mut turn, mut sentinel) = (0, None);
        loop {
            let address = &servers[turn % servers.len()];
            match self.ask_sentinel(address, &mut sentinel, service).await {
                Ok(server) => {
                    self.shared.problems.end(address, Area::Connection);
                    self.forget_problems(|other| other != address);
                    self.set(vec![SlotRange { first: 0, last: u16::MAX, server }]);
                }
                Err(problem) => {
                    self.shared.problems.begin(address, Area::Connection, problem);
                    (turn, sentinel) = (turn + 1, None);
                }
            }
            self.pause(SENTINEL_POLL).await;
        }
    }

    async fn ask_sentinel(
        &self,
        address: &RedisAddress,
        dialed: &mut Option<Dialed>,
        service: &str,
    ) -> Result<RedisAddress, Problem> {
        let settings = &self.shared.settings;
        let failed = |error| Problem::connecting(&error, settings.connect_timeout);
        let dialed = if let Some(dialed) = dialed {
            dialed
        } else {
            let config = AsyncConnectionConfig::new().set_response_timeout(Some(settings.connect_timeout));
            let made = dial(address, &settings.sentinel_login(), settings, config).await;
            dialed.insert(made.map_err(failed)?)
        };
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(service);
        let answer = dialed.connection.send_packed_command(&command).await.map_err(failed)?;
        primary(&answer, service)
    }

    async fn follow_cluster(&self) {
        let mut turn = 0;
        loop {
            // Known nodes first, because the configured ones may have left the cluster.
            let mut known: Vec<_> = self.nodes.borrow().keys().cloned().collect();
            known.extend(self.shared.settings.servers.iter().cloned());
            let address = &known[turn % known.len()];
            match self.ask_cluster(address).await {
                Ok(slots) => {
                    self.set(slots);
                    self.shared.problems.end_area(address, Area::Slots);
                    self.forget_problems(|other| !self.nodes.borrow().contains_key(other));
                    self.pause(CLUSTER_POLL).await;
                }
                Err((area, problem)) => {
                    self.shared.problems.begin(address, area, problem);
                    turn += 1;
                    self.pause(LEAST_POLL).await;
                }
            }
        }
    }

    async fn ask_cluster(&self, address: &RedisAddress) -> Result<Vec<SlotRange>, (Area, Problem)> {
        let answer = self.request_slots(address).await.map_err(|problem| (Area::Connection, problem))?;
        slots(&answer, address).map_err(|problem| (Area::Slots, problem))
    }

    async fn request_slots(&self, address: &RedisAddress) -> Result<Value, Problem> {
        let settings = &self.shared.settings;
        let existing = self.nodes.borrow().get(address).and_then(|node| node.link());
        let link = match existing {
            Some(link) => link,
            None => Rc::new(Link::open(address, settings).await?),
        };
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let answer = time::timeout(settings.connect_timeout, link.ask(&command)).await;
        answer.map_err(|_| Problem::silent(settings.connect_timeout))?.map_err(|()| link.problem())
    }

    async fn pause(&self, most: Duration) {
        // The lower bound keeps a stream of `MOVED` replies from causing a query each.
        time::sleep(LEAST_POLL.min(most)).await;
        // The timeout elapses if there is no sign of a change.
        let _ = time::timeout(most.saturating_sub(LEAST_POLL), self.doubt.notified()).await;
    }
}

/// Parses the reply to `SENTINEL get-master-addr-by-name`: host and port.
fn primary(answer: &Value, service: &str) -> Result<RedisAddress, Problem> {
    let unknown = || Problem::unknown_service(service);
    match answer {
        Value::Array(parts) => {
            let [host, port] = parts.as_slice() else { return Err(unknown()) };
            let port = text(port).and_then(|port| port.parse().ok()).ok_or_else(unknown)?;
            Ok(RedisAddress { host: text(host).ok_or_else(unknown)?.to_owned(), port })
        }
        Value::ServerError(error) => Err(Problem::refused("SENTINEL", error)),
        _ => Err(unknown()),
    }
}

/// Parses the reply to `CLUSTER SLOTS`: ranges with first slot, last slot and servers (host, port, ...), primary first.
fn slots(answer: &Value, asked: &RedisAddress) -> Result<Vec<SlotRange>, Problem> {
    let Value::Array(ranges) = answer else {
        let Value::ServerError(error) = answer else { return Err(Problem::no_slots(None)) };
        return Err(Problem::no_slots(Some(error)));
    };
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice() else {
            return None;
        };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        // A node that does not know its own name reports an empty host: it is the queried one.
        let host = text(host).filter(|host| !host.is_empty()).unwrap_or(&asked.host);
        Some(SlotRange {
            first: u16::try_from(*first).ok()?,
            last: u16::try_from(*last).ok()?,
            server: RedisAddress { host: host.to_owned(), port: u16::try_from(*port).ok()? },
        })
    };
    let ranges: Option<Vec<_>> = ranges.iter().map(range).collect();
    ranges.filter(|ranges| !ranges.is_empty()).ok_or_else(|| Problem::no_slots(None))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn address(host: &str, port: u16) -> RedisAddress {
        RedisAddress { host: host.to_owned(), port }
    }

    #[test]
    fn a_sentinel_names_the_primary() {
        let answer = Value::Array(vec![bulk("10.0.0.1"), bulk("6380")]);
        assert_eq!(primary(&answer, "brisk"), Ok(address("10.0.0.1", 6380)));
        let problem = primary(&Value::Nil, "brisk").unwrap_err().to_string();
        assert!(problem.contains("knows no service \"brisk\""), "{problem}");
    }

    #[test]
    fn a_cluster_names_the_primary_of_each_range() {
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), bulk("id")]);
        let range = |first, last, primary| {
            Value::Array(vec![Value::Int(first), Value::Int(last), primary, node(bulk("replica"), 1)])
        };
        let answer = Value::Array(vec![
            range(0, 99, node(bulk("10.0.0.1"), 6379)),
            range(100, 16383, node(Value::Nil, 6380)),
        ]);
        let found = slots(&answer, &address("asked", 9)).unwrap();
        assert_eq!(found[0], SlotRange { first: 0, last: 99, server: address("10.0.0.1", 6379) });
        assert_eq!(found[1], SlotRange { first: 100, last: 16383, server: address("asked", 6380) });
        assert!(slots(&Value::Array(vec![]), &address("asked", 9)).is_err());
        assert!(
            slots(&Value::Array(vec![range(0, 70000, node(bulk("a"), 1))]), &address("asked", 9)).is_err()
        );
    }
}
