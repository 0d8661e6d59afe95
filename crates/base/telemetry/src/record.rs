//! Facts of one connection and of one request: collected during their life, reported at their end.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use brisk_wire::HttpVersion;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

use crate::outcome::{
    EarlyData, EarlyRequest, HandshakeOutcome, Listening, MalformedReason, Resumption, ResumptionFailure,
    Side, StreamEnd, UpgradedEnd,
};
use crate::request_id::RequestId;
use crate::timeline::Timeline;

/// Parameters negotiated in a completed handshake, or in one with accepted early data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFacts {
    /// Protocol version.
    pub version: ProtocolVersion,
    /// Cipher suite.
    pub suite: CipherSuite,
    /// Key exchange group; `None` where a resumed session exchanged no keys.
    pub group: Option<NamedGroup>,
    /// Scheme of the server's signature; `None` where a resumed session needed none.
    pub scheme: Option<SignatureScheme>,
    /// Kind of the session.
    pub resumption: Resumption,
    /// Reason for which the session offered by the client was not resumed; `None` if it was resumed, or none was
    /// offered.
    pub resumption_failure: Option<ResumptionFailure>,
    /// Outcome of the client's early data; `None` if it announced none.
    pub early_data: Option<EarlyData>,
    /// Server name requested by the client, in lower case.
    pub server_name: Option<Box<str>>,
    /// The version of HTTP that ALPN (RFC 7301) chose.
    pub alpn: Option<HttpVersion>,
    /// Subject of the client's verified certificate.
    pub client_subject: Option<Box<str>>,
    /// The client's verified certificate, followed by the other certificates that it sent, which need not be part of
    /// the path; DER. Empty unless the host keeps them.
    pub client_chain: Box<[Box<[u8]>]>,
    /// [`ClientFingerprints`]; `None` unless the configuration has a use for them.
    pub fingerprints: Option<Box<ClientFingerprints>>,
    /// Whether the server requested another key share, which cost a round trip.
    pub hello_retry: bool,
    /// Time from the first byte of the `ClientHello` to the client's `Finished`; with accepted early data, to its
    /// first byte until the handshake is complete.
    pub handshake_time: Duration,
}

/// Fingerprints of a client, for rules, log fields and headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFingerprints {
    /// JA4 of the `ClientHello`.
    pub ja4: Option<Box<str>>,
    /// SHA-256 of the client's verified certificate, in lower-case hexadecimal.
    pub certificate: Option<Box<str>>,
}

/// Facts of one connection. [Reported to a `RecordSink`](Self::report_to) exactly once, however the connection ends.
#[derive(Debug)]
pub struct ConnectionRecord {
    /// Number of the connection, unique while the process lives.
    pub id: u64,
    /// Address of the client: `peer`, or the address from a PROXY protocol header.
    pub client: SocketAddr,
    /// The other end of the TCP connection.
    pub peer: SocketAddr,
    /// The address that the client connected to.
    pub local: SocketAddr,
    /// Milestones of the connection.
    pub timeline: Timeline,
    /// Parameters negotiated in the handshake; `None` before its end and for plain HTTP.
    pub tls: Option<Box<TlsFacts>>,
    /// Reason for which no offered session was resumed, if known before the end of the handshake; afterwards it is in
    /// `tls`.
    pub resumption_failure: Option<ResumptionFailure>,
    /// Smoothed round-trip time that the kernel (`TCP_INFO`) or QUIC measured.
    pub rtt: Option<Duration>,
    /// Congestion window after the handshake, in segments: the initial window unless packets were lost. 0 if unknown.
    pub window: u16,
    /// Bytes received on the connection, TLS included.
    pub bytes_received: u64,
    /// Bytes sent on the connection, TLS included.
    pub bytes_sent: u64,
    /// Bytes of early data that were accepted, as plaintext.
    pub early_bytes: u64,
    /// Path of a QUIC connection, at its end; `None` over TCP.
    pub path: Option<Box<QuicPath>>,
    /// Requests answered so far.
    pub requests: u32,
    listener: Listening,
    /// `None` without a sink, and after the report.
    sink: Option<Arc<dyn RecordSink>>,
}

/// Packets and migrations of a QUIC connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuicPath {
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets that were sent and declared lost (RFC 9002 section 6.1).
    pub packets_lost: u64,
    /// Changes of the client's address or port (RFC 9000 section 9).
    pub migrations: u32,
}

/// Receiver of each [`ConnectionRecord`] at its end.
pub trait RecordSink: fmt::Debug + Send + Sync + 'static {
    /// Counts the acceptance of a connection by a listener of this kind.
    fn opened(&self, listener: Listening);

    /// Receives the record of a connection that has ended. Called once per connection.
    fn finished(&self, record: &ConnectionRecord, end: ConnectionEnd);
}

/// Outcome of a connection, the argument of [`ConnectionRecord::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The handshake failed, so that no request was served.
    HandshakeFailed(HandshakeOutcome),
    /// After it was served; why, in a few fixed words: `idle`.
    Served(&'static str),
    /// Its task was dropped, for example at the end of the process.
    Dropped,
}

impl ConnectionEnd {
    /// The reason in a few fixed words: `idle`, `timed-out`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::HandshakeFailed(outcome) => outcome.name(),
            Self::Served(reason) => reason,
            Self::Dropped => "dropped",
        }
    }
}

impl ConnectionRecord {
    /// A record of a connection accepted at the start of `timeline`, with `peer` as the client.
    pub fn new(id: u64, peer: SocketAddr, local: SocketAddr, timeline: Timeline) -> Self {
        Self {
            id,
            client: peer,
            peer,
            local,
            timeline,
            tls: None,
            resumption_failure: None,
            rtt: None,
            path: None,
            window: 0,
            bytes_received: 0,
            bytes_sent: 0,
            early_bytes: 0,
            requests: 0,
            listener: Listening::Https,
            sink: None,
        }
    }

    /// Counts the acceptance of the connection, one of `listener`, and has the record go to `sink` at its end.
    pub fn report_to<S: RecordSink>(&mut self, sink: &Arc<S>, listener: Listening) {
        sink.opened(listener);
        self.listener = listener;
        self.sink = Some(Arc::clone(sink) as _);
    }

    /// The kind of listener that accepted the connection.
    pub fn listener(&self) -> Listening {
        self.listener
    }

    /// Hands the record to its [`RecordSink`], although requests may still hold it. Only the first call counts.
    pub fn finish(&mut self, end: ConnectionEnd) {
        // `take` makes the report unique, although `Drop` calls this again.
        if let Some(sink) = self.sink.take() {
            sink.finished(self, end);
        }
    }
}

impl Drop for ConnectionRecord {
    fn drop(&mut self) {
        self.finish(ConnectionEnd::Dropped);
    }
}

/// Facts of one request whose response has ended. Borrows all fields, so it costs nothing to create.
#[derive(Debug, Clone)]
pub struct RequestRecord<'a> {
    /// Outputs of the access log that get the line.
    pub outputs: LogOutputs,
    /// The connection that the request came on.
    pub connection: &'a ConnectionRecord,
    /// Address of the client: that of the connection, or one that a trusted proxy states. The port is 0 if it is unknown.
    pub client: SocketAddr,
    /// Id of the request.
    pub id: RequestId,
    /// Method as the client sent it.
    pub method: &'a str,
    /// Host as the client sent it, `Host` or `:authority`; empty if there was none.
    pub host: &'a str,
    /// Path and query as the client sent them.
    pub path: &'a str,
    /// The version of HTTP that the request came by.
    pub version: HttpVersion,
    /// Status code of the response; 0 if none was sent.
    pub status: u16,
    /// Bytes of the response's body.
    pub bytes_sent: u64,
    /// Bytes of the request's body.
    pub bytes_received: u64,
    /// Time from the request's head to the end of the response.
    pub duration: Duration,
    /// The upstream server that answered or failed to.
    pub upstream: Option<&'a str>,
    /// Time from sending the request to the upstream to the head of its response.
    pub upstream_time: Option<Duration>,
    /// Name of the authenticated user.
    pub user: Option<&'a str>,
    /// Time from the request's head to the start of forwarding, if it was forwarded and belongs to a trace.
    pub upstream_start: Option<Duration>,
    /// Position of the request in a trace; `None` without tracing.
    pub trace: Option<RequestSpan>,
    /// `Referer` header.
    pub referer: Option<&'a [u8]>,
    /// `User-Agent` header.
    pub user_agent: Option<&'a [u8]>,
    /// The headers in [`RequestLog::headers`](crate::RequestLog::headers).
    pub headers: &'a [Option<&'a [u8]>],
    /// Treatment of a request that arrived before the end of the handshake.
    pub early: Option<EarlyRequest>,
    /// The error as a fixed term, for example `upstream-timeout`.
    pub error: Option<&'static str>,
    /// Side responsible for `error`.
    pub error_side: Option<Side>,
    /// [`UpgradedEnd`] after a switch of protocols; `None` without one.
    pub upgraded_end: Option<UpgradedEnd>,
    /// Labels, each with its name and text.
    pub labels: &'a [(Arc<str>, Arc<str>)],
    /// Field of the log that contains the labels; without labels, the field is missing.
    pub label_field: &'static str,
}

/// Outputs of the access log that get the line of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogOutputs {
    /// All except those that get listed requests only.
    #[default]
    All,
    /// Those whose bits are set, by their positions in the settings of the log: at most [`LogOutputs::MOST`]. Without bits, the
    /// request has no line.
    Listed(u64),
}

impl LogOutputs {
    /// No output.
    pub const NONE: Self = Self::Listed(0);
    /// Maximum number of outputs of a log.
    pub const MOST: usize = 64;
}

/// The position of a request in a trace (W3C Trace Context, header `traceparent`). IDs are not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSpan {
    /// ID of the trace.
    pub trace: u128,
    /// ID of the caller's span; `None` if the trace begins here.
    pub parent: Option<u64>,
    /// ID of the request's span.
    pub id: u64,
    /// ID of the span of the upstream, which the upstream knows as its parent.
    pub upstream: u64,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
}

/// Facts of a TCP connection whose bytes were forwarded, for [`RequestLog::log_stream`](crate::RequestLog::log_stream).
#[derive(Debug, Clone, Copy)]
pub struct StreamRecord<'a> {
    /// The connection of the client.
    pub connection: &'a ConnectionRecord,
    /// Name of the `[[tcp]]`.
    pub service: &'a str,
    /// Server name in the `ClientHello` that was passed on; `None` without one, and after a handshake of brisk, whose
    /// [`TlsFacts`] have it.
    pub server_name: Option<&'a str>,
    /// The server that was connected to, or the last that was tried.
    pub upstream: Option<&'a str>,
    /// Time of connecting to the server.
    pub upstream_time: Option<Duration>,
    /// Time from the acceptance of the connection to its end.
    pub duration: Duration,
    /// Bytes from the client that the upstream got.
    pub bytes_received: u64,
    /// Bytes from the upstream that the client got.
    pub bytes_sent: u64,
    /// The outcome.
    pub end: StreamEnd,
}

/// Facts of bytes that were refused before they became a request.
#[derive(Debug, Clone, Copy)]
pub struct MalformedRecord<'a> {
    /// The connection that the bytes came on.
    pub connection: &'a ConnectionRecord,
    /// The fault, which is also the label `reason` of the metric.
    pub reason: MalformedReason,
    /// Status code of the response; 0 if none was sent.
    pub status: u16,
    /// Request line as the client sent it, as far as it is known. Never headers, which may contain credentials.
    pub excerpt: &'a [u8],
}
