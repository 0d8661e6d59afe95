//! Connections: TCP connect, handshake, accounting, close.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_http_client::http3::Http3Client;
use brisk_net::TcpInfo;
use brisk_telemetry::{Milestone, Resumption, Timeline};
use brisk_tls_client::{Client, ClientFacts, EarlyOutcome, SavedSession, SessionUse};
use brisk_wire::registry::ProtocolVersion;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::choice::{Axis, Weighted};
use crate::dial::Dialer;
use crate::error::Failure;
use crate::measure::{Handshake, Recorder};
use crate::records::{ConnectionTimes, FirstFlight};
use crate::result::Cause;
use crate::sessions::Sessions;
use crate::settings::is_as_requested;
use crate::transport::Transport;

/// Timeout for the data after the last response: sessions and the end of the connection.
const FAREWELL: Duration = Duration::from_secs(1);

/// Opens the [`Link`]s of one thread.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(crate) dialer: Dialer,
    pub(crate) quic: Http3Client,
    pub(crate) kinds: Weighted<Kind>,
    /// Protocol to negotiate by ALPN; `None` without requests.
    pub(crate) protocol: Option<Protocol>,
    pub(crate) recorder: Rc<Recorder>,
    /// Number of the next connection; the following ones are `stride` apart.
    pub(crate) next: Cell<u64>,
    pub(crate) stride: u64,
}

/// Protocols that requests need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// `http/1.1`, or no ALPN.
    Http1,
    /// `h2`.
    Http2,
    /// `h3`, over QUIC.
    Http3,
}

/// Kinds of connections.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// TCP without TLS.
    Plain,
    /// TLS with this [`HandshakeKind`].
    Tls(HandshakeKind),
}

/// A kind of handshake: its [`Client`], and its [`Sessions`] if it resumes.
#[derive(Clone, Debug)]
pub(crate) struct HandshakeKind {
    pub(crate) asked: Resumption,
    pub(crate) client: Client,
    pub(crate) sessions: Option<Rc<Sessions>>,
}

/// A connection after its handshake. When it is dropped, its traffic is counted and its sessions are kept.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: Transport,
    /// Times relative to the end of the TCP connect.
    pub(crate) timeline: Timeline,
    /// Duration of the TCP connect.
    connect: Duration,
    /// Address of this side if a record is wanted: a closed socket may have none.
    client: Option<SocketAddr>,
    recorder: Rc<Recorder>,
    /// The cache for the sessions of this connection; `None` unless its kind resumes.
    sessions: Option<Rc<Sessions>>,
    session_use: SessionUse,
    /// Bytes sent and received that have been counted or are excluded.
    counted: (u64, u64),
    /// As `counted`, for segments; `None` until something was measured on the connection.
    segments: Option<(u32, u32)>,
    /// Whether the connection carried a request since segments were last counted.
    used: bool,
}

/// A new TCP connection.
struct Connected {
    tcp: TcpStream,
    timeline: Timeline,
    /// Duration of the connect.
    connect: Duration,
}

impl Opener {
    /// The kind of the next connection.
    pub(crate) fn next_kind(&self) -> &Kind {
        let number = self.next.get();
        // Threads have disjoint numbers, so that the mix is exact over all of them.
        self.next.set(number + self.stride);
        self.kinds.pick(number, Axis::Handshake)
    }

    /// Connects and performs a handshake of this kind, with `early` in the first flight for 0-RTT. The result is
    /// counted. A session that was not resumed counts as a failure, and the connection is used nevertheless.
    pub(crate) async fn open(
        &self,
        kind: &Kind,
        session: Option<SavedSession>,
        early: Option<&[u8]>,
    ) -> Result<Link, Failure> {
        let start = Instant::now();
        let tcp = self.dialer.connect().await?;
        // After the connect, so that the phases `connect` and `tls` do not overlap.
        let timeline = Timeline::start();
        let connect = timeline.started() - start;
        let connected = Connected { tcp, timeline, connect };
        match kind {
            Kind::Plain => Ok(self.plain(connected)),
            Kind::Tls(kind) => self.secure(kind, connected, session, early).await,
        }
    }

    fn plain(&self, connected: Connected) -> Link {
        let Connected { tcp, timeline, connect } = connected;
        let now = timeline.started();
        // Reading `TCP_INFO` costs a system call, which the warm-up need not spend.
        let segments = self.recorder.is_measured(now).then(|| segments(&tcp));
        if segments.is_some() {
            self.recorder.connection(now, connect);
        }
        self.link(Transport::plain(tcp), (timeline, connect), None, segments)
    }

    async fn secure(
        &self,
        kind: &HandshakeKind,
        connected: Connected,
        session: Option<SavedSession>,
        early: Option<&[u8]>,
    ) -> Result<Link, Failure> {
        let Connected { tcp, mut timeline, connect } = connected;
        let offered = session.is_some();
        // An observer costs an allocation and a call for each write, so it exists for records only.
        let flight = self.recorder.keeps_records().then(|| Arc::new(FirstFlight::default()));
        let observer = flight.clone().map(|flight| flight as _);
        let stream = kind.client.connect_observed(tcp, session, early, observer).await?;
        timeline.mark(Milestone::HandshakeFinished);
        if let Some(sent) = flight.and_then(|flight| flight.sent_at()) {
            timeline.mark_at(Milestone::ClientHello, sent);
        }
        let tls = timeline.offset(Milestone::HandshakeFinished).unwrap_or_default();
        // Derived from the milestone, so that latency, traffic and the second of the report use one time.
        let (now, facts) = (timeline.started() + tls, stream.facts());
        let segments = self.recorder.is_measured(now).then(|| segments(stream.tcp()));
        if let Some(segments) = segments {
            // A further `TCP_INFO` is read only with `--fast-open`.
            let syn_data =
                self.dialer.opens_fast() && TcpInfo::of(stream.tcp()).is_ok_and(|info| info.syn_data);
            let handshake =
                Handshake { asked: kind.asked, connect: Some(connect), tls, segments, syn_data, facts };
            self.recorder.handshake(now, &handshake);
        }
        if let Some(failure) = kind.shortfall(offered, facts) {
            self.recorder.failure(Instant::now(), &failure);
        }
        // Returned at the end: the bytes of the handshake count, and the session is kept, in spite of a wrong
        // ALPN.
        let refused = self.protocol.and_then(|protocol| protocol.shortfall(facts));
        let mut link = self.link(Transport::Tls(stream), (timeline, connect), Some(kind), segments);
        link.account(now);
        // Only requests count as use; `account` has counted the handshake.
        link.used = false;
        refused.map_or(Ok(link), Err)
    }

    /// Counts the segments of the connection so far.
    fn link(
        &self,
        stream: Transport,
        (timeline, connect): (Timeline, Duration),
        kind: Option<&HandshakeKind>,
        segments: Option<(u32, u32)>,
    ) -> Link {
        if let Some((sent, received)) = segments {
            self.recorder.segments(sent, received);
        }
        // A system call for each connection, so for records only.
        let client = self.recorder.keeps_records().then(|| stream.tcp().local_addr().ok()).flatten();
        Link {
            stream,
            timeline,
            connect,
            client,
            recorder: Rc::clone(&self.recorder),
            sessions: kind.and_then(|kind| kind.sessions.clone()),
            session_use: kind.map_or(SessionUse::Once, |kind| kind.client.settings().session_use),
            counted: (0, 0),
            segments,
            used: false,
        }
    }
}

impl Protocol {
    pub(crate) fn shortfall(self, facts: &ClientFacts) -> Option<Failure> {
        let needed = match self {
            Self::Http1 => "http/1.1",
            Self::Http2 => "h2",
            Self::Http3 => "h3",
        };
        let chosen = match facts.protocol.as_deref() {
            None if self == Self::Http1 => return None,
            Some(chosen) if chosen == needed => return None,
            chosen => chosen.unwrap_or("no protocol"),
        };
        Some(Failure::new(Cause::Alpn, format!("the server chose {chosen} by ALPN; {needed} is needed")))
    }
}

impl Kind {
    /// The handshake, if there is one.
    pub(crate) fn handshake(&self) -> Option<&HandshakeKind> {
        match self {
            Self::Plain => None,
            Self::Tls(kind) => Some(kind),
        }
    }

    /// A session to offer, if this kind resumes and there is one.
    pub(crate) fn session(&self) -> Option<SavedSession> {
        self.handshake()?.sessions.as_ref()?.take()
    }

    /// Whether a request is sent in the first flight.
    pub(crate) fn is_early(&self) -> bool {
        self.handshake().is_some_and(|kind| kind.asked == Resumption::EarlyData)
    }
}

impl HandshakeKind {
    /// The [`Failure`], if the handshake is not of the requested kind.
    pub(crate) fn shortfall(&self, offered: bool, facts: &ClientFacts) -> Option<Failure> {
        let (asked, got) = (self.asked, facts.resumption);
        if is_as_requested(asked, got) {
            return None;
        }
        if !offered {
            let text = format!("{asked}: the server has given no session to resume");
            return Some(Failure::new(Cause::NoSession, text));
        }
        if asked == Resumption::EarlyData && got == Resumption::Psk {
            let why = match facts.early_data {
                EarlyOutcome::Unsent => {
                    "the server allows less early data with the session than the request has"
                }
                _ => "the server resumed the session, but did not accept early data",
            };
            return Some(Failure::new(Cause::EarlyDataRefused, format!("{asked}: {why}")));
        }
        // The other sessions are probably as old as the refused one.
        self.sessions.iter().for_each(|sessions| sessions.clear());
        Some(Failure::new(Cause::NotResumed, format!("{asked}: the handshake was {got}")))
    }
}

impl Link {
    /// The result of the handshake; `None` without TLS.
    pub(crate) fn facts(&self) -> Option<&ClientFacts> {
        match &self.stream {
            Transport::Tls(stream) => Some(stream.facts()),
            Transport::Plain(_) => None,
        }
    }

    /// Whether the server accepted the early data ([`EarlyOutcome::Accepted`]).
    pub(crate) fn early_was_accepted(&self) -> bool {
        self.facts().is_some_and(|facts| facts.early_data == EarlyOutcome::Accepted)
    }

    /// Counts the traffic since the last call, if `now` is in the measured time.
    pub(crate) fn account(&mut self, now: Instant) {
        let (received, sent) = self.stream.bytes();
        if self.recorder.is_measured(now) {
            self.recorder.bytes(sent - self.counted.0, received - self.counted.1);
            // The connection began in the warm-up: its segments count from here on.
            if self.segments.is_none() {
                self.segments = Some(segments(self.stream.tcp()));
            }
        }
        self.counted = (sent, received);
        self.used = true;
    }

    /// Marks the times of a request and of its response, which count if they are the first ones.
    pub(crate) fn exchanged(&mut self, sent: Instant, first_byte: Instant) {
        self.timeline.mark_at(Milestone::FirstRequest, sent);
        self.timeline.mark_at(Milestone::FirstResponse, first_byte);
    }

    /// Keeps the record of the connection if records are wanted.
    fn keep_record(&self) {
        if let Some(client) = self.client.filter(|_| self.recorder.is_measured(self.timeline.started())) {
            let (connect, timeline) = (self.connect, self.timeline.clone());
            self.recorder.ended(ConnectionTimes { client, connect, timeline });
        }
    }

    /// Closes the connection and waits until the server has closed it too, so that its sessions have arrived, and
    /// `TIME_WAIT` is on the server's side.
    pub(crate) async fn close(mut self) {
        let goodbye = async {
            self.stream.shutdown().await?;
            // No response is pending, so only tickets and `close_notify` arrive.
            let mut rest = [0; 1024];
            while self.stream.read(&mut rest).await? > 0 {}
            Ok::<_, std::io::Error>(())
        };
        // Errors are ignored, since the server has closed the connection in any case.
        let _ = timeout(FAREWELL, goodbye).await;
    }

    /// Closes after a handshake without requests. Waits for a session only if each is used once.
    pub(crate) async fn close_unused(mut self) {
        // With `SessionUse::Many`, the sessions that were fetched before the run suffice, and a wait would
        // lower the rate.
        if self.session_use == SessionUse::Once {
            self.fetch_session().await;
        }
        // The server may have closed already; the handshake has been counted.
        let _ = self.stream.shutdown().await;
    }

    /// Waits until the server has sent a `NewSessionTicket`, if one is expected: TLS 1.2 sends it during the handshake.
    pub(crate) async fn fetch_session(&mut self) {
        if let (Some(sessions), Transport::Tls(stream)) = (&self.sessions, &mut self.stream)
            && stream.facts().version == ProtocolVersion::TLS1_3
            && let Ok(Ok(session)) = timeout(FAREWELL, stream.next_session()).await
        {
            sessions.put(session);
        }
    }
}

/// Segments sent and received so far.
fn segments(tcp: &TcpStream) -> (u32, u32) {
    let info = TcpInfo::of(tcp);
    // Zero without information, from which the saturating differences in `drop` make no traffic.
    info.map_or((0, 0), |info| (info.segments_sent, info.segments_received))
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keep_record();
        if let (Some(sessions), Transport::Tls(stream)) = (&self.sessions, &mut self.stream) {
            sessions.put(stream.take_sessions());
        }
        // Without a request since, `link` has counted all segments before the close.
        if self.used
            && let Some((sent, received)) = self.segments
        {
            let now = segments(self.stream.tcp());
            self.recorder.segments(now.0.saturating_sub(sent), now.1.saturating_sub(received));
        }
    }
}
