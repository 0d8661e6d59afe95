//! One handshake on its socket, from the whole hello to a stream.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use brisk_telemetry::{HandshakeOutcome, Milestone, ResumptionFailure, Timeline, TlsFacts};
use brisk_wire::client_hello::ClientHello;
use brisk_wire::registry::ProtocolVersion;
use rustls::AlertDescription;
use rustls::server::UnbufferedServerConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::facts::HostFacts;
use super::{
    ALERT_DECODE_ERROR, ALERT_HANDSHAKE_FAILURE, ALERT_INTERNAL_ERROR, Host, Refusal, facts, lost, send_last,
};
use crate::groups;
use crate::handshake::{Handshake, Progress};
use crate::notes::{HandshakeInput, Notes};
use crate::stream::Stream;

/// Maximum of bytes of handshake messages that wait to be processed: a long client certificate chain fits.
const UNPROCESSED_LIMIT: usize = 64 * 1024;

/// A handshake, its host, and the facts noted so far.
pub(super) struct Negotiation {
    handshake: Box<Handshake>,
    notes: Notes,
    host: usize,
    facts: HostFacts,
    received: u64,
    sent: u64,
}

impl Negotiation {
    /// Runs the handshake to its end, or until there is early data.
    pub(super) async fn run(
        host: &Host,
        hello: &ClientHello,
        client: Option<IpAddr>,
        io: &mut TcpStream,
        incoming: Vec<u8>,
        (timeline, missed): (&mut Timeline, &mut Option<ResumptionFailure>),
    ) -> Result<Self, Refusal> {
        let mut negotiation = Self::new(host, hello, client, incoming)?;
        loop {
            let progress;
            (negotiation, progress) = negotiation.advance(io, timeline).await?;
            *missed = negotiation.notes.resumption_failure;
            match progress {
                // Tickets, or our flight before an answer to early data, go with what is sent first: a system call and a
                // packet less.
                Progress::Complete | Progress::EarlyData => return Ok(negotiation),
                Progress::Incomplete => {
                    negotiation.send(io).await?;
                    negotiation.receive(io).await?;
                }
                Progress::Closed => return Err(Refusal::new(HandshakeOutcome::ClientClosed)),
            }
        }
    }

    fn new(
        host: &Host,
        hello: &ClientHello,
        client: Option<IpAddr>,
        incoming: Vec<u8>,
    ) -> Result<Self, Refusal> {
        let config = host.config.choose(hello);
        let takes_early_data = config.max_early_data_size > 0;
        let tls = UnbufferedServerConnection::new(Arc::clone(config))
            .map_err(|error| Refusal::because(HandshakeOutcome::Internal, &error))?;
        let input = HandshakeInput {
            group: groups::choose(hello),
            early_data: hello.early_data && takes_early_data,
            tls12: !hello.offers_version(ProtocolVersion::TLS1_3),
            client,
        };
        let received = incoming.len() as u64;
        let handshake = Handshake::new(Box::new(tls), incoming, input, host.shown.choose(hello));
        let handshake = Box::new(handshake);
        let facts = HostFacts { takes_early_data, keeps_client_chain: host.keeps_client_chain };
        let host = host.index;
        Ok(Self { handshake, notes: Notes::default(), host, facts, received, sent: 0 })
    }

    /// Processes the received bytes; callbacks may wait. If that fails, the client is sent an alert.
    async fn advance(
        mut self,
        io: &mut TcpStream,
        timeline: &mut Timeline,
    ) -> Result<(Self, Progress), Refusal> {
        // Fails only when there is no memory for a stack.
        let advanced = self.handshake.advance().await;
        let ((handshake, result), noted) =
            advanced.map_err(|error| Refusal::because(HandshakeOutcome::Internal, &error))?;
        self.handshake = handshake;
        self.notes.merge(noted);
        mark(timeline, &noted);
        let error = match result {
            Ok(Progress::Incomplete) if self.handshake.incoming.len() > UNPROCESSED_LIMIT => {
                send_last(io, &ALERT_DECODE_ERROR).await;
                return Err(Refusal::new(HandshakeOutcome::TooLarge));
            }
            Ok(progress) => return Ok((self, progress)),
            Err(error) => error,
        };
        send_last(io, self.alert(&error)).await;
        Err(refusal(&error, self.notes))
    }

    /// The alert for `error`: that of rustls, with these exceptions, of which each comes before anything is encrypted.
    fn alert(&self, error: &rustls::Error) -> &[u8] {
        let version = self.handshake.tls.protocol_version();
        match error {
            // rustls has no alert for an engine that failed, or was not asked.
            _ if self.notes.key_failed || self.notes.limited => &ALERT_INTERNAL_ERROR,
            // RFC 8446 section 4.4.2.2, RFC 5246 section 7.4.1.3: nothing in common. rustls sends access_denied.
            _ if self.notes.no_certificate => &ALERT_HANDSHAKE_FAILURE,
            // RFC 5246 section 7.4.6: certificate_required is an alert of TLS 1.3.
            rustls::Error::NoCertificatesPresented if version == Some(rustls::ProtocolVersion::TLSv1_2) => {
                &ALERT_HANDSHAKE_FAILURE
            }
            _ => &self.handshake.outgoing,
        }
    }

    async fn send(&mut self, io: &mut TcpStream) -> Result<(), Refusal> {
        if self.handshake.outgoing.is_empty() {
            // The client sends its flight in pieces, and may wait with the next one.
            brisk_net::acknowledge(io);
            return Ok(());
        }
        io.write_all(&self.handshake.outgoing).await.map_err(|error| lost(&error))?;
        self.sent += self.handshake.outgoing.len() as u64;
        self.handshake.outgoing.clear();
        Ok(())
    }

    async fn receive(&mut self, io: &mut TcpStream) -> Result<(), Refusal> {
        self.handshake.incoming.reserve(1024);
        match io.read_buf(&mut self.handshake.incoming).await {
            Ok(0) => Err(Refusal::new(HandshakeOutcome::ClientClosed)),
            Ok(len) => {
                self.received += len as u64;
                Ok(())
            }
            Err(error) => Err(lost(&error)),
        }
    }

    /// The facts of the handshake, which took `took`.
    pub(super) fn facts(&self, hello: &ClientHello, took: Duration) -> TlsFacts {
        facts::of(&self.handshake, self.notes, hello, self.facts, took)
    }

    /// The connection on `io`, and the position of its host.
    pub(super) fn into_stream(self, io: TcpStream) -> (Stream, usize) {
        (Stream::new(io, *self.handshake, self.received, self.sent), self.host)
    }
}

fn mark(timeline: &mut Timeline, notes: &Notes) {
    if let Some(at) = notes.certificate_chosen {
        timeline.mark_at(Milestone::CertificateChosen, at);
    }
    if let Some((started, took)) = notes.key_operation {
        timeline.mark_at(Milestone::KeyOperationStarted, started);
        timeline.mark_at(Milestone::KeyOperationFinished, started + took);
    }
}

fn refusal(error: &rustls::Error, notes: Notes) -> Refusal {
    use rustls::Error;
    let outcome = match error {
        _ if notes.limited => HandshakeOutcome::Limited,
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
