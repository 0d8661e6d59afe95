//! [`Client`], connections whose sessions are kept in a [`SessionStore`].

use std::fmt;
use std::io::{Read, Write};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{
    self, Ssl, SslConnector, SslConnectorBuilder, SslSession, SslSessionCacheMode, SslSessionRef, SslStream,
    SslVersion,
};

use crate::{EarlyData, SessionStore, early};

/// A connection could not be opened: an error of the handshake or of the connection under it.
pub type Error = ssl::Error;

/// TLS client whose sessions survive a restart.
pub struct Client {
    connector: SslConnector,
    store: SessionStore,
    early_data_age: Duration,
}

/// A connection after its handshake.
pub struct Connection<S> {
    /// Sends and receives application data.
    pub stream: SslStream<S>,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
    /// Outcome of early data.
    pub early_data: EarlyData,
}

impl Client {
    /// Creates a client from `builder`, with its authorities, versions and application protocols.
    ///
    /// The certificate of a server is not verified again when a session resumes: clients that trust different
    /// authorities use different folders or networks, and [`SessionStore::clear`] follows a change.
    pub fn new(mut builder: SslConnectorBuilder, store: SessionStore) -> Result<Self, ErrorStack> {
        builder.set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
        let stored = store.clone();
        builder.set_new_session_callback(move |ssl, session| {
            if let Some(server) = server_index().and_then(|index| ssl.ex_data(index)) {
                keep(&stored, server, &session);
            }
        });
        Ok(Self { connector: builder.build(), store, early_data_age: Duration::from_secs(24 * 60 * 60) })
    }

    /// Sets the age of a session from which early data is not sent with it [default: one day].
    #[must_use]
    pub fn early_data_age(mut self, age: Duration) -> Self {
        self.early_data_age = age;
        self
    }

    /// Connects to `host` over `stream`, a connection to `port`, and resumes an earlier session if there is one.
    pub fn connect<S: Read + Write>(&self, host: &str, port: u16, stream: S) -> Result<Connection<S>, Error> {
        self.handshake(host, port, stream, None)
    }

    /// Connects like [`connect`](Self::connect) and sends `request`, as early data if the session permits that.
    ///
    /// An attacker can replay early data: `request` must be safe to process twice, such as a `GET` without effects. After
    /// a refusal `request` is sent again on the same connection. Read the response from [`Connection::stream`]; status
    /// 425 (RFC 8470) demands the request again, over [`connect`](Self::connect).
    pub fn connect_with_early_data<S: Read + Write>(
        &self,
        host: &str,
        port: u16,
        stream: S,
        request: &[u8],
    ) -> Result<Connection<S>, Error> {
        self.handshake(host, port, stream, Some(request))
    }

    fn handshake<S: Read + Write>(
        &self,
        host: &str,
        port: u16,
        stream: S,
        request: Option<&[u8]>,
    ) -> Result<Connection<S>, Error> {
        let server = format!("{host}:{port}");
        let mut ssl = self.connector.configure()?.into_ssl(host)?;
        if let Some(index) = server_index() {
            ssl.set_ex_data(index, server.clone());
        }
        // Bytes that OpenSSL of another version does not understand are no session.
        let session = self.store.take(&server).and_then(|der| SslSession::from_der(&der).ok());
        if let Some(session) = &session {
            // SAFETY: `session` was created for a context with the same method, and this one has no sessions cached.
            unsafe { ssl.set_session(session)? };
        }
        let early =
            request.filter(|request| session.as_ref().is_some_and(|session| self.permits(session, request)));
        let mut stream = SslStream::new(ssl, stream)?;
        if let Some(early) = early {
            write_all(early, |rest| stream.write_early_data(rest))?;
        }
        stream.connect()?;
        let early_data = match early {
            None => EarlyData::NotSent,
            Some(_) if early::is_accepted(stream.ssl()) => EarlyData::Accepted,
            Some(_) => EarlyData::Rejected,
        };
        if let Some(request) = request.filter(|_| early_data != EarlyData::Accepted) {
            write_all(request, |rest| stream.ssl_write(rest))?;
        }
        let is_resumed = stream.ssl().session_reused();
        // A TLS 1.2 session may be used again, and the server need not send another ticket.
        if let Some(session) =
            session.filter(|session| is_resumed && session.protocol_version() != SslVersion::TLS1_3)
        {
            keep(&self.store, &server, &session);
        }
        Ok(Connection { stream, is_resumed, early_data })
    }

    /// Whether `request` may be early data with this session.
    fn permits(&self, session: &SslSessionRef, request: &[u8]) -> bool {
        let age = SystemTime::now().duration_since(stored_at(session));
        !request.is_empty()
            && request.len() <= session.max_early_data() as usize
            && age.is_ok_and(|age| age < self.early_data_age)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("store", &self.store).finish_non_exhaustive()
    }
}

fn write_all(mut bytes: &[u8], mut write: impl FnMut(&[u8]) -> Result<usize, Error>) -> Result<(), Error> {
    while !bytes.is_empty() {
        bytes = &bytes[write(bytes)?..];
    }
    Ok(())
}

/// Place of the server's name in a connection, for the callback that gets new sessions.
fn server_index() -> Option<Index<Ssl, String>> {
    static INDEX: OnceLock<Option<Index<Ssl, String>>> = OnceLock::new();
    *INDEX.get_or_init(|| Ssl::new_ex_index().ok())
}

/// Stores `session`. A failure, such as a full disk, costs a later full handshake only.
fn keep(store: &SessionStore, server: &str, session: &SslSessionRef) {
    let life = Duration::from_secs(u64::try_from(session.timeout()).unwrap_or(0));
    if let Ok(der) = session.to_der() {
        let _ = store.put(server, &der, stored_at(session) + life);
    }
}

fn stored_at(session: &SslSessionRef) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(session.time()).unwrap_or(0))
}
