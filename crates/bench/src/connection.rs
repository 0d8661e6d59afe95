//! New connections: TCP, then the kind of handshake that was asked for; and what is known of them while they live.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use brisk_net::TcpInfo;
use brisk_telemetry::{Milestone, Resumption, Timeline};
use brisk_tls::client::{Client, ClientFacts, ClientStream, EarlyOutcome, SavedSession, SessionUse};
use brisk_wire::registry::ProtocolVersion;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::choice::{Axis, Weighted};
use crate::dial::Dialer;
use crate::error::Failure;
use crate::measure::{Handshake, Recorder};
use crate::result::Cause;
use crate::sessions::Sessions;
use crate::settings::is_as_asked;

/// How long a server may take for what comes after the last response: sessions and its end of the connection.
const FAREWELL: Duration = Duration::from_secs(1);

/// Opens the connections of one thread.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(crate) dialer: Dialer,
    pub(crate) kinds: Weighted<Kind>,
    /// What has to be negotiated by ALPN, and whether nothing at all will do.
    pub(crate) protocol: Option<Protocol>,
    pub(crate) recorder: Rc<Recorder>,
    /// Numbers of connections: this one is next, each further one is `stride` more.
    pub(crate) next: Cell<u64>,
    pub(crate) stride: u64,
}

/// What requests need of ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// `http/1.1`, or nothing.
    Http1,
    /// `h2`.
    Http2,
}

/// One kind of handshake: its client, and its sessions if it resumes.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) asked: Resumption,
    pub(crate) client: Client,
    pub(crate) sessions: Option<Rc<Sessions>>,
}

/// A connection whose handshake is over. When it is dropped, its traffic is counted and its sessions are kept.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: ClientStream,
    /// From the moment TCP was connected.
    pub(crate) timeline: Timeline,
    recorder: Rc<Recorder>,
    /// Where its sessions go.
    sessions: Option<Rc<Sessions>>,
    session_use: SessionUse,
    /// Bytes sent and received that were counted, or that are not to be.
    counted: (u64, u64),
    /// The same of segments; `None` as long as nothing was measured on it.
    segments: Option<(u32, u32)>,
    /// It carried a request since segments were last counted.
    used: bool,
}

impl Opener {
    /// The kind of the next handshake.
    pub(crate) fn next_kind(&self) -> &Kind {
        let number = self.next.get();
        self.next.set(number + self.stride);
        self.kinds.pick(number, Axis::Handshake)
    }

    /// Connects and makes a handshake of this kind, with `early` in its first flight if it is 0-RTT. What came of it is
    /// counted; that a session was not resumed is a failure that is counted, and the connection is as good as any.
    pub(crate) async fn open(
        &self,
        kind: &Kind,
        session: Option<SavedSession>,
        early: Option<&[u8]>,
    ) -> Result<Link, Failure> {
        let start = Instant::now();
        let tcp = self.dialer.connect().await?;
        let mut timeline = Timeline::start();
        let connect = timeline.started() - start;
        let offered = session.is_some();
        let stream = kind.client.connect(tcp, session, early).await?;
        timeline.mark(Milestone::HandshakeFinished);
        let link = self.link(kind, stream, timeline, connect);
        if let Some(failure) = kind.shortfall(offered, link.facts()) {
            self.recorder.failure(Instant::now(), &failure);
        }
        match self.protocol.and_then(|protocol| protocol.shortfall(link.facts())) {
            Some(failure) => Err(failure),
            None => Ok(link),
        }
    }

    fn link(&self, kind: &Kind, stream: ClientStream, timeline: Timeline, connect: Duration) -> Link {
        let finished = timeline.offset(Milestone::HandshakeFinished).unwrap_or_default();
        let now = timeline.started() + finished;
        let session_use = kind.client.settings().session_use;
        // A session that is resumed often has to come from a full handshake; what others bring would push it out.
        let brings = session_use == SessionUse::Once || stream.facts().resumption == Resumption::Full;
        let mut link = Link {
            counted: (0, 0),
            segments: None,
            used: false,
            recorder: Rc::clone(&self.recorder),
            sessions: kind.sessions.clone().filter(|_| brings),
            session_use,
            stream,
            timeline,
        };
        if self.recorder.is_measured(now) {
            let (segments_sent, segments_received) = link.read_segments();
            let facts = link.stream.facts();
            let handshake = Handshake {
                asked: kind.asked,
                connect,
                tls: finished,
                segments_sent,
                segments_received,
                facts,
            };
            self.recorder.handshake(now, &handshake);
            self.recorder.segments(segments_sent, segments_received);
            link.segments = Some((segments_sent, segments_received));
        }
        link.account(now);
        link.used = false;
        link
    }
}

impl Protocol {
    fn shortfall(self, facts: &ClientFacts) -> Option<Failure> {
        let refused = |text: String| Some(Failure::new(Cause::Alpn, text));
        match (self, facts.protocol.as_deref()) {
            (Self::Http2, Some("h2")) | (Self::Http1, None | Some("http/1.1")) => None,
            (Self::Http2, None) => refused("the server chose no protocol by ALPN; h2 is needed".to_owned()),
            (Self::Http2, Some(other)) => refused(format!("the server chose {other} by ALPN; h2 is needed")),
            (Self::Http1, Some(other)) => {
                refused(format!("the server chose {other} by ALPN; http/1.1 is needed"))
            }
        }
    }
}

impl Kind {
    /// A session to offer, if this kind resumes and there is one.
    pub(crate) fn session(&self) -> Option<SavedSession> {
        self.sessions.as_ref()?.take()
    }

    /// Whether a request goes with the first flight.
    pub(crate) fn is_early(&self) -> bool {
        self.asked == Resumption::EarlyData
    }

    /// What there is to complain about a handshake that was to be of this kind.
    fn shortfall(&self, offered: bool, facts: &ClientFacts) -> Option<Failure> {
        let (asked, got) = (self.asked, facts.resumption);
        if is_as_asked(asked, got) {
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
        self.sessions.iter().for_each(|sessions| sessions.clear());
        Some(Failure::new(Cause::NotResumed, format!("{asked}: the handshake was {got}")))
    }
}

impl Link {
    /// What came of the handshake.
    pub(crate) fn facts(&self) -> &ClientFacts {
        self.stream.facts()
    }

    /// Whether the server took the early data.
    pub(crate) fn early_was_accepted(&self) -> bool {
        self.facts().early_data == EarlyOutcome::Accepted
    }

    /// Counts what went over it since the last time, if `now` is in the measured time.
    pub(crate) fn account(&mut self, now: Instant) {
        let (received, sent) = self.stream.bytes();
        if self.recorder.is_measured(now) {
            self.recorder.bytes(sent - self.counted.0, received - self.counted.1);
            if self.segments.is_none() {
                self.segments = Some(self.read_segments());
            }
        }
        self.counted = (sent, received);
        self.used = true;
    }

    /// Says goodbye and waits until the server has done so too, so that its sessions are there and the connection's port
    /// rests on its side.
    pub(crate) async fn close(mut self) {
        let goodbye = async {
            self.stream.shutdown().await?;
            let mut rest = [0; 1024];
            while self.stream.read(&mut rest).await? > 0 {}
            Ok::<_, std::io::Error>(())
        };
        // A server that leaves in another way has left all the same.
        let _ = timeout(FAREWELL, goodbye).await;
    }

    /// Closes after a handshake without requests. Waits for a session only where each one is used up by one connection.
    pub(crate) async fn close_unused(mut self) {
        if self.wants_session() && self.session_use == SessionUse::Once {
            self.fetch_session().await;
        }
        let _ = self.stream.shutdown().await;
    }

    /// Waits until the server has given a session, if there is one to wait for.
    pub(crate) async fn fetch_session(&mut self) {
        if self.wants_session()
            && let Ok(Ok(session)) = timeout(FAREWELL, self.stream.next_session()).await
            && let Some(sessions) = &self.sessions
        {
            sessions.put(session);
        }
    }

    /// TLS 1.2 gives its session with the handshake.
    fn wants_session(&self) -> bool {
        self.sessions.is_some() && self.facts().version == ProtocolVersion::TLS1_3
    }

    fn read_segments(&self) -> (u32, u32) {
        let info = TcpInfo::of(self.stream.tcp());
        info.map_or((0, 0), |info| (info.segments_sent, info.segments_received))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(sessions) = &self.sessions {
            sessions.put(self.stream.take_sessions());
        }
        if self.used
            && let Some((sent, received)) = self.segments
        {
            let now = self.read_segments();
            self.recorder.segments(now.0.saturating_sub(sent), now.1.saturating_sub(received));
        }
    }
}
