//! [`Link`], one connection to one server. It is never repaired, and commands on it are sent elsewhere only after the reply that
//! they were not executed.

use std::cell::{Cell, RefCell};

use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisResult, ServerError, ServerErrorKind, Value};
use tokio::{sync::Notify, time};

use super::{
    dial::{Dialed, dial},
    epoch::{Epoch, field},
    problem::Problem,
    settings::{RedisAddress, RedisSettings, RedisTopology},
};

/// A connection. Commands are sent in the order in which their futures are first polled.
pub(super) struct Link {
    dialed: Dialed,
    /// `run_id` of the server process, which cannot change during the connection. `None` if the server does not report
    /// it.
    run_id: Option<String>,
    cluster: bool,
    epoch: Cell<Epoch>,
    end: RefCell<Option<Problem>>,
    ended: Notify,
    has_moved: Cell<bool>,
}

/// State that a server reports with each [`Link::beat`].
pub(super) struct Heartbeat {
    pub(super) epoch: Epoch,
    pub(super) is_replica: bool,
}

impl Link {
    /// Connects, authenticates, and reads the identity of the server.
    pub(super) async fn open(address: &RedisAddress, settings: &RedisSettings) -> Result<Self, Problem> {
        let connect_timeout = settings.connect_timeout;
        let config = AsyncConnectionConfig::new()
            // Each caller has a deadline of its own, and heartbeats close a silent connection.
            .set_response_timeout(None)
            // As many as may be in flight, so that look-ups do not wait for room in the buffer of the library.
            .set_pipeline_buffer_size(settings.queue);
        let dialed = dial(address, &settings.login(), settings, config).await;
        let dialed = dialed.map_err(|error| Problem::connecting(&error, connect_timeout))?;
        let mut link = Self {
            dialed,
            run_id: None,
            cluster: settings.topology == RedisTopology::Cluster,
            epoch: Cell::new(Epoch::UNKNOWN),
            end: RefCell::new(None),
            ended: Notify::new(),
            has_moved: Cell::new(false),
        };
        let server = time::timeout(connect_timeout, link.ask(&info("server"))).await;
        let server = server.map_err(|_| Problem::silent(connect_timeout))?.map_err(|()| link.problem())?;
        if let Value::ServerError(error) = &server
            && let Some(problem) = Problem::greeted(error)
        {
            return Err(problem);
        }
        link.run_id = text(server).and_then(|info| field(&info, "run_id").map(str::to_owned));
        Ok(link)
    }

    /// Sends `command` and waits for its reply, which may be an error of the server. `Err` if the link ends first; then
    /// it is unknown whether the command was executed.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, ()> {
        // The library needs `&mut`; a clone shares the connection.
        let mut connection = self.dialed.connection.clone();
        self.unless_ended(connection.send_packed_command(command)).await
    }

    /// Sends the commands of `pipeline` without others in between, and waits for their replies.
    pub(super) async fn ask_all(&self, pipeline: &Pipeline) -> Result<Vec<Value>, ()> {
        let mut connection = self.dialed.connection.clone();
        self.unless_ended(connection.send_packed_commands(pipeline, 0, pipeline.len())).await
    }

    /// Sends `command` directly after `ASKING`, and returns the replies to both: a node that receives a slot executes only such
    /// commands for keys of the slot.
    pub(super) async fn ask_importing(&self, command: &Cmd) -> Result<[Value; 2], ()> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("ASKING").add_command(command.clone());
        self.ask_all(&pipeline).await?.try_into().map_err(|_| ())
    }

    async fn unless_ended<T>(&self, answer: impl Future<Output = RedisResult<T>>) -> Result<T, ()> {
        // Created before the check, so that an end between both is not missed.
        let ended = self.ended.notified();
        if self.end.borrow().is_some() {
            return Err(());
        }
        tokio::select! {
            // A reply that has arrived counts, even if the link has ended since.
            biased;
            answer = answer => answer.map_err(|error| self.end(if error.is_connection_dropped() {
                Problem::closed()
            } else {
                Problem::new(error.to_string())
            })),
            () = ended => Err(()),
        }
    }

    /// Sends a heartbeat and updates the epoch from its reply. `key` is a permitted key; it need not exist. Ends the
    /// link if the server replies with an error, for example while it loads its data.
    pub(super) async fn beat(&self, key: &[u8]) -> Result<Heartbeat, ()> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("GET").arg(key);
        let mut answers = self.ask_all(&self.with_epoch(pipeline)).await?;
        if let Value::ServerError(error) = answers.remove(0)
            && !is_elsewhere(&error)
        {
            self.end(Problem::refused("GET", &error));
            return Err(());
        }
        let replication = answers.first().cloned().and_then(text);
        let is_replica = replication.is_some_and(|info| field(&info, "role") == Some("slave"));
        let epoch = self.epoch_in(answers);
        self.epoch.set(epoch);
        Ok(Heartbeat { epoch, is_replica })
    }

    /// Appends the commands whose replies [`epoch_in`](Self::epoch_in) reads. Because an epoch that has ended does not
    /// return, the epoch that they report also applies to the commands before them.
    pub(super) fn with_epoch(&self, mut pipeline: Pipeline) -> Pipeline {
        pipeline.add_command(info("replication"));
        if self.cluster {
            pipeline.cmd("CLUSTER").arg("INFO");
        }
        pipeline
    }

    /// The epoch of the server when it sent these replies.
    pub(super) fn epoch_in(&self, answers: impl IntoIterator<Item = Value>) -> Epoch {
        let mut answers = answers.into_iter().map(text);
        let replication = answers.next().flatten().unwrap_or_default();
        let cluster = self.cluster.then(|| answers.next().flatten().unwrap_or_default());
        Epoch::of(self.run_id.as_deref().unwrap_or_default(), &replication, cluster.as_deref())
    }

    /// The epoch at the last heartbeat.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch.get()
    }

    /// Ends the link and fails all waiting callers. If it has ended already, the first reason is kept.
    pub(super) fn end(&self, problem: Problem) {
        self.end.borrow_mut().get_or_insert(problem);
        self.ended.notify_waiters();
    }

    /// Waits for the end of the link.
    pub(super) async fn ended(&self) {
        let ended = self.ended.notified();
        if self.end.borrow().is_none() {
            ended.await;
        }
    }

    /// Address of the server.
    pub(super) fn address(&self) -> &RedisAddress {
        &self.dialed.address
    }

    /// Records that the server does not have a requested key.
    pub(super) fn set_moved(&self) {
        self.has_moved.set(true);
    }

    /// Whether [`set_moved`](Self::set_moved) was called since the last call.
    pub(super) fn take_moved(&self) -> bool {
        self.has_moved.take()
    }

    /// The [`Problem`] that ended the link.
    pub(super) fn problem(&self) -> Problem {
        self.end.borrow().clone().unwrap_or_else(Problem::closed)
    }
}

/// Whether a cluster node refused a command only because another node has the key.
pub(super) fn is_elsewhere(error: &ServerError) -> bool {
    use ServerErrorKind::{Ask, Moved, TryAgain};
    matches!(error.kind(), Some(Ask | Moved | TryAgain))
}

fn info(section: &str) -> Cmd {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    command
}

/// The text of a reply, if it is one.
fn text(answer: Value) -> Option<String> {
    match answer {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}
