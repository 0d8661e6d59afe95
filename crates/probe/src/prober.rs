//! Connections one after the other: full, resumed, with early data.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use brisk_telemetry::Resumption;
use brisk_tls_client::{Client, EarlyOutcome, SavedSession};

use crate::Settings;
use crate::connection::{Course, Kept, Protocol, Start};
use crate::error::{ProbeError, Step};
use crate::resolve;
use crate::trace::Trace;

/// How long a session is waited for after an answer: servers send theirs before it, or at once.
const SESSION_WAIT: Duration = Duration::from_millis(300);

/// How a connection begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// With a full handshake.
    #[default]
    Full,
    /// With a session of a connection before, which is not part of the report.
    Resume,
    /// The same, and the request goes with the first flight (0-RTT).
    Early,
}

impl Mode {
    /// A name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Resume => "resumed",
            Self::Early => "0-RTT",
        }
    }
}

/// A session, and the protocol of the connection that it comes from.
#[derive(Debug)]
pub(crate) struct Ready {
    session: SavedSession,
    protocol: Protocol,
}

impl Ready {
    /// The session allows early data.
    pub(crate) fn takes_early_data(&self) -> bool {
        self.session.early_data_limit() > 0
    }
}

/// A connection that was made, or not.
#[derive(Debug)]
pub(crate) struct Trip {
    /// When the name began to be resolved.
    pub(crate) began: Instant,
    pub(crate) resolved: Duration,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) trace: Trace,
    pub(crate) ended: Result<Option<Kept>, ProbeError>,
}

impl Trip {
    /// Closes the connection, or returns why it failed.
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

    /// Why the connection did not become one of this kind, if it did not.
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

    /// The newest session of the connection, which is waited for if there is none yet.
    pub(crate) async fn session(&mut self) -> Option<Ready> {
        let facts = self.trace.facts.as_ref()?;
        let protocol = Protocol::of(facts.protocol.as_deref());
        if self.trace.sessions.is_empty()
            && let Ok(Some(kept)) = &mut self.ended
        {
            self.trace.sessions = kept.sessions(SESSION_WAIT).await;
        }
        self.trace.sessions.pop().map(|session| Ready { session, protocol })
    }
}

/// Makes connections with one client, whose sessions fit one another.
#[derive(Debug)]
pub(crate) struct Prober<'a> {
    pub(crate) settings: &'a Settings,
    client: Client,
}

impl<'a> Prober<'a> {
    /// Reads the files of the settings, and makes everything ready that would cost the first connection time.
    pub(crate) fn new(settings: &'a Settings) -> Result<Self, ProbeError> {
        let client = settings.client()?;
        client.rehearse();
        Ok(Self { settings, client })
    }

    /// A connection, from the name to the answer.
    pub(crate) async fn trip(&self, ready: Option<Ready>, early: bool) -> Trip {
        let (began, mut trace) = (Instant::now(), Trace::default());
        let addresses = self.addresses().await;
        let resolved = began.elapsed();
        let start = match ready {
            None => Start::default(),
            Some(Ready { session, protocol }) => {
                Start { session: Some(session), early: early.then_some(protocol) }
            }
        };
        match addresses {
            Ok(addresses) => {
                let ended = self.course(addresses.clone()).run(start, &mut trace).await;
                Trip { began, resolved, addresses, trace, ended }
            }
            Err(error) => Trip { began, resolved, addresses: Vec::new(), trace, ended: Err(error) },
        }
    }

    /// A connection of this kind; where it takes a session, that of an own connection before.
    pub(crate) async fn trip_as(&self, mode: Mode) -> Result<Trip, ProbeError> {
        if mode == Mode::Full {
            return Ok(self.trip(None, false).await);
        }
        let mut first = self.trip(None, false).await;
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

    /// One more request on the connection of a trip.
    pub(crate) async fn again(&self, trip: &mut Trip) -> Option<Result<Trace, ProbeError>> {
        let Ok(Some(kept)) = &mut trip.ended else { return None };
        let mut trace = Trace::default();
        let result = self.course(trip.addresses.clone()).again(kept, &mut trace).await;
        Some(result.map(|()| trace))
    }

    /// A TCP connection alone, to this address, or as any other.
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

    fn course(&self, addresses: Vec<SocketAddr>) -> Course {
        let Settings { url, agent, timeout, .. } = self.settings.clone();
        Course { url, addresses, client: self.client.clone(), agent, timeout }
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
