//! Connections of an audit, with limits of number, rate, time and received bytes.

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use brisk_wire::offer::Offer;
use brisk_wire::registry::ProtocolVersion;
use brisk_wire::server_flight::{self, Exchanged, Flight, FlightError, Part, ServerHello};
use brisk_wire::suites::{self, Suite};

use crate::error::AuditError;

/// Largest handshake message. Chains of today have 10 KB; a server that announces more is not audited.
pub(crate) const LONGEST_MESSAGE: usize = 128 << 10;

/// Maximum bytes received on one connection.
const MOST_BYTES: usize = 512 << 10;

/// Limits of an audit.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Timeout of each connection until its response is complete. Default: 5 s.
    pub step: Duration,
    /// Timeout of the whole audit. Default: 60 s.
    pub whole: Duration,
    /// Maximum number of connections. Default: 600.
    pub connections: u32,
    /// Connections per second. Default: 50.
    pub rate: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { step: Duration::from_secs(5), whole: Duration::from_mins(1), connections: 600, rate: 50 }
    }
}

/// The audited server and the remaining limits.
#[derive(Debug)]
pub(crate) struct AuditTarget {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) address: SocketAddr,
    /// Other addresses of the name; empty if the caller gave the address.
    pub(crate) others: Vec<SocketAddr>,
    limits: Limits,
    begun: Instant,
    used: Cell<u32>,
    last: Cell<Option<Instant>>,
    step: Cell<&'static str>,
    failures: Cell<u32>,
    has_alerted: Cell<bool>,
    vain_repeats: Cell<u32>,
    silent: RefCell<Vec<&'static str>>,
}

/// Repeated hellos in a row with the same result, after which none is repeated: this is how the server refuses.
const VAIN_REPEATS: u32 = 8;

/// Pause before an unanswered hello is repeated.
const PAUSE: Duration = Duration::from_millis(200);

impl AuditTarget {
    /// Audits the first of at least one address.
    pub(crate) fn new(host: &str, addresses: &[SocketAddr], limits: Limits) -> Self {
        let address = addresses[0];
        Self {
            host: host.to_owned(),
            port: address.port(),
            address,
            others: addresses[1..].iter().copied().filter(|own| *own != address).collect(),
            limits,
            begun: Instant::now(),
            used: Cell::new(0),
            last: Cell::new(None),
            step: Cell::new("the first contact"),
            failures: Cell::new(0),
            has_alerted: Cell::new(false),
            vain_repeats: Cell::new(0),
            silent: RefCell::default(),
        }
    }

    /// Sets the name of the current step for messages.
    pub(crate) fn step(&self, step: &'static str) {
        self.step.set(step);
    }

    /// Number of connections made.
    pub(crate) fn used(&self) -> u32 {
        self.used.get()
    }

    /// Name for SNI; `None` if the host is an address.
    pub(crate) fn name(&self) -> Option<&str> {
        (!is_address(&self.host)).then_some(self.host.as_str())
    }

    /// Reserves one more connection. Waits for [`Limits::rate`]. Returns the deadline of the connection, or
    /// [`AuditError::Connections`] or [`AuditError::Time`] at a limit.
    pub(crate) fn place(&self) -> Result<Instant, AuditError> {
        if self.used.get() >= self.limits.connections {
            return Err(AuditError::Connections { step: self.step.get(), limit: self.limits.connections });
        }
        if let Some(last) = self.last.get() {
            // Counted from the start of the last connection: a slow connection causes no further pause.
            let due = last + Duration::from_secs(1) / self.limits.rate.max(1);
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        // Read after the pause, which may have used up the time.
        let now = Instant::now();
        let end = self.begun + self.limits.whole;
        if now >= end {
            return Err(AuditError::Time { step: self.step.get(), limit: self.limits.whole });
        }
        self.used.set(self.used.get() + 1);
        self.last.set(Some(now));
        Ok(end.min(now + self.limits.step))
    }

    /// Deadline of a task that may take `most`, limited to half of the remaining time so that later steps fit.
    pub(crate) fn budget(&self, most: Duration) -> Instant {
        let now = Instant::now();
        let left = (self.begun + self.limits.whole).saturating_duration_since(now);
        now + most.min(left / 2)
    }

    /// Extends the audit by `time`: a watch does not count against the limit.
    pub(crate) fn extend(&mut self, time: Duration) {
        self.limits.whole += time;
    }

    /// Opens a connection.
    pub(crate) fn open(&self) -> Result<AuditConnection, AuditError> {
        self.open_at(self.address)
    }

    fn open_at(&self, address: SocketAddr) -> Result<AuditConnection, AuditError> {
        let mut failure = None;
        // A server that counts connections may refuse one; it gets another after a moment.
        for wait in [0, 300, 1000] {
            thread::sleep(Duration::from_millis(wait));
            let deadline = self.place()?;
            // `connect_timeout` refuses a timeout of zero.
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => {
                    // Without the option, the audit is only slower.
                    let _ = stream.set_nodelay(true);
                    return Ok(AuditConnection {
                        stream,
                        deadline,
                        flight: Flight::new(LONGEST_MESSAGE),
                        received: 0,
                    });
                }
                // A failure of the first connection of all is no limit of the server: repetitions would only
                // delay the message.
                Err(error) if self.used.get() == 1 => return Err(AuditError::Connect { address, error }),
                Err(error) => failure = Some(error),
            }
        }
        Err(match failure {
            Some(error) => AuditError::Connect { address, error },
            None => AuditError::Time { step: self.step.get(), limit: self.limits.whole },
        })
    }

    /// Sends a `ClientHello` and reads until the server waits for the client or ends the connection.
    pub(crate) fn ask(&self, offer: &Offer) -> Result<Answer, AuditError> {
        self.ask_keeping(offer).map(|(answer, _)| answer)
    }

    /// [`AuditTarget::ask`] that keeps the connection. Repeats an unanswered hello once.
    pub(crate) fn ask_keeping(&self, offer: &Offer) -> Result<(Answer, AuditConnection), AuditError> {
        let mut asked = self.ask_once(offer)?;
        // One lost connection must not count as the refusal of a suite.
        if asked.0.is_cut() && self.vain_repeats.get() < VAIN_REPEATS {
            thread::sleep(PAUSE);
            asked = self.ask_once(offer)?;
            self.vain_repeats.set(if asked.0.is_cut() { self.vain_repeats.get() + 1 } else { 0 });
        }
        let answer = &mut asked.0;
        self.has_alerted.set(self.has_alerted.get() || answer.alert.is_some());
        // A server that has alerts refuses by them; another one may close or reset what it refuses.
        if answer.is_cut() && (self.has_alerted.get() || answer.end == Some(ConnectionEnd::Silent)) {
            answer.has_failed = true;
            self.failed();
        }
        Ok(asked)
    }

    /// Number of unanswered hellos.
    pub(crate) fn failures(&self) -> u32 {
        self.failures.get()
    }

    /// Records that the current [`step`](Self::step) got no response.
    pub(crate) fn failed(&self) {
        self.failures.set(self.failures.get() + 1);
        let mut silent = self.silent.borrow_mut();
        if !silent.contains(&self.step.get()) {
            silent.push(self.step.get());
        }
    }

    /// Steps without a response.
    pub(crate) fn silent_steps(&self) -> Vec<&'static str> {
        self.silent.borrow().clone()
    }

    fn ask_once(&self, offer: &Offer) -> Result<(Answer, AuditConnection), AuditError> {
        let mut line = self.open()?;
        let mut answer = Answer::default();
        if let Err(end) = line.send(&offer.to_bytes()) {
            answer.end = Some(end);
            return Ok((answer, line));
        }
        while !answer.is_whole() {
            match line.part() {
                Ok(part) => answer.take(part)?,
                Err(ConnectionEnd::Wrong(error)) => {
                    return Err(AuditError::Flight { step: self.step.get(), error });
                }
                Err(end) => answer.end = Some(end),
            }
        }
        Ok((answer, line))
    }
}

/// End of a connection before the response was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// Closed by the server.
    Closed,
    /// Reset, or another error of the network.
    Broken,
    /// Nothing, or an incomplete response, in time.
    Silent,
    /// The server sent bytes that are not TLS.
    Wrong(FlightError),
}

/// A connection of the audit.
#[derive(Debug)]
pub(crate) struct AuditConnection {
    stream: TcpStream,
    deadline: Instant,
    flight: Flight,
    received: usize,
}

impl AuditConnection {
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), ConnectionEnd> {
        self.stream.set_write_timeout(Some(self.left()?)).map_err(|_| ConnectionEnd::Broken)?;
        self.stream.write_all(bytes).map_err(|error| end_of(&error))
    }

    fn left(&self) -> Result<Duration, ConnectionEnd> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ConnectionEnd::Silent) } else { Ok(left) }
    }

    /// Limits the remaining time to `most`; never extends it.
    pub(crate) fn hurry(&mut self, time: Duration) {
        self.deadline = self.deadline.min(Instant::now() + time);
    }

    /// Next part of the server's flight.
    pub(crate) fn part(&mut self) -> Result<Part, ConnectionEnd> {
        loop {
            match self.flight.next() {
                Ok(Some(part)) => return Ok(part),
                Ok(None) => self.read()?,
                Err(error) => return Err(ConnectionEnd::Wrong(error)),
            }
        }
    }

    /// Raw bytes received in time, at most 4 KiB.
    pub(crate) fn raw(&mut self) -> Result<Vec<u8>, ConnectionEnd> {
        let mut buffer = [0; 4096];
        let len = self.read_into(&mut buffer)?;
        Ok(buffer[..len].to_vec())
    }

    fn read(&mut self) -> Result<(), ConnectionEnd> {
        let mut buffer = [0; 16 << 10];
        let len = self.read_into(&mut buffer)?;
        self.flight.push(&buffer[..len]);
        Ok(())
    }

    fn read_into(&mut self, buffer: &mut [u8]) -> Result<usize, ConnectionEnd> {
        // The reader bounds single messages only; warnings without an end would keep the audit busy.
        if self.received > MOST_BYTES {
            let what = "answer";
            return Err(ConnectionEnd::Wrong(FlightError::TooLong {
                what,
                length: self.received,
                limit: MOST_BYTES,
            }));
        }
        self.stream.set_read_timeout(Some(self.left()?)).map_err(|_| ConnectionEnd::Broken)?;
        match self.stream.read(buffer) {
            Ok(0) => Err(ConnectionEnd::Closed),
            Ok(len) => {
                self.received += len;
                Ok(len)
            }
            Err(error) => Err(end_of(&error)),
        }
    }
}

fn end_of(error: &io::Error) -> ConnectionEnd {
    match error.kind() {
        // Linux reports the timeout of a blocking socket as `EAGAIN`.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ConnectionEnd::Silent,
        _ => ConnectionEnd::Broken,
    }
}

/// Response of a server to a hello.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) hello: Option<ServerHello>,
    pub(crate) certificates: Vec<Vec<u8>>,
    pub(crate) staple: Option<Vec<u8>>,
    exchange: Option<Vec<u8>>,
    pub(crate) alert: Option<u8>,
    pub(crate) end: Option<ConnectionEnd>,
    /// Neither accepted nor refused: the connection ended without information.
    pub(crate) has_failed: bool,
    is_done: bool,
}

impl Answer {
    /// Whether the connection ended before the server sent anything.
    fn is_cut(&self) -> bool {
        self.hello.is_none() && self.alert.is_none() && self.end.is_some()
    }

    fn is_whole(&self) -> bool {
        self.is_done || self.end.is_some() || self.alert.is_some()
    }

    fn take(&mut self, part: Part) -> Result<(), AuditError> {
        let wrong = |error| AuditError::Flight { step: "the handshake", error };
        match part {
            Part::Handshake(2, body) => {
                let hello = ServerHello::read(&body).map_err(wrong)?;
                // All that follows is encrypted.
                self.is_done = hello.version >= ProtocolVersion::TLS1_3;
                self.hello = Some(hello);
            }
            Part::Handshake(11, body) => {
                self.certificates = server_flight::certificates(&body).map_err(wrong)?;
            }
            Part::Handshake(12, body) => self.exchange = Some(body),
            // The end of a flight, or a session that is resumed.
            Part::Handshake(14, _) | Part::ChangeCipherSpec => self.is_done = true,
            Part::Handshake(22, body) => self.staple = server_flight::staple(&body).ok(),
            // A warning, as that the name is unknown, ends nothing; other than close_notify.
            Part::Alert(Some((1, description))) if description != 0 => {}
            Part::Alert(alert) => self.alert = Some(alert.map_or(0, |(_, description)| description)),
            _ => {}
        }
        Ok(())
    }

    /// The [`ServerHello`], if a handshake of `version` could continue.
    pub(crate) fn agreed(&self, version: ProtocolVersion) -> Option<&ServerHello> {
        self.hello.as_ref().filter(|hello| hello.version == version)
    }

    /// Suite of the hello.
    pub(crate) fn suite(&self) -> Option<&'static Suite> {
        suites::find(self.hello.as_ref()?.suite)
    }

    /// Parameters of the key exchange.
    pub(crate) fn exchanged(&self) -> Option<Exchanged> {
        let hello = self.hello.as_ref()?;
        server_flight::key_exchange(self.exchange.as_ref()?, self.suite()?, hello.version).ok()
    }
}

/// Whether the host is an address: addresses have neither `server_name` nor HSTS.
pub(crate) fn is_address(host: &str) -> bool {
    host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
}
