//! [`BlockingRedis`], a synchronous connection to Redis for data other than sessions.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;
use std::{fmt, io, sync::Mutex, sync::PoisonError};

use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisConnectionInfo, RedisError as LibraryError,
    RedisResult, ServerErrorKind, Value, aio::MultiplexedConnection,
};
use tokio::runtime::Builder;
use tokio::time::sleep;

use super::dial::{Dialed, dial};
use super::{RedisAddress, RedisSettings, RedisTopology};

/// Attempts of a command: the first may find a closed connection or a former primary.
const ATTEMPTS: u32 = 3;

/// Pause before a command is repeated whose keys are being moved to another node of a cluster, one after the other.
const AGAIN: Duration = Duration::from_millis(100);

/// A connection to the server that has a key, established when needed and again after it was lost. Calls block: each
/// reply is awaited for at most the connect timeout of the settings, and so is each server of the settings that is tried
/// in turn for a new connection, with Sentinels also the primary.
///
/// A command may be executed twice if its reply is lost with the connection. All keys of one user must have the same
/// hash tag (the part in braces), so that a cluster keeps them on one node.
pub struct BlockingRedis {
    settings: RedisSettings,
    /// Jobs for the thread with the connection, which starts with the first one and ends with this value. The library's own
    /// blocking connection has no place for a limit of replies, and a caller may be in a context without blocking runtimes.
    jobs: Mutex<Option<Sender<Job>>>,
}

/// Work for the thread with the connection, and the receiver of its reply.
struct Job {
    work: Work,
    reply: SyncSender<RedisResult<Value>>,
}

enum Work {
    Command(Cmd),
    Pipeline(Pipeline),
}

impl Work {
    async fn run(&self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        match self {
            Self::Command(command) => command.query_async(connection).await,
            Self::Pipeline(pipeline) => pipeline.query_async::<()>(connection).await.map(|()| Value::Nil),
        }
    }
}

impl BlockingRedis {
    /// Keeps `settings`; the first command connects.
    pub fn new(settings: RedisSettings) -> Self {
        Self { settings, jobs: Mutex::new(None) }
    }

    /// The [`RedisSettings`] of [`Self::new`].
    pub fn settings(&self) -> &RedisSettings {
        &self.settings
    }

    /// Executes one command and returns its reply, after at most three attempts.
    pub fn execute(&self, command: &Cmd) -> Result<Value, LibraryError> {
        self.run(Work::Command(command.clone()))
    }

    /// Executes a pipeline; atomically if it is a transaction.
    pub fn execute_all(&self, pipeline: &Pipeline) -> Result<(), LibraryError> {
        self.run(Work::Pipeline(pipeline.clone())).map(|_| ())
    }

    fn run(&self, work: Work) -> RedisResult<Value> {
        let (reply, replied) = sync_channel(1);
        let sent = self.jobs()?.send(Job { work, reply }).is_ok();
        let result = if sent { replied.recv().ok() } else { None };
        result.unwrap_or_else(|| {
            // The thread has panicked. The next command starts another one.
            *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = None;
            Err(io::Error::from(io::ErrorKind::BrokenPipe).into())
        })
    }

    /// The queue of the thread, which is started if `jobs` is `None`.
    fn jobs(&self) -> io::Result<Sender<Job>> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(jobs) = &*jobs {
            return Ok(jobs.clone());
        }
        // Built here, so that a failure is an error of the command instead of a panic of the thread.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // Unbounded, but each caller waits for its reply: there are no more jobs than callers.
        let (sender, receiver): (_, Receiver<Job>) = channel();
        let settings = self.settings.clone();
        let serve = move || {
            let mut dialed = None;
            while let Ok(Job { work, reply }) = receiver.recv() {
                let result = runtime.block_on(execute(&settings, &mut dialed, &work));
                // Without a receiver, the caller has panicked.
                let _ = reply.send(result);
            }
        };
        std::thread::Builder::new().name("redis-files".to_owned()).spawn(serve)?;
        Ok(jobs.insert(sender).clone())
    }
}

async fn execute(settings: &RedisSettings, slot: &mut Option<Dialed>, work: &Work) -> RedisResult<Value> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        // Taken out, so that a connection with an error is closed unless it is put back.
        let mut dialed = match slot.take() {
            Some(dialed) => dialed,
            None => connect(settings, None).await?,
        };
        let error = match work.run(&mut dialed.connection).await {
            Ok(value) => {
                *slot = Some(dialed);
                return Ok(value);
            }
            Err(error) => error,
        };
        let named = error.redirect_node();
        let elsewhere = named.map(|(address, _)| RedisAddress::of_redirection(address, &dialed.address));
        let is_lost = error.is_io_error() || error.is_connection_dropped() || is_replica(&error);
        match elsewhere {
            // The slot is being moved: the other node executes this command only, and later ones begin here again.
            Some(Some(address)) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                *slot = Some(dialed);
                return importing(settings, &address, work).await;
            }
            _ if attempts == ATTEMPTS => return Err(error),
            Some(address) => *slot = Some(connect(settings, address).await?),
            None if error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain) => {
                *slot = Some(dialed);
                sleep(AGAIN).await;
            }
            None if is_lost => {}
            // An error reply, for example because of a missing permission: the connection works.
            None => {
                *slot = Some(dialed);
                return Err(error);
            }
        }
    }
}

/// Executes `work` on the node at `address`, which receives the slot of its keys.
async fn importing(settings: &RedisSettings, address: &RedisAddress, work: &Work) -> RedisResult<Value> {
    let mut dialed = open(settings, address, &settings.login()).await?;
    // For the next command, or for all of a transaction.
    redis::cmd("ASKING").query_async::<()>(&mut dialed.connection).await?;
    work.run(&mut dialed.connection).await
}

/// Connects to the primary, or to the cluster node at `address`.
async fn connect(settings: &RedisSettings, address: Option<RedisAddress>) -> RedisResult<Dialed> {
    if let Some(address) = address {
        return open(settings, &address, &settings.login()).await;
    }
    let mut last = None;
    for server in &settings.servers {
        let opened = match &settings.topology {
            RedisTopology::Sentinel { service } => match primary(settings, server, service).await {
                Ok(address) => open(settings, &address, &settings.login()).await,
                Err(error) => Err(error),
            },
            RedisTopology::Single | RedisTopology::Cluster => open(settings, server, &settings.login()).await,
        };
        match opened {
            Ok(dialed) => return Ok(dialed),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| LibraryError::from((ErrorKind::InvalidClientConfig, "no server"))))
}

async fn open(
    settings: &RedisSettings,
    address: &RedisAddress,
    login: &RedisConnectionInfo,
) -> RedisResult<Dialed> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(settings.connect_timeout));
    dial(address, login, settings, config).await
}

/// The primary's address according to a Sentinel.
async fn primary(
    settings: &RedisSettings,
    sentinel: &RedisAddress,
    service: &str,
) -> RedisResult<RedisAddress> {
    let mut dialed = open(settings, sentinel, &settings.sentinel_login()).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(service);
    let (host, port): (String, u16) = command.query_async(&mut dialed.connection).await?;
    Ok(RedisAddress { host, port })
}

impl fmt::Debug for BlockingRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingRedis").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The server was the primary until a moment ago.
fn is_replica(error: &LibraryError) -> bool {
    error.code() == Some("READONLY")
}
