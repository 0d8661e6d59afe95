//! A TLS client for load generators and probes: the caller chooses every property of the handshake.
//!
//! The client for upstreams is `brisk_tls::connector`, which has safe defaults. This one offers exactly the parameters
//! in its settings, stores no sessions, reports every property of each handshake, and needs little CPU. It can skip
//! verification and reuse keys, which is acceptable for measurements only.

mod config;
mod error;
mod facts;
mod groups;
mod handshake;
mod layer;
mod notes;
mod observe;
mod quic;
mod records;
mod session;
mod settings;
mod staple;
mod stream;
mod trust;
mod verify;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use brisk_telemetry::Resumption;
use brisk_wire::registry::ProtocolVersion;
use rustls::ClientConfig;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

pub use error::ClientError;
pub use facts::{ClientFacts, EarlyOutcome};
pub use observe::Observer;
pub use quic::{EarlyData, QuicHandshake, VERSION as QUIC_VERSION};
pub use session::SavedSession;
pub use settings::{
    ClientIdentity, ClientSettings, KeyShares, SessionUse, StapleRequest, Tls12Sessions, Verification,
};
pub use stream::ClientStream;
pub use trust::{Authorities, Distrust, Judge};

use handshake::Handshake;
use layer::Layer;
use notes::Notes;
use records::Records;

/// Makes connections according to its [`ClientSettings`]. Cheap to clone. Clones share the cache of verified chains.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    config: Arc<ClientConfig>,
    /// Like `config`, with early data enabled.
    early_config: Arc<ClientConfig>,
    name: ServerName<'static>,
    settings: ClientSettings,
}

impl Client {
    /// Reads certificates and keys. Blocks on files, so call it at start, not in a worker. [`ClientError::Settings`] if
    /// `settings`, or a file that they name, cannot be used.
    pub fn new(settings: ClientSettings) -> Result<Self, ClientError> {
        let name = settings.server_name.as_str();
        // IPv6 addresses of URLs are in brackets, which `ServerName` refuses.
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        let name = ServerName::try_from(bare.to_owned())
            .map_err(|_| ClientError::Settings(format!("{bare} is neither a host name nor an IP address")))?;
        let config = config::config(&settings)?;
        // Two configurations, because early data is a property of the configuration and not of a
        // connection.
        let mut early_config = config.clone();
        early_config.enable_early_data = true;
        let (config, early_config) = (Arc::new(config), Arc::new(early_config));
        Ok(Self { inner: Arc::new(Inner { config, early_config, name, settings }) })
    }

    /// The [`ClientSettings`] of [`new`](Self::new).
    pub fn settings(&self) -> &ClientSettings {
        &self.inner.settings
    }

    /// Computes a `ClientHello` and drops it, so that one-time initialisation of the process is not part of the first
    /// connection.
    pub fn rehearse(&self) {
        if let Ok(mut handshake) = self.begin(None, None, None) {
            handshake.prepare();
        }
    }

    /// Performs the handshake over `tcp`, and offers `session`. The [facts](ClientStream::facts) contain the result.
    ///
    /// `early` is sent with the first flight if the session allows early data of that length, otherwise not at all
    /// ([`EarlyOutcome`]). Rejected early data is not sent again.
    ///
    /// The future completes when the last flight of the client has been sent. It has no timeout; dropping it closes the
    /// connection.
    pub async fn connect(
        &self,
        tcp: TcpStream,
        session: Option<SavedSession>,
        early: Option<&[u8]>,
    ) -> Result<ClientStream, ClientError> {
        self.connect_observed(tcp, session, early, None).await
    }

    /// Like [`connect`](Self::connect), with an [`Observer`] of the connection from the first byte to the last.
    pub async fn connect_observed(
        &self,
        mut tcp: TcpStream,
        session: Option<SavedSession>,
        early: Option<&[u8]>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<ClientStream, ClientError> {
        let started = Instant::now();
        let name = &self.inner.settings.server_name;
        let mut handshake = self.begin(session, early, observer.clone())?;
        handshake.run(&mut tcp, name).await?;
        let mut facts = handshake.facts(started.elapsed(), name);
        if early.is_some() && facts.early_data == EarlyOutcome::None {
            facts.early_data = EarlyOutcome::Unsent;
        }
        let Handshake { tls, mut notes, incoming, plaintext, peer_closed, .. } = handshake;
        let many =
            self.inner.settings.session_use == SessionUse::Many && facts.version == ProtocolVersion::TLS1_3;
        let layer = if many && facts.resumption == Resumption::Full {
            let records = Records::new(*tls).map_err(|error| ClientError::Protocol(error.to_string()))?;
            Layer::Records(Box::new(records))
        } else {
            // rustls could resume these sessions only once.
            notes.refuses_sessions = many;
            Layer::Tls { tls, notes, closed: peer_closed }
        };
        Ok(ClientStream::new(tcp, layer, facts, incoming, plaintext, observer))
    }

    fn begin<'a>(
        &self,
        session: Option<SavedSession>,
        early: Option<&'a [u8]>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Handshake<'a>, ClientError> {
        let inner = &self.inner;
        let fits = |early: &&[u8]| {
            session.as_ref().is_some_and(|session| early.len() <= session.early_data_limit() as usize)
        };
        let early = early.filter(fits);
        // rustls announces early data whenever its configuration enables it, even if there is none to send.
        let config = if early.is_some() { &inner.early_config } else { &inner.config };
        let offered = session.as_ref().map(SavedSession::version);
        let value = session.and_then(SavedSession::into_value);
        // Only used for the observer.
        let server_name = if observer.is_some() { inner.settings.server_name.clone() } else { String::new() };
        let mut notes = Notes { offered: value, observer, server_name, ..Notes::default() };
        let tls = notes.lend(|| UnbufferedClientConnection::new(Arc::clone(config), inner.name.clone()));
        let tls = tls.map_err(|error| ClientError::Settings(error.to_string()))?;
        // Not taken: the session has a version that is not offered.
        notes.offered = None;
        Ok(Handshake::new(tls, notes, offered, early, inner.settings.staple_request))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
