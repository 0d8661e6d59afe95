//! Redis for what is no session: questions of a thread that may wait, one after another, on a connection of its own.

use std::{fmt, sync::Mutex, sync::PoisonError};

use redis::{Cmd, Connection, ConnectionLike, Pipeline, RedisError as LibraryError, RedisResult, Value};

use super::{RedisAddress, RedisSettings, RedisTopology};

/// Attempts of a question: the first may find a connection that has ended, or another primary than before.
const ATTEMPTS: u32 = 3;

/// A connection to the server that has a key, made when it is needed and again when it has ended. Callers block, for the
/// connect timeout of the settings at most with each attempt.
///
/// What is asked may be asked twice, where the answer was lost with the connection. All keys of one user have the same
/// part in braces, so that a cluster keeps them together.
pub struct RedisErrands {
    settings: RedisSettings,
    connection: Mutex<Option<Connection>>,
}

impl RedisErrands {
    /// Not connected yet.
    pub fn new(settings: RedisSettings) -> Self {
        Self { settings, connection: Mutex::new(None) }
    }

    /// The settings.
    pub fn settings(&self) -> &RedisSettings {
        &self.settings
    }

    /// Asks one question.
    pub fn ask(&self, command: &Cmd) -> Result<Value, LibraryError> {
        self.with(|connection| connection.req_command(command))
    }

    /// Has all commands of a pipeline done, in one transaction where it is one.
    pub fn ask_all(&self, pipeline: &Pipeline) -> Result<(), LibraryError> {
        self.with(|connection| pipeline.query::<()>(connection))
    }

    fn with<T>(&self, mut act: impl FnMut(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let mut place = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut connection = match place.take() {
                Some(connection) => connection,
                None => self.connect(None)?,
            };
            let error = match act(&mut connection) {
                Ok(value) => {
                    *place = Some(connection);
                    return Ok(value);
                }
                Err(error) => error,
            };
            let elsewhere = error.redirect_node().map(|(address, _)| address.to_owned());
            let is_lost = error.is_io_error() || error.is_connection_dropped() || is_replica(&error);
            match elsewhere {
                _ if attempts == ATTEMPTS => return Err(error),
                Some(address) => *place = Some(self.connect(Some(&address))?),
                None if is_lost => {}
                None => {
                    *place = Some(connection);
                    return Err(error);
                }
            }
        }
    }

    /// Connects to the primary, or to the node of a cluster at `address`.
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

    /// The primary that a Sentinel knows.
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

impl fmt::Debug for RedisErrands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisErrands").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn parse(text: &str) -> Option<RedisAddress> {
    let (host, port) = text.rsplit_once(':')?;
    Some(RedisAddress { host: host.to_owned(), port: port.parse().ok()? })
}

/// A server that was the primary until a moment ago.
fn is_replica(error: &LibraryError) -> bool {
    error.code() == Some("READONLY")
}
