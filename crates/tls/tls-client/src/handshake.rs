//! The [`Handshake`] of a client: transfers bytes between [`rustls`] and the socket, and collects [`ClientFacts`].

use std::io;
use std::time::{Duration, Instant};

use brisk_telemetry::Resumption;
use brisk_tls_base::record::{OVERHEAD, PLAINTEXT, encode};
use brisk_wire::client_hello::{ClientHello, Progress as HelloProgress};
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use brisk_wire::server_flight::RETRY;
use rustls::HandshakeKind;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::unbuffered::{ConnectionState, TransmitTlsData, UnbufferedStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::error::ClientError;
use super::facts::{ClientFacts, EarlyOutcome};
use super::notes::Notes;
use super::settings::StapleRequest;
use super::staple;

/// Bytes per read: the first flight of most servers.
const FLIGHT: usize = 4096;

/// Maximum number of unprocessed bytes of handshake messages in [`Handshake::incoming`].
const UNPROCESSED_LIMIT: usize = 256 * 1024;

/// Position of the random value of a `ServerHello` in its record.
const RANDOM: std::ops::Range<usize> = 11..43;

/// Size limit for parsing a [`ClientHello`], always one of this client.
const HELLO_LIMIT: usize = 64 * 1024;

/// A handshake in progress, and its remains when it is complete.
pub(super) struct Handshake<'a> {
    pub(super) tls: Box<UnbufferedClientConnection>,
    pub(super) notes: Notes,
    /// Unprocessed bytes from the server.
    pub(super) incoming: Vec<u8>,
    /// Application data that arrived with the end of the handshake.
    pub(super) plaintext: Vec<u8>,
    /// Whether the server has closed its side.
    pub(super) peer_closed: bool,
    outgoing: Vec<u8>,
    staple_request: StapleRequest,
    /// Early data to be sent.
    early: Option<&'a [u8]>,
    /// Counts as accepted once it is sent, until the end of the handshake shows otherwise.
    early_data: EarlyOutcome,
    /// Version of the offered session; `None` without one.
    offered: Option<ProtocolVersion>,
    /// Whether the offered session is one of TLS 1.2 with a ticket.
    offers_ticket: bool,
    /// Number of records in the last written flight.
    records: usize,
    hello_retry: bool,
    received: u64,
    sent: u64,
    first_flight: u64,
    first_write: u64,
}

/// Progress of a handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Incomplete,
    Complete,
    Closed,
}

impl<'a> Handshake<'a> {
    /// A handshake before its first flight, created with these notes. `early` must be permitted by the session, whose
    /// version is `offered`.
    pub(super) fn new(
        tls: UnbufferedClientConnection,
        notes: Notes,
        offered: Option<ProtocolVersion>,
        early: Option<&'a [u8]>,
        staple_request: StapleRequest,
    ) -> Self {
        Self {
            tls: Box::new(tls),
            notes,
            incoming: Vec::new(),
            plaintext: Vec::new(),
            peer_closed: false,
            outgoing: Vec::new(),
            staple_request,
            early,
            early_data: EarlyOutcome::None,
            offered,
            offers_ticket: false,
            records: 0,
            hello_retry: false,
            received: 0,
            sent: 0,
            first_flight: 0,
            first_write: 0,
        }
    }

    /// Computes the first flight without sending it.
    pub(super) fn prepare(&mut self) {
        // An error occurs again when the flight is sent.
        let _ = self.advance();
    }

    /// Runs the handshake to its end. Has no time limit of its own. `name` is the server's name for errors.
    pub(super) async fn run(&mut self, tcp: &mut TcpStream, name: &str) -> Result<(), ClientError> {
        let mut progress = self.advance();
        // Read from the hello, because the ticket of a session is private to rustls.
        self.offers_ticket = self.offered == Some(ProtocolVersion::TLS1_2)
            && matches!(
                ClientHello::read(&self.outgoing, HELLO_LIMIT),
                Ok(HelloProgress::Complete(hello)) if hello.has_ticket
            );
        let mut unsent = None;
        loop {
            if !self.outgoing.is_empty() {
                // An error of sending is reported only if the server has sent no alert, which is more informative.
                match self.send(tcp).await {
                    Ok(()) => self.sent += self.outgoing.len() as u64,
                    Err(error) if progress.is_ok() && self.received > 0 => return Err(error.into()),
                    Err(error) => unsent = Some(error),
                }
                self.outgoing.clear();
            }
            match progress.map_err(|error| ClientError::of_handshake(&error, name))? {
                Progress::Complete => return Ok(()),
                Progress::Closed => return Err(ClientError::Closed),
                Progress::Incomplete if self.incoming.len() > UNPROCESSED_LIMIT => {
                    return Err(ClientError::Protocol("its handshake messages are too long".to_owned()));
                }
                Progress::Incomplete => {}
            }
            self.incoming.reserve(FLIGHT);
            match tcp.read_buf(&mut self.incoming).await? {
                // The system reports a reset once, and the end of the stream afterwards.
                0 => return Err(unsent.map_or(ClientError::Closed, ClientError::from)),
                len => {
                    self.received += len as u64;
                    if let Some(observer) = &self.notes.observer {
                        observer.received(Instant::now(), &self.incoming[self.incoming.len() - len..]);
                    }
                }
            }
            // RFC 8446 section 4.1.3: a `HelloRetryRequest` is a `ServerHello` with a fixed random value.
            // rustls reports the retry of full handshakes only, and resumed ones may have one too.
            self.hello_retry |= self.incoming.get(RANDOM).is_some_and(|random| random == RETRY);
            progress = self.advance();
        }
    }

    async fn send(&mut self, tcp: &mut TcpStream) -> io::Result<()> {
        if let Some(observer) = &self.notes.observer {
            observer.sent(Instant::now(), &self.outgoing);
        }
        // Not `write_all`: the first system call shows how much was sent within the SYN (TCP Fast Open).
        let first = tcp.write(&self.outgoing).await?;
        if self.sent == 0 {
            (self.first_flight, self.first_write) = (self.outgoing.len() as u64, first as u64);
        }
        tcp.write_all(&self.outgoing[first..]).await
    }

    fn advance(&mut self) -> Result<Progress, rustls::Error> {
        let mut used = 0;
        self.records = 0;
        let mut finished = false;
        let result = loop {
            // If only the last flight remains to be written, data that the server sent after its own flight stays
            // unprocessed.
            let incoming = if finished { &mut [] } else { &mut self.incoming[used..] };
            let UnbufferedStatus { discard, state, .. } =
                self.notes.lend(|| self.tls.process_tls_records(incoming));
            let progress = match state {
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    let begin = self.outgoing.len();
                    encode(data, &mut self.outgoing);
                    self.records += 1;
                    // Before the record is sent: rustls itself cannot leave out the request.
                    if self.staple_request == StapleRequest::Omitted {
                        staple::omit_from_record(&mut self.outgoing[begin..]);
                    }
                    finished = !self.tls.is_handshaking();
                    None
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    self.early_data = transmit(data, &mut self.early, self.early_data, &mut self.outgoing);
                    finished.then_some(Ok(Progress::Complete))
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        self.plaintext.extend_from_slice(record.payload);
                    }
                    None
                }
                Ok(ConnectionState::WriteTraffic(_)) => Some(Ok(Progress::Complete)),
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.peer_closed = true;
                    Some(Ok(if self.tls.is_handshaking() { Progress::Closed } else { Progress::Complete }))
                }
                Ok(_) => Some(Ok(Progress::Incomplete)),
                Err(error) => Some(Err(error)),
            };
            used += discard;
            if let Some(result) = progress {
                break result;
            }
        };
        self.incoming.drain(..used);
        if result.is_err() {
            take_alert(&mut self.tls, &mut self.outgoing);
        }
        result
    }
}

impl Handshake<'_> {
    /// The [`ClientFacts`] of the completed handshake with the server `name`, which took `took`.
    pub(super) fn facts(&self, took: Duration, name: &str) -> ClientFacts {
        let tls = &self.tls;
        let resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
        let version = ProtocolVersion(tls.protocol_version().map_or(0, u16::from));
        // rustls does not report for unbuffered connections whether early data was accepted. If it was,
        // `EndOfEarlyData` is in a record of its own before `Finished`, because their keys differ (RFC 8446 section
        // 4.5).
        let early_data = match self.early_data {
            EarlyOutcome::Accepted if !resumed || self.records < 2 => EarlyOutcome::Rejected,
            other => other,
        };
        let resumption = match version {
            _ if !resumed => Resumption::Full,
            ProtocolVersion::TLS1_3 if early_data == EarlyOutcome::Accepted => Resumption::EarlyData,
            ProtocolVersion::TLS1_3 => Resumption::Psk,
            _ if self.offers_ticket => Resumption::Ticket,
            _ => Resumption::SessionId,
        };
        // In a resumed session, rustls reports the certificates of the original one, which were not
        // received again.
        let certificates = tls.peer_certificates().filter(|_| !resumed).unwrap_or_default();
        let protocol = tls.alpn_protocol().map(|name| String::from_utf8_lossy(name).into());
        ClientFacts {
            version,
            suite: CipherSuite(tls.negotiated_cipher_suite().map_or(0, |suite| suite.suite().into())),
            group: tls.negotiated_key_exchange_group().map(|group| NamedGroup(group.name().into())),
            scheme: self.notes.scheme.map(|scheme| SignatureScheme(scheme.into())),
            resumption,
            early_data,
            protocol,
            hello_retry: self.hello_retry,
            // Bytes behind the server's last flight are not of the handshake; `ClientStream` counts them.
            bytes_received: self.received - self.incoming.len() as u64,
            bytes_sent: self.sent,
            first_flight: self.first_flight,
            first_write: self.first_write,
            certificate_bytes: certificates.iter().map(|certificate| certificate.len()).sum(),
            staple_bytes: self.notes.staple_bytes,
            distrust: self
                .notes
                .distrust
                .as_ref()
                .map(|error| ClientError::of_handshake(error, name).to_string().into()),
            handshake_time: took,
        }
    }
}

/// Marks the flight for sending. Appends early data if [`rustls`] permits it after the `ClientHello`.
fn transmit(
    mut data: TransmitTlsData<'_, ClientConnectionData>,
    early: &mut Option<&[u8]>,
    outcome: EarlyOutcome,
    outgoing: &mut Vec<u8>,
) -> EarlyOutcome {
    let mut outcome = outcome;
    if let Some(mut encrypter) = data.may_encrypt_early_data()
        && let Some(early) = early.take()
    {
        for plaintext in early.chunks(PLAINTEXT) {
            let begin = outgoing.len();
            outgoing.resize(begin + plaintext.len() + OVERHEAD, 0);
            // Fails only beyond the limit of the session, with which `Client::begin` has compared the
            // length.
            let len = encrypter.encrypt(plaintext, &mut outgoing[begin..]).unwrap_or(0);
            outgoing.truncate(begin + len);
        }
        outcome = EarlyOutcome::Accepted;
    }
    data.done();
    outcome
}

/// Appends the alert that [`rustls`] has prepared after an error.
pub(super) fn take_alert(tls: &mut UnbufferedClientConnection, outgoing: &mut Vec<u8>) {
    while tls.wants_write() {
        let Ok(ConnectionState::EncodeTlsData(data)) = tls.process_tls_records(&mut []).state else { return };
        encode(data, outgoing);
    }
}
