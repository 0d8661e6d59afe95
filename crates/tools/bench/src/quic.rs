//! Connections over QUIC: handshake, accounting, close.

use std::rc::Rc;
use std::time::{Duration, Instant};

use brisk_http_client::http3::{
    EncodedRequest, Http3 as Connection, Http3Error, KeptFields, PendingResponse, Traffic,
};
use brisk_tls_client::{ClientFacts, EarlyData, EarlyOutcome, SavedSession};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

use crate::connection::{HandshakeKind, Opener};
use crate::error::Failure;
use crate::measure::{Handshake, Recorder};
use crate::result::Cause;
use crate::sessions::Sessions;

/// Timeout for the session after the last response.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection after its handshake. When it is dropped, it is cut and its sessions are kept.
#[derive(Debug)]
pub(crate) struct QuicLink {
    pub(crate) connection: Connection,
    pub(crate) facts: ClientFacts,
    /// Time at which the first packet was sent.
    pub(crate) started: Instant,
    _driver: DriverTask,
    recorder: Rc<Recorder>,
    /// The cache for the sessions of this connection; `None` unless its kind resumes.
    sessions: Option<Rc<Sessions>>,
    /// Traffic that has been counted or is excluded.
    counted: Traffic,
}

/// The driver of a connection. Dropping it cuts the connection.
#[derive(Debug)]
struct DriverTask(JoinHandle<()>);

impl Drop for DriverTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Opener {
    /// Performs a handshake of this kind over QUIC. With 0-RTT, `early` is a request for the first flight, which is
    /// pending if the session permitted it. The result is counted as over TCP.
    pub(crate) async fn open_quic(
        &self,
        kind: &HandshakeKind,
        session: Option<SavedSession>,
        early: Option<EncodedRequest>,
    ) -> Result<(QuicLink, Option<PendingResponse>), Failure> {
        let offered = session.is_some();
        let socket = self.dialer.datagrams()?;
        let early_data = if early.is_some() { EarlyData::Offered } else { EarlyData::Omitted };
        let started = Instant::now();
        let connecting =
            self.quic.connect(socket, self.dialer.target(), kind.client.quic(session, early_data));
        let (connection, driver) =
            connecting.map_err(|error| Failure::connect(&error, self.dialer.target()))?;
        let driver = DriverTask(spawn_local(driver));
        // Such a request would wait for the end of the handshake and would no longer be early.
        let is_unsent = early.is_some() && !connection.permits_early_requests();
        let mut pending = None;
        if let Some(request) = early.filter(|_| !is_unsent) {
            let requested = connection.request(request, KeptFields::None).await;
            pending = Some(requested.map_err(|error| self.failed(&error))?);
        }
        let mut facts = connection.handshake().await.map_err(|error| self.failed(&error))?;
        if is_unsent {
            facts.early_data = EarlyOutcome::Unsent;
        }
        let mut link = QuicLink {
            connection,
            facts,
            started,
            _driver: driver,
            recorder: Rc::clone(&self.recorder),
            sessions: kind.sessions.clone(),
            counted: Traffic::default(),
        };
        self.count(kind, offered, &mut link);
        let refused = self.protocol.and_then(|protocol| protocol.shortfall(&link.facts));
        refused.map_or(Ok((link, pending)), Err)
    }

    fn count(&self, kind: &HandshakeKind, offered: bool, link: &mut QuicLink) {
        let (now, facts) = (Instant::now(), &link.facts);
        if self.recorder.is_measured(now) {
            let traffic = link.connection.traffic();
            let packets = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
            let handshake = Handshake {
                asked: kind.asked,
                connect: None,
                tls: now - link.started,
                segments: (packets(traffic.sent), packets(traffic.received)),
                syn_data: false,
                facts,
            };
            self.recorder.handshake(now, &handshake);
        }
        if let Some(failure) = kind.shortfall(offered, facts) {
            self.recorder.failure(now, &failure);
        }
        link.account(now);
    }

    fn failed(&self, error: &Http3Error) -> Failure {
        match error {
            Http3Error::Unreachable(reason) if reason.kind() == std::io::ErrorKind::ConnectionRefused => {
                let target = self.dialer.target();
                Failure::new(
                    Cause::Refused,
                    format!("no program receives at {target} over UDP: it has no HTTP/3"),
                )
            }
            error => failure(error),
        }
    }
}

/// The [`Failure`] of a connection or request, with its [`Cause`].
pub(crate) fn failure(error: &Http3Error) -> Failure {
    let cause = match error {
        Http3Error::Tls(error) => return Failure::from(&**error),
        Http3Error::Unreachable(_) => Cause::Unreachable,
        Http3Error::Version => Cause::Handshake,
        Http3Error::Closed(_) => Cause::Closed,
        Http3Error::Lost(_) => Cause::Reset,
        _ => Cause::Response,
    };
    Failure::new(cause, error.to_string())
}

impl QuicLink {
    /// Counts the traffic since the last call, if `now` is in the measured time.
    pub(crate) fn account(&mut self, now: Instant) {
        let traffic = self.connection.traffic();
        if self.recorder.is_measured(now) {
            let Traffic { sent_bytes, received_bytes, sent, received } = self.counted;
            self.recorder.bytes(traffic.sent_bytes - sent_bytes, traffic.received_bytes - received_bytes);
            let packets = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
            self.recorder.segments(packets(traffic.sent - sent), packets(traffic.received - received));
        }
        self.counted = traffic;
    }

    /// Waits for a session if the connection is to bring one, and closes it.
    pub(crate) async fn close(self) {
        if self.sessions.is_some() {
            // Without one, the next handshake fails.
            let _ = timeout(FAREWELL, self.connection.receives_session()).await;
        }
        self.connection.close();
    }
}

impl Drop for QuicLink {
    fn drop(&mut self) {
        if let Some(sessions) = &self.sessions {
            sessions.put(self.connection.tls().take_sessions());
        }
    }
}
