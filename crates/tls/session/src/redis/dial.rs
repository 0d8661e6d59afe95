//! Connections to Redis, whose replies are [`Bounded`].

use std::io;

use brisk_net::dial::connect;
use brisk_net::{DialLimits, Target};
use redis::{
    AsyncConnectionConfig, ErrorKind, RedisConnectionInfo, RedisError, RedisResult,
    aio::MultiplexedConnection,
};
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
    time::timeout,
};

use super::{
    bounded::Bounded,
    settings::{RedisAddress, RedisSettings},
};

/// A connection. Dropping it closes the socket, also while a server owes replies.
pub(super) struct Dialed {
    pub(super) address: RedisAddress,
    pub(super) connection: MultiplexedConnection,
    _driver: JoinSet<()>,
}

/// Connects to `address` and logs in, within the connect timeout.
pub(super) async fn dial(
    address: &RedisAddress,
    login: &RedisConnectionInfo,
    settings: &RedisSettings,
    config: AsyncConnectionConfig,
) -> RedisResult<Dialed> {
    let connected = async {
        let limits =
            DialLimits { connect: settings.connect_timeout, unacknowledged: settings.connect_timeout };
        let tcp = connect(&Target::new(&address.host, address.port), limits).await?;
        let Some(tls) = &settings.tls else { return over(address, tcp, login, config).await };
        let connector = tls.connector().map_err(invalid)?;
        let name = ServerName::try_from(address.host.clone()).map_err(invalid)?;
        over(address, connector.connect(name, tcp).await?, login, config).await
    };
    let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
    // Includes the TLS handshake and the login, in which a server may be silent too.
    timeout(settings.connect_timeout, connected).await.unwrap_or_else(late)
}

async fn over<Io>(
    address: &RedisAddress,
    io: Io,
    login: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> RedisResult<Dialed>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let opened = MultiplexedConnection::new_with_config(login, Bounded::new(io), config).await;
    let (connection, driver) = opened?;
    // A `JoinSet`, because its drop aborts the driver, which owns the socket.
    let mut task = JoinSet::new();
    task.spawn(driver);
    Ok(Dialed { address: address.clone(), connection, _driver: task })
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` calls it")]
fn invalid(error: impl ToString) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, "cannot use TLS", error.to_string()))
}
