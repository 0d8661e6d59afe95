//! [`RedisSettings`], the settings of the connections to Redis, and limits of its use.

use std::{
    fmt, io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use brisk_keys::pem_certificates;
use brisk_tls_base::service_config;
use redis::RedisConnectionInfo;
use rustls_pki_types::CertificateDer;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use super::error::RedisError;

/// Settings of the Redis or Valkey of a fleet. Redis 6.2 or later, or any Valkey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// The server, the Sentinels, or some nodes of the cluster, which report the other ones.
    pub servers: Vec<RedisAddress>,
    /// The role of `servers`.
    pub topology: RedisTopology,
    /// TLS for connections to all servers, including Sentinels. Default: `None`.
    pub tls: Option<RedisTls>,
    /// Credentials for the servers with data. Default: `None`; Redis then uses its user `default`.
    pub credentials: Option<RedisCredentials>,
    /// Credentials for Sentinels, which have their own users. Default: `None`.
    pub sentinel_credentials: Option<RedisCredentials>,
    /// Prefix of every key in Redis. Default: `brisk:`.
    pub prefix: String,
    /// Maximum time that a handshake waits for a reply of Redis. Default: 5 ms.
    pub deadline: Duration,
    /// Maximum number of unsent commands, and of unanswered ones. Further writes are dropped, further look-ups fail;
    /// both are counted. Default: 10,000.
    pub queue: usize,
    /// Timeout for connecting, and for replies on a connection before it is closed. Default: 2 s.
    pub connect_timeout: Duration,
}

impl RedisSettings {
    /// Settings for these servers, with defaults for everything else.
    pub fn new(servers: Vec<RedisAddress>, topology: RedisTopology) -> Self {
        Self {
            servers,
            topology,
            tls: None,
            credentials: None,
            sentinel_credentials: None,
            prefix: "brisk:".to_owned(),
            deadline: Duration::from_millis(5),
            queue: 10_000,
            connect_timeout: Duration::from_secs(2),
        }
    }

    pub(super) fn check(&self) -> Result<(), RedisError> {
        match (&self.topology, self.servers.len()) {
            (_, 0) => Err(RedisError::NoServer),
            (RedisTopology::Single, 2..) => Err(RedisError::SeveralServers),
            _ if self.queue == 0 => Err(RedisError::NoQueue),
            _ => Ok(()),
        }
    }

    /// The login at servers with data.
    pub(super) fn login(&self) -> RedisConnectionInfo {
        login(self.credentials.as_ref())
    }

    /// The login at Sentinels.
    pub(super) fn sentinel_login(&self) -> RedisConnectionInfo {
        login(self.sentinel_credentials.as_ref())
    }
}

fn login(credentials: Option<&RedisCredentials>) -> RedisConnectionInfo {
    // Setting the library name for `CLIENT LIST` would need one more permission in the ACL.
    let login = RedisConnectionInfo::default().set_skip_set_lib_name();
    let Some(RedisCredentials { username, password }) = credentials else { return login };
    let login = login.set_password(password.as_str());
    match username {
        Some(username) => login.set_username(username),
        None => login,
    }
}

/// One server of the fleet's Redis.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RedisAddress {
    /// A name, or an IPv4 or IPv6 address without brackets.
    pub host: String,
    /// Port: usually 6379, or 26379 for a Sentinel.
    pub port: u16,
}

impl RedisAddress {
    /// The address in a redirection by the server `asked`, such as `10.0.0.1:6380`.
    pub(super) fn of_redirection(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        // A cluster that does not know its endpoints (`cluster-preferred-endpoint-type`) reports none: the host is the same.
        let host = if host.is_empty() { asked.host.as_str() } else { host };
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The role of the servers in [`RedisSettings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisTopology {
    /// One server.
    Single,
    /// Sentinels that name the current primary of `service`.
    Sentinel {
        /// Name under which the Sentinels monitor it.
        service: String,
    },
    /// Nodes of a Redis Cluster.
    Cluster,
}

/// A user of Redis (ACL).
#[derive(Clone, PartialEq, Eq)]
pub struct RedisCredentials {
    /// User name; `None` for the user `default`.
    pub username: Option<String>,
    /// Password.
    pub password: Zeroizing<String>,
}

impl fmt::Debug for RedisCredentials {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCredentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Trusted authorities for TLS connections to Redis. The certificate of a server must be valid for its host name.
#[derive(Clone, Default)]
pub struct RedisTls {
    /// `None` for the authorities of the system.
    roots: Option<Vec<CertificateDer<'static>>>,
    /// Shared by clones, because the authorities of the system are read from files.
    connector: Arc<OnceLock<TlsConnector>>,
}

impl RedisTls {
    /// Trusts the system's authorities, which are read at the first connection only.
    pub fn system() -> Self {
        Self::default()
    }

    /// Trusts only the authorities in `pem`, with the labels that [`pem_certificates`] reads. [`RedisError::Authorities`] if
    /// there is none, or one is malformed.
    pub fn trusting(pem: &[u8]) -> Result<Self, RedisError> {
        let roots = pem_certificates(pem).map_err(RedisError::Authorities)?;
        if roots.is_empty() {
            return Err(RedisError::Authorities("no certificate in it".to_owned()));
        }
        let tls = Self { roots: Some(roots), ..Self::default() };
        // Tried now: an authority that cannot be parsed is an error of the configuration, not of the first
        // connection.
        tls.connector().map_err(|error| RedisError::Authorities(error.to_string()))?;
        Ok(tls)
    }

    /// The [`TlsConnector`], created by the first call. That call blocks on files if `ca` is not set; all connections of a
    /// cluster have the thread `redis`, so later calls must not.
    pub(super) fn connector(&self) -> io::Result<TlsConnector> {
        if let Some(connector) = self.connector.get() {
            return Ok(connector.clone());
        }
        let connector = TlsConnector::from(service_config(self.roots.as_deref())?);
        Ok(self.connector.get_or_init(|| connector).clone())
    }
}

impl PartialEq for RedisTls {
    fn eq(&self, other: &Self) -> bool {
        self.roots == other.roots
    }
}

impl Eq for RedisTls {}

impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTls").field("roots", &self.roots).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process::Command};

    use super::*;

    fn address(host: &str) -> RedisAddress {
        RedisAddress { host: host.to_owned(), port: 6379 }
    }

    #[test]
    fn addresses_are_written_as_people_write_them() {
        assert_eq!(address("redis.example").to_string(), "redis.example:6379");
        assert_eq!(address("::1").to_string(), "[::1]:6379");
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let settings = |count| RedisSettings::new(vec![address("a"); count], RedisTopology::Single);
        assert!(settings(1).check().is_ok());
        assert!(matches!(settings(0).check(), Err(RedisError::NoServer)));
        assert!(matches!(settings(2).check(), Err(RedisError::SeveralServers)));
        assert!(matches!(RedisSettings { queue: 0, ..settings(1) }.check(), Err(RedisError::NoQueue)));
        assert!(RedisSettings { topology: RedisTopology::Cluster, ..settings(3) }.check().is_ok());
    }

    #[test]
    fn authorities_are_certificates() {
        assert!(RedisTls::trusting(b"").is_err());
        assert!(RedisTls::trusting(b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n").is_err());
        assert!(
            RedisTls::trusting(b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n").is_err()
        );
        let ca = brisk_testkit::ca::TestCa::new();
        assert!(RedisTls::trusting(ca.root_pem().as_bytes()).is_ok());
    }

    /// A second reader skipped the label `X509 CERTIFICATE`, so that one of two authorities was not trusted.
    #[test]
    fn authorities_with_the_older_label_are_trusted() {
        let roots = [(), ()].map(|()| brisk_testkit::ca::TestCa::new().root_pem());
        let older = roots[1].replace("CERTIFICATE-----", "X509 CERTIFICATE-----");
        let tls = RedisTls::trusting(format!("{}{older}", roots[0]).as_bytes()).expect("two authorities");
        assert_eq!(tls.roots.as_ref().map(Vec::len), Some(2));
        let foreign = older.replace("X509 CERTIFICATE", "TRUSTED CERTIFICATE");
        assert!(RedisTls::trusting(format!("{}{foreign}", roots[0]).as_bytes()).is_err());
    }

    /// Each connection read them, so that sessions on other nodes of a cluster missed their deadline.
    #[test]
    fn authorities_of_the_system_are_read_once() {
        const NAME: &str = "redis::settings::tests::authorities_of_the_system_are_read_once";
        const FILE: &str = "BRISK_TEST_AUTHORITIES";
        if let Some(file) = env::var_os(FILE) {
            let tls = RedisTls::system();
            let first = tls.connector();
            fs::remove_file(file).expect("a file");
            assert!(first.is_ok() && tls.clone().connector().is_ok());
            assert!(RedisTls::system().connector().is_err());
            return;
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), brisk_testkit::ca::TestCa::new().root_pem()).expect("a file");
        // The path of the authorities is in the environment, which is process-wide.
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args([NAME, "--exact"]).env(FILE, file.path());
        command.env("SSL_CERT_FILE", file.path()).env_remove("SSL_CERT_DIR");
        assert!(command.status().expect("a process").success());
        // A name without a test is a success too.
        assert!(!file.path().exists(), "{NAME} has not run");
    }

    #[test]
    fn a_redirection_without_a_host_names_a_port_of_the_same_host() {
        let address = |host: &str, port| RedisAddress { host: host.to_owned(), port };
        let parse = |text| RedisAddress::of_redirection(text, &address("redis.example", 6379));
        assert_eq!(parse(":6380"), Some(address("redis.example", 6380)));
        assert_eq!(parse("10.0.0.1:6380"), Some(address("10.0.0.1", 6380)));
        assert_eq!(parse("::1:6380"), Some(address("::1", 6380)));
        assert_eq!(parse("10.0.0.1"), None);
    }

    #[test]
    fn debug_shows_no_password() {
        let mut settings = RedisSettings::new(vec![address("a")], RedisTopology::Single);
        settings.credentials = Some(RedisCredentials {
            username: Some("brisk".to_owned()),
            password: Zeroizing::new("hush".to_owned()),
        });
        let shown = format!("{settings:?}");
        assert!(shown.contains("brisk") && !shown.contains("hush"), "{shown}");
    }
}
