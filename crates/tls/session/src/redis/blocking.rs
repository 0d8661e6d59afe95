//! A synchronous connection to Redis for data other than sessions.

use std::{fmt, sync::Mutex, sync::PoisonError};

use redis::{Cmd, Connection, ConnectionLike, Pipeline, RedisError as LibraryError, RedisResult, Value};

use super::{RedisAddress, RedisSettings, RedisTopology};

/// Attempts of a command: the first may find a closed connection or a former primary.
const ATTEMPTS: u32 = 3;

/// A connection to the server that has a key, established when needed and again after it was lost. Calls block, each
/// attempt for at most the connect timeout of the settings.
///
/// A command may be executed twice if its reply is lost with the connection. All keys of one user must have the same
/// hash tag (the part in braces), so that a cluster keeps them on one node.
pub struct BlockingRedis {
    settings: RedisSettings,
    connection: Mutex<Option<Connection>>,
}

impl BlockingRedis {
    /// Creates the object without connecting.
    pub fn new(settings: RedisSettings) -> Self {
        Self { settings, connection: Mutex::new(None) }
    }

    /// The settings of the connection.
    pub fn settings(&self) -> &RedisSettings {
        &self.settings
    }

    /// Executes one command and returns its reply.
    pub fn execute(&self, command: &Cmd) -> Result<Value, LibraryError> {
        self.with(|connection| connection.req_command(command))
    }

    /// Executes a pipeline; atomically if it is a transaction.
    pub fn execute_all(&self, pipeline: &Pipeline) -> Result<(), LibraryError> {
        self.with(|connection| pipeline.query::<()>(connection))
    }

    fn with<T>(&self, mut act: impl FnMut(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut connection = match slot.take() {
                Some(connection) => connection,
                None => self.connect(None)?,
            };
            let error = match act(&mut connection) {
                Ok(value) => {
                    *slot = Some(connection);
                    return Ok(value);
                }
                Err(error) => error,
            };
            let elsewhere = error.redirect_node().map(|(address, _)| address.to_owned());
            let is_lost = error.is_io_error() || error.is_connection_dropped() || is_replica(&error);
            match elsewhere {
                _ if attempts == ATTEMPTS => return Err(error),
                Some(address) => *slot = Some(self.connect(Some(&address))?),
                None if is_lost => {}
                None => {
                    *slot = Some(connection);
                    return Err(error);
                }
            }
        }
    }

    /// Connects to the primary, or to the cluster node at `address`.
    fn connect(&self, address: Option<&str>) -> RedisResult<Connection> {
        if let Some(address) = address.and_then(parse) {
            return self.open(&address);
        }
        let mut last = None;
        for server in &self.settings.servers {
            let opened = match &self.settings.topology {
                RedisTopology::Sentinel { service } => {
                    self.primary(server, service).and_then(|address| self.open(&address))
                }
                RedisTopology::Single | RedisTopology::Cluster => self.open(server),
            };
            match opened {
                Ok(connection) => return Ok(connection),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| LibraryError::from((redis::ErrorKind::InvalidClientConfig, "no server"))))
    }

    fn open(&self, address: &RedisAddress) -> RedisResult<Connection> {
        self.limited(
            self.settings.client(address)?.get_connection_with_timeout(self.settings.connect_timeout)?,
        )
    }

    fn limited(&self, connection: Connection) -> RedisResult<Connection> {
        connection.set_read_timeout(Some(self.settings.connect_timeout))?;
        connection.set_write_timeout(Some(self.settings.connect_timeout))?;
        Ok(connection)
    }

    /// The primary's address according to a Sentinel.
    fn primary(&self, sentinel: &RedisAddress, service: &str) -> RedisResult<RedisAddress> {
        let client = self.settings.sentinel(sentinel)?;
        let mut connection =
            self.limited(client.get_connection_with_timeout(self.settings.connect_timeout)?)?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(service);
        let (host, port): (String, u16) = command.query(&mut connection)?;
        Ok(RedisAddress { host, port })
    }
}

impl fmt::Debug for BlockingRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingRedis").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn parse(text: &str) -> Option<RedisAddress> {
    let (host, port) = text.rsplit_once(':')?;
    Some(RedisAddress { host: host.to_owned(), port: port.parse().ok()? })
}

/// The server was the primary until a moment ago.
fn is_replica(error: &LibraryError) -> bool {
    error.code() == Some("READONLY")
}
