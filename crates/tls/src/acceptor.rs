//! Takes a TCP connection through the handshake: hello, host, certificate, key operation, session.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_certs::{Certificate, ClientAbilities, HostMap, choose};
use brisk_keys::PrivateKeyEngine;
use brisk_session::{SessionStore, TicketKeyring};
use brisk_telemetry::{HandshakeOutcome, Milestone, Resumption, Timeline, TlsFacts};
use brisk_wire::client_hello::{ClientHello, HelloError, Progress as HelloProgress};
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use rustls::server::UnbufferedServerConnection;
use rustls::{AlertDescription, HandshakeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::TlsError;
use crate::handshake::{Handshake, Progress};
use crate::host_config::{ConfigBuilder, HostConfig};
use crate::notes::Notes;
use crate::settings::{HostSettings, TlsSettings};
use crate::stream::Stream;

/// Most bytes of handshake messages that wait to be processed: a long client certificate chain fits.
const UNPROCESSED_LIMIT: usize = 64 * 1024;

/// Alerts sent before rustls has a connection: level fatal (2), then the description of RFC 8446 section 6.
const ALERT_DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];
const ALERT_INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];
const ALERT_UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// The answer to HTTP on the TLS port.
const PLAIN_HTTP_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
Content-Length: 70\r\nConnection: close\r\n\r\nThis port speaks HTTPS, not plain HTTP. Use https:// in the address.\r\n";

/// Accepts TLS for a set of hosts. One for all workers; replaced whole on reload.
pub struct Acceptor {
    hosts: HostMap<Host>,
    settings: TlsSettings,
}

#[derive(Debug)]
struct Host {
    index: usize,
    config: HostConfig,
    certificates: Vec<Arc<Certificate>>,
}

/// A completed handshake.
pub struct Accepted {
    /// The connection.
    pub stream: Stream,
    /// What was negotiated.
    pub facts: TlsFacts,
    /// Position of the host in the settings that the acceptor was made of.
    pub host: usize,
}

/// Why a handshake did not complete. The client has been told what TLS lets one tell.
#[derive(Debug)]
pub struct Refusal {
    /// The class of failure, for metrics and the log.
    pub outcome: HandshakeOutcome,
    /// More about it, for the log.
    pub detail: Option<String>,
    /// Name that the client asked for, where it came so far.
    pub server_name: Option<String>,
}

impl Refusal {
    /// A refusal without more to say.
    pub fn new(outcome: HandshakeOutcome) -> Self {
        Self { outcome, detail: None, server_name: None }
    }

    /// A refusal for a reason that the log should have.
    pub fn because(outcome: HandshakeOutcome, reason: &impl ToString) -> Self {
        Self { detail: Some(reason.to_string()), ..Self::new(outcome) }
    }
}

impl Acceptor {
    /// Prepares the configuration of each host. `sessions` and `keyring` are shared by all hosts, and outlive a
    /// reload so that sessions do too; a session resumes only under the name it was made for.
    pub fn new(
        settings: TlsSettings,
        hosts: &[HostSettings],
        engine: &Arc<dyn PrivateKeyEngine>,
        sessions: &Arc<dyn SessionStore>,
        keyring: &Arc<TicketKeyring>,
    ) -> Result<Self, TlsError> {
        if hosts.is_empty() {
            return Err(TlsError::NoHost);
        }
        let builder = ConfigBuilder::new(&settings, sessions, keyring)?;
        let mut map = HostMap::new(settings.unknown_host);
        for (index, host) in hosts.iter().enumerate() {
            let config = builder.host(host, engine)?;
            let entry = Host { index, config, certificates: host.certificates.clone() };
            map.add(host.names.iter().map(String::as_str), entry)?;
        }
        map.set_default(hosts.iter().position(|host| host.default).unwrap_or(0));
        Ok(Self { hosts: map, settings })
    }

    /// Runs the handshake on `io`, of which `received` has been read already. The caller limits the time it takes.
    pub async fn accept(
        &self,
        mut io: TcpStream,
        received: Vec<u8>,
        timeline: &mut Timeline,
    ) -> Result<Accepted, Refusal> {
        let (hello, incoming) = self.read_hello(&mut io, received).await?;
        timeline.mark(Milestone::ClientHello);
        let started = Instant::now();
        let result = if let Some(host) = self.hosts.get(hello.server_name.as_deref()).host() {
            negotiate(host, &hello, &mut io, incoming, timeline).await
        } else {
            send_last(&mut io, &ALERT_UNRECOGNIZED_NAME).await;
            Err(Refusal::new(HandshakeOutcome::UnknownName))
        };
        match result {
            Ok(Negotiated { handshake, notes, host, received, sent }) => {
                timeline.mark(Milestone::HandshakeFinished);
                let facts = facts(&handshake, notes, hello.server_name, started.elapsed());
                let stream = Stream::new(io, *handshake, received, sent);
                Ok(Accepted { stream, facts, host })
            }
            Err(refusal) => Err(Refusal { server_name: hello.server_name, ..refusal }),
        }
    }

    async fn read_hello(
        &self,
        io: &mut TcpStream,
        mut incoming: Vec<u8>,
    ) -> Result<(ClientHello, Vec<u8>), Refusal> {
        loop {
            match ClientHello::read(&incoming, self.settings.hello_size) {
                Ok(HelloProgress::Complete(hello)) => return Ok((*hello, incoming)),
                Ok(HelloProgress::Incomplete) => {}
                Err(error) => return Err(refuse_hello(io, error).await),
            }
            incoming.reserve(2048);
            match io.read_buf(&mut incoming).await {
                Ok(0) => return Err(Refusal::new(HandshakeOutcome::ClientClosed)),
                Ok(_) => {}
                Err(error) => return Err(lost(&error)),
            }
        }
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A handshake that has completed, before it is a stream.
struct Negotiated {
    handshake: Box<Handshake>,
    notes: Notes,
    host: usize,
    received: u64,
    sent: u64,
}

async fn negotiate(
    host: &Host,
    hello: &ClientHello,
    io: &mut TcpStream,
    incoming: Vec<u8>,
    timeline: &mut Timeline,
) -> Result<Negotiated, Refusal> {
    let tls = UnbufferedServerConnection::new(Arc::clone(host.config.choose(hello)))
        .map_err(|error| Refusal::because(HandshakeOutcome::Internal, &error))?;
    let (mut received, mut sent) = (incoming.len() as u64, 0);
    let chosen = choose(&host.certificates, &ClientAbilities::from(hello));
    let chosen = chosen.and_then(|chosen| host.certificates.iter().position(|own| Arc::ptr_eq(own, chosen)));
    let mut handshake = Box::new(Handshake::new(Box::new(tls), incoming, chosen));
    let mut notes = Notes::default();
    loop {
        // Fails only when there is no memory for a stack.
        let advanced = handshake.advance().await;
        let ((advanced, result), noted) =
            advanced.map_err(|error| Refusal::because(HandshakeOutcome::Internal, &error))?;
        handshake = advanced;
        notes.merge(noted);
        mark_notes(timeline, &noted);
        match result {
            // Tickets wait for the first answer, or for the connection to rest.
            Ok(Progress::Complete) => {
                return Ok(Negotiated { handshake, notes, host: host.index, received, sent });
            }
            Ok(Progress::Closed) => return Err(Refusal::new(HandshakeOutcome::ClientClosed)),
            Ok(Progress::Incomplete) if handshake.incoming.len() > UNPROCESSED_LIMIT => {
                send_last(io, &ALERT_DECODE_ERROR).await;
                return Err(Refusal::new(HandshakeOutcome::TooLarge));
            }
            Ok(Progress::Incomplete) => {}
            // rustls has no alert for an engine that failed. The flight that was to be signed has not been sent, so the
            // client reads plaintext still.
            Err(error) if notes.key_failed => {
                send_last(io, &ALERT_INTERNAL_ERROR).await;
                return Err(refusal(&error, notes));
            }
            Err(error) => {
                send_last(io, &handshake.outgoing).await;
                return Err(refusal(&error, notes));
            }
        }
        io.write_all(&handshake.outgoing).await.map_err(|error| lost(&error))?;
        sent += handshake.outgoing.len() as u64;
        handshake.outgoing.clear();
        handshake.incoming.reserve(1024);
        match io.read_buf(&mut handshake.incoming).await {
            Ok(0) => return Err(Refusal::new(HandshakeOutcome::ClientClosed)),
            Ok(len) => received += len as u64,
            Err(error) => return Err(lost(&error)),
        }
    }
}

fn mark_notes(timeline: &mut Timeline, notes: &Notes) {
    if let Some(at) = notes.certificate_chosen {
        timeline.mark_at(Milestone::CertificateChosen, at);
    }
    if let Some((started, took)) = notes.key_operation {
        timeline.mark_at(Milestone::KeyOperationStarted, started);
        timeline.mark_at(Milestone::KeyOperationFinished, started + took);
    }
}

fn facts(handshake: &Handshake, notes: Notes, server_name: Option<String>, took: Duration) -> TlsFacts {
    let tls = &handshake.tls;
    let kind = tls.handshake_kind();
    let resumed = kind == Some(HandshakeKind::Resumed);
    let version = ProtocolVersion(tls.protocol_version().map_or(0, u16::from));
    let resumption = match notes.resumption.filter(|_| resumed) {
        None => Resumption::Full,
        // In TLS 1.3 a ticket is a PSK identity (RFC 8446 section 2.2).
        Some(_) if version == ProtocolVersion::TLS1_3 => Resumption::Psk,
        Some(source) => source,
    };
    TlsFacts {
        version,
        suite: CipherSuite(tls.negotiated_cipher_suite().map_or(0, |suite| suite.suite().into())),
        group: tls.negotiated_key_exchange_group().map(|group| NamedGroup(group.name().into())),
        scheme: notes.scheme.map(SignatureScheme),
        resumption,
        resumption_failure: None,
        early_data: None,
        server_name: server_name.map(String::into_boxed_str),
        alpn: tls.alpn_protocol().map(|protocol| match protocol {
            b"h2" => "h2",
            b"http/1.0" => "http/1.0",
            _ => "http/1.1",
        }),
        client_subject: tls
            .peer_certificates()
            .and_then(|chain| brisk_certs::subject(chain.first()?))
            .map(String::into_boxed_str),
        hello_retry: kind == Some(HandshakeKind::FullWithHelloRetryRequest),
        handshake_time: took,
    }
}

async fn refuse_hello(io: &mut TcpStream, error: HelloError) -> Refusal {
    let (outcome, answer): (_, &[u8]) = match error {
        HelloError::PlainHttp => (HandshakeOutcome::PlainHttp, PLAIN_HTTP_ANSWER),
        HelloError::NotTls => (HandshakeOutcome::NotTls, &[]),
        HelloError::TooLarge { .. } => (HandshakeOutcome::TooLarge, &ALERT_DECODE_ERROR),
        _ => (HandshakeOutcome::Malformed, &ALERT_DECODE_ERROR),
    };
    send_last(io, answer).await;
    Refusal::because(outcome, &error)
}

/// Sends a last word and lets the client read it: closing with unread data would reset the connection.
async fn send_last(io: &mut TcpStream, bytes: &[u8]) {
    if bytes.is_empty() || io.write_all(bytes).await.is_err() {
        return;
    }
    if io.shutdown().await.is_ok() {
        brisk_net::linger(io).await;
    }
}

fn lost(error: &std::io::Error) -> Refusal {
    Refusal::because(HandshakeOutcome::ClientClosed, error)
}

fn refusal(error: &rustls::Error, notes: Notes) -> Refusal {
    use rustls::Error;
    let outcome = match error {
        _ if notes.key_failed => HandshakeOutcome::KeyOperation,
        _ if notes.no_certificate => HandshakeOutcome::NoCertificate,
        Error::AlertReceived(AlertDescription::CloseNotify | AlertDescription::UserCanceled) => {
            HandshakeOutcome::ClientClosed
        }
        Error::AlertReceived(_) => HandshakeOutcome::Alert,
        Error::InvalidMessage(_) => HandshakeOutcome::Malformed,
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => HandshakeOutcome::ClientCertificate,
        Error::PeerIncompatible(_) => HandshakeOutcome::NothingInCommon,
        Error::General(_) => HandshakeOutcome::Internal,
        _ => HandshakeOutcome::ProtocolError,
    };
    Refusal::because(outcome, error)
}

#[cfg(test)]
mod tests;
