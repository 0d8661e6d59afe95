//! Sequences of connections: full, resumed, with early data.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use brisk_telemetry::Resumption;
use brisk_tls_client::{Client, EarlyOutcome, SavedSession};

use crate::Settings;
use crate::connection::{ConnectionStart, Connector, OpenConnection, Protocol};
use crate::error::{ProbeError, Step};
use crate::resolve;
use crate::trace::Trace;

/// Wait for a session after a response; servers send sessions before the response or directly after it.
pub(crate) const SESSION_WAIT: Duration = Duration::from_millis(300);

/// Kind of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Full handshake.
    #[default]
    Full,
    /// Resumption of a session from an earlier connection, which is not part of the report.
    Resume,
    /// Resumption with the request in the first flight (0-RTT).
    Early,
}

impl Mode {
    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Resume => "resumed",
            Self::Early => "0-RTT",
        }
    }
}

/// A session and the protocol of the connection that issued it.
#[derive(Debug)]
pub(crate) struct ResumableSession {
    session: SavedSession,
    protocol: Protocol,
}

impl ResumableSession {
    /// Whether the session allows early data.
    pub(crate) fn takes_early_data(&self) -> bool {
        self.session.early_data_limit() > 0
    }
}

/// An attempted connection.
#[derive(Debug)]
pub(crate) struct ProbedConnection {
    /// Begin of name resolution.
    pub(crate) began: Instant,
    pub(crate) resolved: Duration,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) trace: Trace,
    pub(crate) ended: Result<Option<OpenConnection>, ProbeError>,
}

impl ProbedConnection {
    /// Closes the connection, or returns the reason for its failure.
    pub(crate) async fn close(&mut self) -> Option<ProbeError> {
        match std::mem::replace(&mut self.ended, Ok(None)) {
            Ok(kept) => {
                if let Some(kept) = kept {
                    kept.close().await;
                }
                None
            }
            Err(error) => Some(error),
        }
    }

    /// Reason why the connection is not of the intended [`Mode`]; `None` if it is.
    pub(crate) fn missed(&self, mode: Mode) -> Option<String> {
        let facts = self.trace.facts.as_ref()?;
        match mode {
            Mode::Resume if facts.resumption == Resumption::Full => {
                Some("the server did not resume the session".to_owned())
            }
            Mode::Early if facts.early_data != EarlyOutcome::Accepted => {
                Some(format!("early data was {}", facts.early_data.name()))
            }
            _ => None,
        }
    }

    /// Newest session of the connection. Waits [`SESSION_WAIT`] for one if there is none yet.
    pub(crate) async fn session(&mut self) -> Option<ResumableSession> {
        let facts = self.trace.facts.as_ref()?;
        let protocol = Protocol::of(facts.protocol.as_deref());
        if self.trace.sessions.is_empty()
            && let Ok(Some(kept)) = &mut self.ended
        {
            self.trace.sessions = kept.sessions(SESSION_WAIT).await;
        }
        self.trace.sessions.pop().map(|session| ResumableSession { session, protocol })
    }
}

/// Makes connections with one TLS client, so that sessions can be resumed.
#[derive(Debug)]
pub(crate) struct Prober<'a> {
    pub(crate) settings: &'a Settings,
    client: Client,
}

impl<'a> Prober<'a> {
    /// Reads the files of the settings and performs the one-time work that would slow down the first connection.
    pub(crate) fn new(settings: &'a Settings) -> Result<Self, ProbeError> {
        let client = settings.client()?;
        client.rehearse();
        Ok(Self { settings, client })
    }

    /// Makes a connection, from name resolution to the response.
    pub(crate) async fn trip(&self, ready: Option<ResumableSession>, early: bool) -> ProbedConnection {
        let (began, mut trace) = (Instant::now(), Trace::default());
        let addresses = self.addresses().await;
        let resolved = began.elapsed();
        let start = match ready {
            None => ConnectionStart::default(),
            Some(ResumableSession { session, protocol }) => {
                // RFC 8446 section 4.2.10: early data uses the protocol of the connection that issued the
                // session.
                ConnectionStart { session: Some(session), early: early.then_some(protocol) }
            }
        };
        match addresses {
            Ok(addresses) => {
                let ended = self.course(addresses.clone()).run(start, &mut trace).await;
                ProbedConnection { began, resolved, addresses, trace, ended }
            }
            Err(error) => {
                ProbedConnection { began, resolved, addresses: Vec::new(), trace, ended: Err(error) }
            }
        }
    }

    /// Makes a connection of this kind; a kind with a session makes another connection first to obtain one.
    pub(crate) async fn trip_as(&self, mode: Mode) -> Result<ProbedConnection, ProbeError> {
        if mode == Mode::Full {
            return Ok(self.trip(None, false).await);
        }
        let mut first = self.trip(None, false).await;
        // A resumed handshake verifies no certificate, so the verdict is the one of this connection.
        let (ready, before) = (first.session().await, first.trace.verdict());
        if let Some(error) = first.close().await {
            return Err(error);
        }
        let ready = ready
            .ok_or_else(|| ProbeError::Answer("the server gives no session to be resumed".to_owned()))?;
        if mode == Mode::Early && !ready.takes_early_data() {
            return Err(ProbeError::Answer(
                "the server's sessions do not allow early data (0-RTT)".to_owned(),
            ));
        }
        let mut trip = self.trip(Some(ready), mode == Mode::Early).await;
        trip.trace.before = before;
        Ok(trip)
    }

    /// Sends a further request on the connection of `trip`; `None` if it was closed.
    pub(crate) async fn again(&self, trip: &mut ProbedConnection) -> Option<Result<Trace, ProbeError>> {
        let Ok(Some(kept)) = &mut trip.ended else { return None };
        let mut trace = Trace::default();
        let result = self.course(trip.addresses.clone()).again(kept, &mut trace).await;
        Some(result.map(|()| trace))
    }

    /// Opens a TCP connection without TLS, to this address or to one of the host's.
    pub(crate) async fn dial(
        &self,
        address: Option<SocketAddr>,
    ) -> Result<tokio::net::TcpStream, ProbeError> {
        let addresses = match address {
            Some(address) => vec![address],
            None => self.addresses().await?,
        };
        self.course(addresses).connect().await
    }

    fn course(&self, addresses: Vec<SocketAddr>) -> Connector {
        let Settings { url, agent, timeout, .. } = self.settings.clone();
        Connector { url, addresses, client: self.client.clone(), agent, timeout }
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, ProbeError> {
        let Settings { url, connect, timeout: limit, .. } = self.settings;
        if let Some(ip) = connect {
            return Ok(vec![SocketAddr::new(*ip, url.port)]);
        }
        let found = tokio::time::timeout(*limit, resolve::addresses(url)).await;
        found.unwrap_or_else(|_| {
            let detail = format!(" {}", url.host);
            Err(ProbeError::Timeout { limit: *limit, step: Step::Resolve, detail })
        })
    }
}
