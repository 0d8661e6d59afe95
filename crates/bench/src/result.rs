//! What a run came to: figures only, for a report to show. Nothing here measures or prints.

use std::fmt;
use std::time::{Duration, SystemTime};

use brisk_telemetry::Resumption;
use hdrhistogram::Histogram;

/// The longest latency told apart; a longer one counts as this.
pub const LONGEST: Duration = Duration::from_mins(10);

/// Significant decimal digits of a latency.
const DIGITS: u8 = 3;

/// A histogram for microseconds, up to [`LONGEST`]. It grows as it needs to.
pub fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(DIGITS).expect("three digits are allowed");
    histogram.auto(true);
    histogram
}

/// A finished run. Everything but [`primed`](Self::primed) is of the measured time: after the warm-up.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// Where the load went, as typed: `https://127.0.0.1:8443/`. The first one where there are several.
    pub target: String,
    /// When the measured time began.
    pub started: SystemTime,
    /// The measured time: from the end of the warm-up until the last operation ended or was given up.
    pub elapsed: Duration,
    /// The run was interrupted before the time or the count that was asked for.
    pub interrupted: bool,
    /// What was asked for: option and value, in the order in which to show them; defaults are left out.
    pub settings: Vec<(&'static str, String)>,
    /// Connections were without TLS.
    pub plain: bool,
    /// What operations are: requests, or handshakes where there are no requests.
    pub unit: Unit,
    /// Operations that succeeded.
    pub operations: u64,
    /// What was negotiated, the most frequent first.
    pub negotiated: Vec<Negotiated>,
    /// How long each step took.
    pub phases: Phases,
    /// Handshakes by the kind that was asked for and the kind that came of it.
    pub handshakes: Vec<HandshakeCount>,
    /// Full handshakes made only to have sessions to resume; in no other figure.
    pub primed: u64,
    /// Responses.
    pub responses: Responses,
    /// What failed, the most frequent first. Empty if nothing did.
    pub errors: Vec<ErrorCount>,
    /// Alerts that the server sent, by name, the most frequent first; `close_notify` is none.
    pub alerts: Vec<(String, u64)>,
    /// Bytes and packets.
    pub traffic: Traffic,
    /// Operations whose time had come and that were not started: the backlog was full, or the run was over before.
    /// Zero in a closed loop.
    pub unstarted: u64,
    /// What happened in each second, in order, from the start of the measured time.
    pub series: Vec<Interval>,
    /// What the server used, if its process was named.
    pub server: Option<ServerUsage>,
    /// Processor time of this program, all threads.
    pub client_cpu: Duration,
}

/// What is counted as one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A new connection and its handshake.
    Handshake,
    /// A request and its response, and the connection if a new one was needed.
    Request,
}

impl Unit {
    /// Its name in tables: `handshakes`, `requests`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshakes",
            Self::Request => "requests",
        }
    }
}

/// One outcome of negotiation, and how many handshakes had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// As `TLS 1.3 TLS_AES_128_GCM_SHA256 x25519 ecdsa_secp256r1_sha256 h2`.
    pub description: String,
    /// Handshakes.
    pub count: u64,
}

/// Latencies in microseconds.
#[derive(Debug, Clone)]
pub struct Phases {
    /// TCP connect.
    pub connect: Histogram<u64>,
    /// The handshake, from the `ClientHello` until this side may send.
    pub tls: Histogram<u64>,
    /// From the start of an operation to the first byte of its response; a handshake alone has none.
    pub first_byte: Histogram<u64>,
    /// A whole operation. At a fixed rate from the time when it was to start, in a closed loop from when it did.
    pub total: Histogram<u64>,
    /// From the moment a request was sent until its response had ended, without connecting or waiting for a turn.
    pub request: Histogram<u64>,
}

impl Phases {
    /// All empty.
    pub fn new() -> Self {
        Self {
            connect: histogram(),
            tls: histogram(),
            first_byte: histogram(),
            total: histogram(),
            request: histogram(),
        }
    }

    /// Names and histograms in the order in which to show them.
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
    /// What the client tried.
    pub asked: Resumption,
    /// What it became.
    pub got: Resumption,
    /// How many.
    pub count: u64,
}

/// Responses by class of status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Responses {
    /// 1xx to 5xx; informational ones before the final response are not counted.
    pub classes: [u64; 5],
    /// Bytes of all bodies.
    pub body_bytes: u64,
}

impl Responses {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.classes.iter().sum()
    }
}

/// Failures of one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorCount {
    /// What they have in common.
    pub cause: Cause,
    /// How many.
    pub count: u64,
    /// The first of them in one line.
    pub example: String,
}

macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident = $name:literal,)+) => {
        /// Why something failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause {
            $($(#[$doc])* $cause,)+
        }

        impl Cause {
            /// Every cause, in the order of definition.
            pub const ALL: &'static [Self] = &[$(Self::$cause),+];

            /// Its name in reports: `connection-refused`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$cause => $name,)+
                }
            }
        }
    };
}

causes! {
    /// The name has no address.
    Resolve = "no-address",
    /// Nothing listens there.
    Refused = "connection-refused",
    /// There is no way there.
    Unreachable = "unreachable",
    /// This machine has no port or no file left for one more connection.
    Exhausted = "no-local-port",
    /// The operation took longer than its time limit.
    Timeout = "timeout",
    /// The server reset the connection.
    Reset = "reset",
    /// The server closed the connection where it should not.
    Closed = "closed",
    /// The certificate is for another name.
    WrongName = "wrong-name",
    /// The certificate has expired, or is not valid yet.
    Expired = "expired",
    /// The certificate comes from no authority that is believed.
    UnknownAuthority = "unknown-authority",
    /// The certificate is wrong in another way.
    Certificate = "bad-certificate",
    /// The server speaks none of the application protocols offered.
    Alpn = "alpn",
    /// The server refused the handshake with an alert.
    Alert = "alert",
    /// The handshake failed in another way.
    Handshake = "handshake",
    /// The session was not resumed as asked for: the handshake was another one.
    NotResumed = "not-resumed",
    /// The session was resumed, but early data was not accepted.
    EarlyDataRefused = "early-data-refused",
    /// The server gave no session to resume.
    NoSession = "no-session",
    /// The response is not HTTP, or broke off.
    Response = "bad-response",
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Bytes and packets, seen from the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent in TCP segments, TLS included, TCP and IP headers not; likewise below.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// TCP segments sent, those without data included, until just before the connection was closed.
    pub segments_sent: u64,
    /// TCP segments received.
    pub segments_received: u64,
    /// Handshakes that the next four are of.
    pub handshakes: u64,
    /// Bytes sent until the end of the handshake, early data included.
    pub handshake_sent: u64,
    /// Bytes received until then.
    pub handshake_received: u64,
    /// Segments sent until then, those of the TCP handshake included.
    pub handshake_segments_sent: u64,
    /// Segments received until then.
    pub handshake_segments_received: u64,
    /// Of these handshakes, those whose SYN carried data that the server took (TCP Fast Open).
    pub syn_data: u64,
    /// Of these, those whose SYN carried all of the first flight: they save a round trip.
    pub syn_whole: u64,
    /// Bytes of the first flights of handshakes whose SYN carried data.
    pub syn_flights: u64,
    /// What of them went with the SYN.
    pub syn_bytes: u64,
}

/// What happened within one second, by the time at which it ended.
#[derive(Debug, Clone)]
pub struct Interval {
    /// Its start, from the start of the measured time.
    pub at: Duration,
    /// Its length: one second, the last one perhaps less.
    pub length: Duration,
    /// Operations that succeeded.
    pub operations: u64,
    /// Responses received.
    pub requests: u64,
    /// Handshakes completed.
    pub handshakes: u64,
    /// Failures.
    pub errors: u64,
    /// Operations per second that the schedule asked for; `None` in a closed loop.
    pub offered: Option<f64>,
    /// Operations at once that the schedule allowed.
    pub concurrency: usize,
    /// Operations going on at its end.
    pub in_flight: usize,
    /// Operations at its end whose time had come and that waited for a connection.
    pub backlog: usize,
    /// Latencies of the operations, as [`Phases::total`].
    pub latency: Histogram<u64>,
}

/// What the server's process used, its threads and children included.
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
    /// The most memory seen once a second.
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
        self.phases.connect.len()
    }

    /// Completed connections per second.
    pub fn connection_rate(&self) -> f64 {
        per_second(self.connection_count(), self.elapsed)
    }

    /// Completed handshakes per second.
    pub fn handshake_rate(&self) -> f64 {
        per_second(self.handshake_count(), self.elapsed)
    }

    /// Failures of all causes.
    pub fn error_count(&self) -> u64 {
        self.errors.iter().map(|error| error.count).sum()
    }

    /// Whether something succeeded, nothing failed, and everything was started that was to be.
    pub fn is_clean(&self) -> bool {
        self.operations > 0 && self.errors.is_empty() && self.unstarted == 0
    }
}

fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
