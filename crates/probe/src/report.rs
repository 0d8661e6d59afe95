//! What a probe found out, as data: for the terminal, for a page, for JSON.

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

/// What a probe found out.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The URL.
    pub url: String,
    /// All addresses of the host.
    pub addresses: Vec<String>,
    /// The HTTPS record of the host.
    pub https_record: HttpsAnswer,
    /// The address that was probed.
    pub address: Option<String>,
    /// Addresses tried before it, and why they did not connect.
    pub refused: Vec<(String, String)>,
    /// How long each phase took.
    pub phases: Phases,
    /// What TCP says.
    pub tcp: Option<TcpFacts>,
    /// What was negotiated.
    pub tls: Option<TlsFacts>,
    /// Everything on the wire.
    pub steps: Vec<StepRow>,
    /// The answer.
    pub answer: Option<AnswerFacts>,
    /// The frames of HTTP/2.
    pub frames: Vec<FrameRow>,
    /// What costs time or bytes, the dearest first; five at most.
    pub findings: Vec<Finding>,
    /// Why the probe ended early.
    pub failure: Option<Failure>,
    #[serde(skip)]
    pub(crate) key_log: String,
}

/// How long the phases of a connection took, in milliseconds, as far as it got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Phases {
    /// The name into addresses.
    pub resolve_ms: Option<f64>,
    /// Addresses that did not connect, before the one that did.
    pub refused_ms: Option<f64>,
    /// TCP, of the address that connected.
    pub connect_ms: Option<f64>,
    /// TLS, to the last byte that the client sends for it.
    pub tls_ms: Option<f64>,
    /// From the request to the first byte of the answer.
    pub wait_ms: Option<f64>,
    /// From there to the last byte.
    pub body_ms: Option<f64>,
    /// All of it.
    pub total_ms: Option<f64>,
}

impl Phases {
    /// Names and times of the phases that were reached.
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

/// What TCP says of the connection.
#[derive(Clone, Debug, Serialize)]
pub struct TcpFacts {
    /// The least round-trip time that the kernel saw, in milliseconds.
    pub rtt_ms: f64,
    /// Bytes of data in a full segment to the server.
    pub segment: u32,
    /// Segments that this side sent again.
    pub retransmissions: u32,
    /// What was seen of the server's initial window.
    pub window: Option<Window>,
    /// TCP Fast Open.
    pub fast_open: FastOpen,
}

/// TCP Fast Open (RFC 7413).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FastOpen {
    /// It was not looked at.
    #[default]
    NotAsked,
    /// This machine does not use it as a client (`net.ipv4.tcp_fastopen`).
    OffHere,
    /// The server gave a cookie: it takes data in the SYN.
    Cookie,
    /// It gave none.
    NoCookie,
}

impl FastOpen {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotAsked => "not looked at",
            Self::OffHere => "off on this machine (net.ipv4.tcp_fastopen)",
            Self::Cookie => "cookie given: data may go with the SYN",
            Self::NoCookie => "no cookie",
        }
    }
}

/// What TLS negotiated.
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
    /// The handshake was completed. Otherwise what follows is what came before its end.
    pub is_complete: bool,
    /// `full`, or how the session was resumed; `unfinished` for a handshake that was not completed.
    pub resumption: &'static str,
    /// The outcome of early data, where some was given.
    pub early_data: &'static str,
    /// The group that a `HelloRetryRequest` asked for.
    pub hello_retry: Option<String>,
    /// Bytes of the first hello on the wire.
    pub hello_bytes: u64,
    /// Bytes of the server's flight from its hello to the end of its part of the handshake; `None` where that did not come, and
    /// for a resumed session before TLS 1.3.
    pub flight_bytes: Option<u64>,
    /// A part of the flight waited for an acknowledgement; `None` over links that are too short to see it.
    pub flight_waited: Option<bool>,
    /// Bytes of an initial window of ten segments.
    pub window_bytes: u64,
    /// Bytes that a server may send over QUIC before the client's address is proven: three times the hello.
    pub quic_bytes: u64,
    /// The chain; `None` where a session was resumed.
    pub chain: Option<Chain>,
    /// Whether the certificate is trusted, of a resumed session that of the connection it comes from; `None` where it was not
    /// verified.
    pub is_trusted: Option<bool>,
    /// Why it is not.
    pub distrust: Option<String>,
    /// Tickets that the server gave.
    pub tickets: Vec<Ticket>,
    /// The server gave a session that can be resumed, as a ticket or, before TLS 1.3, under an ID.
    pub gives_session: bool,
    /// TLS 1.2: the client may send its request before the server's last flight (False Start, RFC 7918), which takes ECDHE, an
    /// AEAD and ALPN. `None` for a resumed session, which needs none.
    pub false_start: Option<bool>,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct AnswerFacts {
    /// The protocol, as ALPN names it.
    pub protocol: String,
    /// The status.
    pub status: u16,
    /// Bytes of the head on the wire.
    pub head_bytes: usize,
    /// Bytes of the body as sent, compressed or not.
    pub body_bytes: u64,
    /// Interim answers before it (1xx).
    pub interim: u32,
    /// The fields of the head.
    pub headers: Vec<(String, String)>,
}

/// A frame with its time.
#[derive(Clone, Debug, Serialize)]
pub struct FrameRow {
    /// Since the connection began, in milliseconds.
    pub at_ms: f64,
    /// The frame.
    #[serde(flatten)]
    pub frame: Frame,
}

/// Why a probe ended early.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The step.
    pub step: Step,
    /// One sentence.
    pub message: String,
    /// The exit code.
    pub exit_code: u8,
}

/// What was found out before the connection.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) addresses: Vec<String>,
    pub(crate) took: Duration,
    pub(crate) https: HttpsAnswer,
}

impl Report {
    /// The report of a connection that ended well, or with `error`.
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
            phases: phases(resolved.took, trace),
            tcp: tcp(trace, &recorded.recording, rtt),
            tls: tls::tls(trace, &recorded, &view, rtt),
            steps: steps(&view, began, connected, rtt),
            answer: answer.map(AnswerFacts::of),
            frames: trace.frames.iter().map(frame).collect(),
            findings: Vec::new(),
            failure: error.map(|error| Failure {
                step: match error {
                    ProbeError::Unresolved { .. } => Step::Resolve,
                    ProbeError::Timeout { step, .. } => *step,
                    _ => trace.milestones.step,
                },
                message: error.to_string(),
                exit_code: error.exit_code(),
            }),
            key_log: recorded.recording.key_log(),
        };
        report.findings = findings(&report, settings);
        report
    }

    /// The least round-trip time, in milliseconds; 0 where TCP did not connect.
    pub fn rtt_ms(&self) -> f64 {
        self.tcp.as_ref().map_or(0.0, |tcp| tcp.rtt_ms)
    }

    /// The time to the first byte, from the beginning, in milliseconds; `None` without an answer.
    pub fn first_byte_ms(&self) -> Option<f64> {
        Some(self.phases.total_ms? - self.phases.body_ms?)
    }

    /// The secrets of the connection in the format of NSS key logs.
    pub fn key_log(&self) -> &str {
        &self.key_log
    }
}

impl TlsFacts {
    /// In words, whether the certificate is trusted.
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

    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

fn since(began: Instant, at: Instant) -> f64 {
    millis(at.saturating_duration_since(began))
}

/// The least round trip that was seen.
pub(crate) fn rtt(trace: &Trace) -> Duration {
    let infos = [trace.tcp_end, trace.tcp];
    let least = infos.iter().flatten().map(|info| info.least_rtt).find(|rtt| !rtt.is_zero());
    let smooth = trace.tcp.map(|info| info.rtt).filter(|rtt| !rtt.is_zero());
    least.or(smooth).unwrap_or_default()
}

fn phases(resolve: Duration, trace: &Trace) -> Phases {
    let times = &trace.milestones;
    let between = |from: Option<Instant>, to: Option<Instant>| Some(since(from?, to?));
    let connect_ms = between(times.dialled, times.connected);
    let refused_ms = between(times.began, times.dialled).filter(|_| !trace.refused.is_empty());
    Phases {
        resolve_ms: Some(millis(resolve)),
        refused_ms,
        connect_ms,
        tls_ms: between(times.connected, times.secured),
        wait_ms: between(times.asked, times.first_byte),
        body_ms: between(times.first_byte, times.done),
        total_ms: between(times.began, times.done).map(|time| time + millis(resolve)),
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
