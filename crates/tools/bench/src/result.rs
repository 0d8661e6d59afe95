//! The result of a run: figures only, without measurement and output.

use std::fmt;
use std::time::{Duration, SystemTime};

use brisk_telemetry::Resumption;
use hdrhistogram::Histogram;

use crate::records::ConnectionTimes;

/// Maximum latency in histograms. Longer ones count as this one.
pub const LONGEST: Duration = Duration::from_mins(10);

/// Significant decimal digits of a latency.
const DIGITS: u8 = 3;

/// An empty histogram for microseconds up to [`LONGEST`]. It allocates as needed.
pub fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(DIGITS).expect("three digits are allowed");
    // A fixed range up to `LONGEST` would cost each second of each thread the memory of the whole range.
    histogram.auto(true);
    histogram
}

/// A finished run. Everything except [`primed`](Self::primed) was measured after the warm-up.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// The URL as typed: `https://127.0.0.1:8443/`. The first one if there are several.
    pub target: String,
    /// Start of the measured time.
    pub started: SystemTime,
    /// The measured time: from the end of the warm-up until the last operation ended or was aborted.
    pub elapsed: Duration,
    /// Whether the run was interrupted before its end.
    pub interrupted: bool,
    /// Options that differ from the defaults, with their values, in the order for reports.
    pub settings: Vec<(&'static str, String)>,
    /// Whether the connections did not use TLS.
    pub plain: bool,
    /// [`Unit::Request`], or [`Unit::Handshake`] for a load without requests.
    pub unit: Unit,
    /// Operations that succeeded.
    pub operations: u64,
    /// Negotiated parameters, the most frequent first.
    pub negotiated: Vec<Negotiated>,
    /// Latency of each phase of an operation.
    pub phases: Phases,
    /// Handshakes by requested and by actual kind.
    pub handshakes: Vec<HandshakeCount>,
    /// Full handshakes before the run that fetched sessions. They are in no other figure.
    pub primed: u64,
    /// Responses.
    pub responses: Responses,
    /// Failures by [`Cause`], the most frequent first.
    pub errors: Vec<ErrorCount>,
    /// Alerts of the server by name, the most frequent first, without `close_notify`.
    pub alerts: Vec<(String, u64)>,
    /// Bytes and packets.
    pub traffic: Traffic,
    /// Operations that were due and not started, because the backlog was full or the run ended. Zero in a closed loop.
    pub unstarted: u64,
    /// Single connections over TCP, if [`Settings::keeps_records`](crate::Settings::keeps_records); at most a million per thread.
    pub connections: Vec<ConnectionTimes>,
    /// The seconds of the measured time in order.
    pub series: Vec<Interval>,
    /// Resources of the server, if its process ID was given.
    pub server: Option<ServerUsage>,
    /// Processor time of this process.
    pub client_cpu: Duration,
}

/// Unit of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A new connection and its handshake.
    Handshake,
    /// A request and its response, including a new connection if one was needed.
    Request,
}

impl Unit {
    /// Name in tables: `handshakes`, `requests`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshakes",
            Self::Request => "requests",
        }
    }
}

/// Negotiated parameters, and the number of handshakes that had them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// For example `TLS 1.3 TLS_AES_128_GCM_SHA256 x25519 ecdsa_secp256r1_sha256 h2`.
    pub description: String,
    /// Number of handshakes.
    pub count: u64,
}

/// Latencies in microseconds.
#[derive(Debug, Clone)]
pub struct Phases {
    /// TCP connect. Empty over QUIC.
    pub connect: Histogram<u64>,
    /// The handshake, from the `ClientHello` until this side may send.
    pub tls: Histogram<u64>,
    /// From the start of an operation to the first byte of its response. Empty for a load of handshakes.
    pub first_byte: Histogram<u64>,
    /// A whole operation: from its scheduled start at a fixed rate, from its actual start in a closed loop.
    pub total: Histogram<u64>,
    /// From the sending of a request to the end of its response, without connecting or waiting.
    pub request: Histogram<u64>,
}

impl Phases {
    /// Empty histograms.
    pub fn new() -> Self {
        Self {
            connect: histogram(),
            tls: histogram(),
            first_byte: histogram(),
            total: histogram(),
            request: histogram(),
        }
    }

    /// Names and histograms in the order for reports.
    pub fn all(&self) -> [(&'static str, &Histogram<u64>); 5] {
        [
            ("connect", &self.connect),
            ("tls", &self.tls),
            ("first byte", &self.first_byte),
            ("total", &self.total),
            ("request", &self.request),
        ]
    }
}

impl Default for Phases {
    fn default() -> Self {
        Self::new()
    }
}

/// Completed handshakes of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeCount {
    /// The requested kind.
    pub asked: Resumption,
    /// The actual kind.
    pub got: Resumption,
    /// Number of handshakes.
    pub count: u64,
}

/// Responses by class of status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Responses {
    /// Number of final responses from `1xx` to `5xx`, without informational ones before them.
    pub classes: [u64; 5],
    /// Body bytes received.
    pub body_bytes: u64,
}

impl Responses {
    /// All responses.
    pub fn total(&self) -> u64 {
        self.classes.iter().sum()
    }
}

/// Failures of one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorCount {
    /// The cause.
    pub cause: Cause,
    /// Number of failures.
    pub count: u64,
    /// The message of the first one.
    pub example: String,
}

macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident = $name:literal,)+) => {
        /// Causes of failures.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause {
            $($(#[$doc])* $cause,)+
        }

        impl Cause {
            /// All causes in the order of definition.
            pub const ALL: &'static [Self] = &[$(Self::$cause),+];

            /// Name in reports: `connection-refused`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$cause => $name,)+
                }
            }
        }
    };
}

causes! {
    /// The host name has no address.
    Resolve = "no-address",
    /// Nothing listens at the address.
    Refused = "connection-refused",
    /// There is no route to the address.
    Unreachable = "unreachable",
    /// This machine has no free port or file descriptor.
    Exhausted = "no-local-port",
    /// The operation took longer than its timeout.
    Timeout = "timeout",
    /// The server reset the connection.
    Reset = "reset",
    /// The server closed the connection unexpectedly.
    Closed = "closed",
    /// The certificate is for another name.
    WrongName = "wrong-name",
    /// The certificate has expired, or is not valid yet.
    Expired = "expired",
    /// The certificate is not signed by a trusted authority.
    UnknownAuthority = "unknown-authority",
    /// The certificate is invalid for another reason.
    Certificate = "bad-certificate",
    /// The server supports none of the offered application protocols (`no_application_protocol`).
    Alpn = "alpn",
    /// The server refused the handshake with an alert.
    Alert = "alert",
    /// The handshake failed for another reason.
    Handshake = "handshake",
    /// The session was not resumed as requested.
    NotResumed = "not-resumed",
    /// The session was resumed, but `early_data` was not accepted.
    EarlyDataRefused = "early-data-refused",
    /// The server sent no session to resume.
    NoSession = "no-session",
    /// The response is not HTTP, or incomplete.
    Response = "bad-response",
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Bytes and packets as seen by the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent, with TLS and without TCP and IP headers, as are all bytes below.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// TCP segments or UDP datagrams sent, including those without data, until just before the connection was closed.
    pub segments_sent: u64,
    /// TCP segments received.
    pub segments_received: u64,
    /// Connections that the server closed between two requests, with or without an alert or a FIN. The next request was sent
    /// over a new connection, which is no failure (RFC 9112 section 9.3.1).
    pub reconnects: u64,
    /// Number of handshakes that the next four fields refer to.
    pub handshakes: u64,
    /// Bytes sent until the end of the handshake, including early data.
    pub handshake_sent: u64,
    /// Bytes received until the end of the handshake.
    pub handshake_received: u64,
    /// Segments sent until the end of the handshake, including those of the TCP handshake.
    pub handshake_segments_sent: u64,
    /// Segments received until the end of the handshake.
    pub handshake_segments_received: u64,
    /// Handshakes whose `SYN` carried data that the server accepted (TCP Fast Open, RFC 7413).
    pub syn_data: u64,
    /// Handshakes whose `SYN` carried the whole first flight, which saves a round trip.
    pub syn_whole: u64,
    /// Bytes of the first flights of handshakes whose `SYN` carried data.
    pub syn_flights: u64,
    /// Bytes of `syn_flights` that the `SYN` carried.
    pub syn_bytes: u64,
}

/// One second of the measured time. Operations count in the second in which they end.
#[derive(Debug, Clone)]
pub struct Interval {
    /// Start, relative to that of the measured time.
    pub at: Duration,
    /// Length: one second; the last interval can be shorter.
    pub length: Duration,
    /// Operations that succeeded.
    pub operations: u64,
    /// Responses received.
    pub requests: u64,
    /// Handshakes completed.
    pub handshakes: u64,
    /// Failures.
    pub errors: u64,
    /// Operations per second as scheduled; `None` in a closed loop.
    pub offered: Option<f64>,
    /// Maximum number of concurrent operations as scheduled.
    pub concurrency: usize,
    /// Operations running at the end of the interval.
    pub in_flight: usize,
    /// Operations that were due at the end of the interval and waited for a connection.
    pub backlog: usize,
    /// Latencies of the operations, as in [`Phases::total`].
    pub latency: Histogram<u64>,
}

/// Resources used by the server's process, its threads and its children.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServerUsage {
    /// Processor time in the measured time.
    pub cpu: Duration,
    /// Processor time per completed handshake; `None` if there were none.
    pub cpu_per_handshake: Option<Duration>,
    /// Processor time per response; `None` if there were none.
    pub cpu_per_request: Option<Duration>,
    /// Memory at the start, in bytes: proportional set size, so that shared pages count once.
    pub memory_before: u64,
    /// Peak memory in bytes, sampled once a second.
    pub memory_peak: u64,
}

impl RunResult {
    /// Operations per second.
    pub fn rate(&self) -> f64 {
        per_second(self.operations, self.elapsed)
    }

    /// Completed handshakes.
    pub fn handshake_count(&self) -> u64 {
        self.handshakes.iter().map(|kind| kind.count).sum()
    }

    /// Completed connections: handshakes, or without TLS TCP connections.
    pub fn connection_count(&self) -> u64 {
        if self.plain { self.phases.connect.len() } else { self.handshake_count() }
    }

    /// Completed connections per second.
    pub fn connection_rate(&self) -> f64 {
        per_second(self.connection_count(), self.elapsed)
    }

    /// Completed handshakes per second.
    pub fn handshake_rate(&self) -> f64 {
        per_second(self.handshake_count(), self.elapsed)
    }

    /// Number of failures.
    pub fn error_count(&self) -> u64 {
        self.errors.iter().map(|error| error.count).sum()
    }

    /// Whether operations succeeded, none failed, and all were started.
    pub fn is_clean(&self) -> bool {
        self.operations > 0 && self.errors.is_empty() && self.unstarted == 0
    }
}

fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
