//! One connection, from the first segment to the last byte of the response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use brisk_http_client::{Http2, Request, Response, http1};
use brisk_net::TcpInfo;
use brisk_tls_client::{Client, ClientError, ClientStream, EarlyOutcome, SavedSession};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant as Deadline, timeout, timeout_at};

use crate::error::{ProbeError, Step};
use crate::eyeballs::{self, DialError};
use crate::recorder::Recorder;
use crate::trace::{Refused, Trace};
use crate::url::Url;

/// Timeout for sending the end of the connection.
const FAREWELL: Duration = Duration::from_millis(50);

/// Maximum number of addresses in a message.
const NAMED: usize = 8;

/// Parameters common to all connections of a probe.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) url: Url,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) client: Client,
    pub(crate) agent: String,
    pub(crate) timeout: Duration,
}

/// Begin of a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionStart {
    pub(crate) session: Option<SavedSession>,
    /// Protocol of a request in the first flight, which is sent if the session allows early data.
    pub(crate) early: Option<Protocol>,
}

/// Version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// Version for an ALPN name; HTTP/1.1 without ALPN.
    pub(crate) fn of(name: Option<&str>) -> Self {
        if name == Some("h2") { Self::Http2 } else { Self::Http1 }
    }
}

/// A connection that can carry a further request.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    stream: ClientStream,
    http2: Option<Http2>,
}

impl Connector {
    /// Connects, sends the request and reads the response. Fills the [`Trace`] even on failure. Returns the
    /// [`OpenConnection`] if it can be reused.
    pub(crate) async fn run(
        &self,
        start: ConnectionStart,
        trace: &mut Trace,
    ) -> Result<Option<OpenConnection>, ProbeError> {
        let deadline = Deadline::now() + self.timeout;
        let tcp = self.dial(deadline, trace).await?;
        let secured = timeout_at(deadline, self.secure(tcp, start, trace)).await;
        let (mut kept, request) = secured.unwrap_or_else(|_| Err(self.late(trace)))?;
        // The error is returned after `note`: a response that broke or was late is reported as far as it was
        // received.
        let done = timeout_at(deadline, self.ask(&mut kept, request.as_deref(), trace)).await;
        kept.note(trace);
        done.unwrap_or_else(|_| Err(self.late(trace)))?;
        if trace.response.as_ref().is_some_and(|answer| answer.is_last) {
            kept.close().await;
            return Ok(None);
        }
        Ok(Some(kept))
    }

    /// Sends a further request on a connection. The [`Trace`] begins with the request.
    pub(crate) async fn again(&self, kept: &mut OpenConnection, trace: &mut Trace) -> Result<(), ProbeError> {
        let request = self.request(kept.http2.as_mut());
        let done = timeout(self.timeout, self.ask(kept, Some(&request), trace)).await;
        kept.note(trace);
        done.unwrap_or_else(|_| Err(self.late(trace)))
    }

    /// The bytes of the request: over `http2`, or over HTTP/1.1.
    fn request(&self, http2: Option<&mut Http2>) -> Vec<u8> {
        request(&self.url, &self.agent, http2)
    }

    fn late(&self, trace: &Trace) -> ProbeError {
        let received = trace.recorder.copy().recording.server.total;
        let detail = match trace.milestones.step {
            Step::Resolve | Step::Connect if trace.refused.is_empty() => String::new(),
            Step::Resolve | Step::Connect => format!(" to {}", each(&trace.refused)),
            _ => format!(", with {received} bytes received"),
        };
        ProbeError::Timeout { limit: self.timeout, step: trace.milestones.step, detail }
    }

    /// Performs the handshake. Also returns the bytes to send next.
    async fn secure(
        &self,
        tcp: TcpStream,
        start: ConnectionStart,
        trace: &mut Trace,
    ) -> Result<(OpenConnection, Option<Vec<u8>>), ProbeError> {
        trace.milestones.reach(Step::Handshake);
        let ConnectionStart { session, early } = start;
        let mut http2 = (early == Some(Protocol::Http2)).then(Http2::new);
        let early = early.map(|_| self.request(http2.as_mut()));
        // The trace keeps the recorder, so that a failed handshake is shown with all its messages.
        let observer: Arc<Recorder> = Arc::clone(&trace.recorder);
        let connected = self.client.connect_observed(tcp, session, early.as_deref(), Some(observer)).await;
        let stream = connected.map_err(|error| unsecured(&error))?;
        trace.milestones.secured = Some(std::time::Instant::now());
        trace.facts = Some(stream.facts().clone());
        trace.milestones.reach(Step::Request);
        let outcome = stream.facts().early_data;
        let protocol = Protocol::of(stream.facts().protocol.as_deref());
        let mut kept = OpenConnection { stream, http2 };
        let rest = match (outcome, early) {
            (EarlyOutcome::Accepted, _) => None,
            // What was rejected is sent again, in the protocol that was chosen now.
            (_, Some(early)) if kept.http2.is_some() == (protocol == Protocol::Http2) => Some(early),
            _ => {
                kept.http2 = (protocol == Protocol::Http2).then(Http2::new);
                Some(self.request(kept.http2.as_mut()))
            }
        };
        Ok((kept, rest))
    }

    /// Opens a TCP connection without TLS.
    pub(crate) async fn connect(&self) -> Result<TcpStream, ProbeError> {
        self.dial(Deadline::now() + self.timeout, &mut Trace::default()).await
    }

    async fn dial(&self, deadline: Deadline, trace: &mut Trace) -> Result<TcpStream, ProbeError> {
        trace.milestones.reach(Step::Connect);
        let found = eyeballs::dial(&self.addresses, deadline, trace).await;
        let tcp = found.map_err(|missed| match missed {
            DialError::All => ProbeError::Unconnected(format!("cannot connect to {}", each(&trace.refused))),
            DialError::Late => self.late(trace),
        })?;
        trace.tcp = TcpInfo::of(&tcp).ok();
        Ok(tcp)
    }

    /// Sends the request, unless it was sent early, and reads the response.
    async fn ask(
        &self,
        kept: &mut OpenConnection,
        request: Option<&[u8]>,
        trace: &mut Trace,
    ) -> Result<(), ProbeError> {
        let Trace { milestones, response, .. } = trace;
        // Filled in place: a timeout drops this future, and the received part has to stay in the trace.
        let response = response.insert(Response::default());
        milestones.reach(Step::Request);
        milestones.asked = Some(std::time::Instant::now());
        let done = exchange(&mut kept.stream, kept.http2.as_mut(), request, response).await;
        done.map_err(ProbeError::Answer)?;
        milestones.done = response.done_at;
        Ok(())
    }
}

impl OpenConnection {
    /// Completes the [`Trace`] at the end of a response or of the time for it.
    fn note(&mut self, trace: &mut Trace) {
        if let Some(response) = &trace.response {
            trace.milestones.first_byte = response.first_byte_at;
            if response.head_at.is_some() {
                trace.milestones.reach(Step::Body);
            }
        }
        trace.frames = self.http2.as_ref().map(|http2| http2.frames().to_vec()).unwrap_or_default();
        trace.tcp_end = TcpInfo::of(self.stream.tcp()).ok();
        trace.sessions = self.stream.take_sessions();
    }

    /// Waits a short time for sessions, which TLS 1.3 servers may send after the response.
    pub(crate) async fn sessions(&mut self, wait: Duration) -> Vec<SavedSession> {
        if let Ok(Ok(Some(session))) = timeout(wait, self.stream.next_session()).await {
            return vec![session];
        }
        Vec::new()
    }

    /// Closes the connection with `close_notify`.
    pub(crate) async fn close(mut self) {
        // A server that does not take it is none of the probe's concern.
        let _ = timeout(FAREWELL, self.stream.shutdown()).await;
    }
}

/// The bytes of a request for `url`: over `http2`, or over HTTP/1.1.
pub(crate) fn request(url: &Url, agent: &str, http2: Option<&mut Http2>) -> Vec<u8> {
    let request = Request { authority: &url.authority(), path: &url.path, agent };
    match http2 {
        Some(http2) => http2.request(&request),
        None => http1::request(&request),
    }
}

/// Sends `request`, unless it was sent early, and reads the response: over `http2`, or over HTTP/1.1.
pub(crate) async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    http2: Option<&mut Http2>,
    request: Option<&[u8]>,
    response: &mut Response,
) -> Result<(), String> {
    if let Some(request) = request {
        let written = stream.write_all(request).await;
        written.map_err(|error| format!("the request cannot be sent: {error}"))?;
    }
    let read = match http2 {
        Some(http2) => http2.read_response(stream, response).await,
        None => http1::read_response(stream, response).await,
    };
    read.map_err(|error| error.to_string())
}

/// Addresses with the reasons for their failures, at most [`NAMED`].
fn each(refused: &[Refused]) -> String {
    let named = refused.iter().take(NAMED).map(|one| format!("{}: {}", one.address, one.why));
    let others = refused.len().checked_sub(NAMED + 1).map(|others| format!("and {} more", others + 1));
    named.chain(others).collect::<Vec<_>>().join("; ")
}

fn unsecured(error: &ClientError) -> ProbeError {
    match error {
        ClientError::Settings(text) => ProbeError::Settings(text.clone()),
        ClientError::NotTls => {
            ProbeError::Handshake("not TLS: what the server sent first is no TLS record".to_owned())
        }
        other => ProbeError::Handshake(format!("the TLS handshake failed: {other}")),
    }
}
