//! Report of a probe as data, for the terminal, pages and JSON.

mod tls;

use std::time::{Duration, Instant};

use brisk_handshake_view::steps::millis;
use brisk_handshake_view::window::window;
use brisk_handshake_view::{Chain, ConnectionView, Recording, StepRow, Ticket, Window, steps};
use brisk_http_client::{Frame, Response};
use serde::Serialize;

use crate::Settings;
use crate::error::{ProbeError, Step};
use crate::findings::{Finding, findings};
use crate::resolve::HttpsAnswer;
use crate::trace::Trace;

/// Segments of an initial window (RFC 6928).
pub const INITIAL_WINDOW: u32 = 10;

/// Report of a probe.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The URL.
    pub url: String,
    /// All addresses of the host.
    pub addresses: Vec<String>,
    /// The HTTPS record of the host.
    pub https_record: HttpsAnswer,
    /// Probed address; `None` if none connected.
    pub address: Option<String>,
    /// Addresses tried before, with the reasons why they did not connect.
    pub refused: Vec<(String, String)>,
    /// Durations of the phases.
    pub phases: Phases,
    /// Facts about the TCP connection.
    pub tcp: Option<TcpFacts>,
    /// Negotiated TLS parameters.
    pub tls: Option<TlsFacts>,
    /// Messages and records in order.
    pub steps: Vec<StepRow>,
    /// Response.
    pub answer: Option<AnswerFacts>,
    /// HTTP/2 frames.
    pub frames: Vec<FrameRow>,
    /// Findings, the most expensive first; at most five.
    pub findings: Vec<Finding>,
    /// Reason for an early end.
    pub failure: Option<Failure>,
    #[serde(skip)]
    pub(crate) key_log: String,
}

/// Durations of the phases of a connection in milliseconds; `None` for phases not reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Phases {
    /// Name resolution.
    pub resolve_ms: Option<f64>,
    /// Failed attempts before the successful one.
    pub refused_ms: Option<f64>,
    /// TCP handshake with the successful address.
    pub connect_ms: Option<f64>,
    /// TLS handshake, up to the last byte from the client.
    pub tls_ms: Option<f64>,
    /// From the request to the first byte of the response.
    pub wait_ms: Option<f64>,
    /// From the first to the last byte of the response.
    pub body_ms: Option<f64>,
    /// Total, also of a connection that failed.
    pub total_ms: Option<f64>,
    /// Name of the phase in which the connection failed; `None` if it succeeded.
    pub unfinished: Option<&'static str>,
}

impl Phases {
    /// Names and durations of the phases that were reached.
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        let all = [
            ("resolve", self.resolve_ms),
            ("refused", self.refused_ms),
            ("tcp", self.connect_ms),
            ("tls", self.tls_ms),
            ("wait", self.wait_ms),
            ("body", self.body_ms),
        ];
        all.into_iter().filter_map(|(name, time)| time.map(|time| (name, time))).collect()
    }
}

/// Facts about the TCP connection.
#[derive(Clone, Debug, Serialize)]
pub struct TcpFacts {
    /// Minimum round-trip time seen by the kernel, in milliseconds.
    pub rtt_ms: f64,
    /// Size in bytes of the data in a full segment to the server.
    pub segment: u32,
    /// Segments retransmitted by this side.
    pub retransmissions: u32,
    /// Estimate of the server's initial window.
    pub window: Option<Window>,
    /// TCP Fast Open.
    pub fast_open: FastOpen,
}

/// Result for TCP Fast Open (RFC 7413).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FastOpen {
    /// Not tested.
    #[default]
    NotAsked,
    /// This machine has disabled it for clients (`net.ipv4.tcp_fastopen`).
    OffHere,
    /// The server issued a cookie: it accepts data in the `SYN`.
    Cookie,
    /// The server issued no cookie.
    NoCookie,
}

impl FastOpen {
    /// Result as text.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotAsked => "not looked at",
            Self::OffHere => "off on this machine (net.ipv4.tcp_fastopen)",
            Self::Cookie => "cookie given: data may go with the SYN",
            Self::NoCookie => "no cookie",
        }
    }
}

/// Negotiated TLS parameters.
#[derive(Clone, Debug, Serialize)]
pub struct TlsFacts {
    /// Version.
    pub version: String,
    /// Suite.
    pub suite: String,
    /// Group of the key exchange.
    pub group: Option<String>,
    /// Scheme of the server's signature.
    pub scheme: Option<String>,
    /// Protocol chosen by ALPN.
    pub protocol: Option<String>,
    /// The handshake was completed. Otherwise the other fields describe the part before its end.
    pub is_complete: bool,
    /// `full`, or the kind of resumption; `unfinished` for an incomplete handshake.
    pub resumption: &'static str,
    /// Outcome of early data, if any was sent.
    pub early_data: &'static str,
    /// Group requested by a `HelloRetryRequest`.
    pub hello_retry: Option<String>,
    /// Size of the first hello in bytes, with its record header.
    pub hello_bytes: u64,
    /// Size in bytes of the server's flight, from its hello to the end of its part of the handshake; `None` if it is
    /// incomplete, and for a session resumed before TLS 1.3.
    pub flight_bytes: Option<u64>,
    /// Whether a part of the flight waited for an acknowledgement; `None` if the link is too short to see that.
    pub flight_waited: Option<bool>,
    /// Size of an initial window of ten segments in bytes.
    pub window_bytes: u64,
    /// Bytes that a server may send over QUIC before it has validated the client's address: three times the hello.
    pub quic_bytes: u64,
    /// Certificate chain; `None` for a resumed session.
    pub chain: Option<Chain>,
    /// The certificate is trusted; for a resumed session, that of the connection which issued the session. `None` if it
    /// was not verified.
    pub is_trusted: Option<bool>,
    /// Reason why the certificate is not trusted, with dates and names.
    pub distrust: Option<String>,
    /// As `distrust`, in the words of the verifier.
    #[serde(skip)]
    pub(crate) verdict: Option<String>,
    /// Tickets issued by the server.
    pub tickets: Vec<Ticket>,
    /// The server issued a session that can be resumed, as a ticket or, before TLS 1.3, under an ID.
    pub gives_session: bool,
    /// TLS 1.2: the client may send its request before the server's last flight (False Start, RFC 7918), which requires
    /// ECDHE, an AEAD and ALPN. `None` for a resumed session, which has no such flight.
    pub false_start: Option<bool>,
}

/// Response to the request.
#[derive(Clone, Debug, Serialize)]
pub struct AnswerFacts {
    /// ALPN name of the protocol.
    pub protocol: String,
    /// Status.
    pub status: u16,
    /// Size of the head in bytes as transmitted.
    pub head_bytes: usize,
    /// Size of the body in bytes as transmitted, compressed or not.
    pub body_bytes: u64,
    /// Number of `1xx` responses before this one.
    pub interim: u32,
    /// Header fields.
    pub headers: Vec<(String, String)>,
}

/// A frame with its time.
#[derive(Clone, Debug, Serialize)]
pub struct FrameRow {
    /// Time since the begin of the connection in milliseconds.
    pub at_ms: f64,
    /// The frame.
    #[serde(flatten)]
    pub frame: Frame,
}

/// Reason for the early end of a probe.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// Step that failed.
    pub step: Step,
    /// Description in one sentence.
    pub message: String,
    /// [Exit code](ProbeError::exit_code).
    pub exit_code: u8,
}

/// Results of name resolution.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) addresses: Vec<String>,
    pub(crate) took: Duration,
    pub(crate) https: HttpsAnswer,
}

impl Report {
    /// Report of a connection that succeeded, or failed with `error`.
    pub(crate) fn of(
        settings: &Settings,
        resolved: Resolved,
        trace: &Trace,
        error: Option<&ProbeError>,
    ) -> Self {
        let recorded = trace.recorder.copy();
        let view = ConnectionView::read(&recorded.recording);
        let rtt = rtt(trace);
        let began = trace.milestones.dialled.unwrap_or_else(Instant::now);
        let frame = |frame: &Frame| FrameRow { at_ms: since(began, frame.at), frame: frame.clone() };
        let connected = trace.milestones.connected.unwrap_or(began);
        let refused = trace.refused.iter().map(|one| (one.address.to_string(), one.why.clone()));
        let answer = trace.response.as_ref().filter(|answer| answer.status > 0);
        let mut report = Self {
            url: settings.url.to_string(),
            addresses: resolved.addresses,
            https_record: resolved.https,
            address: trace.address.map(|address| address.to_string()),
            refused: refused.collect(),
            phases: phases(resolved.took, trace, error.map(|error| step(error, trace))),
            tcp: tcp(trace, &recorded.recording, rtt),
            tls: tls::tls(trace, &recorded, &view, &settings.url.host, rtt),
            steps: steps(&view, began, connected, rtt),
            answer: answer.map(AnswerFacts::of),
            frames: trace.frames.iter().map(frame).collect(),
            findings: Vec::new(),
            failure: error.map(|error| Failure {
                step: step(error, trace),
                message: error.to_string(),
                exit_code: error.exit_code(),
            }),
            key_log: recorded.recording.key_log(),
        };
        report.findings = findings(&report, settings);
        report
    }

    /// Minimum round-trip time in milliseconds; `0` if TCP did not connect.
    pub fn rtt_ms(&self) -> f64 {
        self.tcp.as_ref().map_or(0.0, |tcp| tcp.rtt_ms)
    }

    /// Time to the first byte since the begin, in milliseconds; `None` without a response.
    pub fn first_byte_ms(&self) -> Option<f64> {
        Some(self.phases.total_ms? - self.phases.body_ms?)
    }

    /// Secrets of the connection in the format of NSS key logs.
    pub fn key_log(&self) -> &str {
        &self.key_log
    }
}

impl TlsFacts {
    /// Trust in the certificate as text.
    pub(crate) fn trust(&self) -> String {
        match (&self.distrust, self.is_trusted) {
            (Some(reason), _) => format!("NOT TRUSTED: {reason}"),
            (None, Some(_)) => "trusted".to_owned(),
            (None, None) => "not verified".to_owned(),
        }
    }
}

impl AnswerFacts {
    fn of(answer: &Response) -> Self {
        Self {
            protocol: answer.protocol.clone(),
            status: answer.status,
            head_bytes: answer.head_bytes,
            body_bytes: answer.body_bytes,
            interim: answer.interim,
            headers: answer.headers.clone(),
        }
    }

    /// Value of the first header field with this name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

fn since(began: Instant, at: Instant) -> f64 {
    millis(at.saturating_duration_since(began))
}

/// Minimum round-trip time observed.
pub(crate) fn rtt(trace: &Trace) -> Duration {
    let infos = [trace.tcp_end, trace.tcp];
    // The end has precedence, because its minimum is the one of the whole connection. Zero means no sample.
    let least = infos.iter().flatten().map(|info| info.least_rtt).find(|rtt| !rtt.is_zero());
    let smooth = trace.tcp.map(|info| info.rtt).filter(|rtt| !rtt.is_zero());
    least.or(smooth).unwrap_or_default()
}

/// The step in which a connection failed.
fn step(error: &ProbeError, trace: &Trace) -> Step {
    match error {
        ProbeError::Unresolved { .. } => Step::Resolve,
        ProbeError::Timeout { step, .. } => *step,
        _ => trace.milestones.step,
    }
}

/// Durations of the phases. The phase of the step that `failed` lasts until the failure.
fn phases(resolve: Duration, trace: &Trace, failed: Option<Step>) -> Phases {
    let times = &trace.milestones;
    let between = |from: Option<Instant>, to: Option<Instant>| Some(since(from?, to?));
    let ended = |step: Step, end: Option<Instant>| end.or(times.ended.filter(|_| failed == Some(step)));
    let refused_ms = between(times.began, times.dialled).filter(|_| !trace.refused.is_empty());
    let tls_ms = between(times.connected, ended(Step::Handshake, times.secured));
    let wait_ms = between(times.asked, ended(Step::Request, times.first_byte));
    let body_ms = between(times.first_byte, ended(Step::Body, times.done));
    let unfinished = failed.and_then(|step| match step {
        Step::Resolve => Some("resolve"),
        Step::Connect => times.dialled.map(|_| "tcp"),
        Step::Handshake => tls_ms.map(|_| "tls"),
        Step::Request => wait_ms.map(|_| "wait"),
        Step::Body => body_ms.map(|_| "body"),
    });
    Phases {
        resolve_ms: Some(millis(resolve)),
        refused_ms,
        connect_ms: between(times.dialled, ended(Step::Connect, times.connected)),
        tls_ms,
        wait_ms,
        body_ms,
        total_ms: between(times.began, times.done.or(times.ended)).map(|time| time + millis(resolve)),
        unfinished,
    }
}

fn tcp(trace: &Trace, recording: &Recording, rtt: Duration) -> Option<TcpFacts> {
    let first = trace.tcp?;
    let last = trace.tcp_end.unwrap_or(first);
    Some(TcpFacts {
        rtt_ms: millis(rtt),
        segment: first.segment,
        retransmissions: last.retransmissions,
        window: window(recording, rtt, first.segment),
        fast_open: FastOpen::NotAsked,
    })
}

#[cfg(test)]
mod tests;
