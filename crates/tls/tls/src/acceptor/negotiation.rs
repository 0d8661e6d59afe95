//! A handshake on its socket, from the complete [`ClientHello`] to a [`Stream`].

use std::time::Duration;

use brisk_telemetry::{HandshakeOutcome, Milestone, Timeline, TlsFacts};
use brisk_wire::client_hello::ClientHello;
use rustls::AlertDescription;
use rustls::server::UnbufferedServerConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::facts::{HostFacts, Negotiated};
use super::selection::Preparation;
use super::{Trace, alert, facts, lost, send_last};
use crate::demands::Demands;
use crate::handshake::{Handshake, Progress};
use crate::notes::Notes;
use crate::refusal::{Refusal, own_alert};
use crate::settings::Records;
use crate::stream::Stream;

/// Maximum number of unprocessed bytes of handshake messages in [`Handshake::incoming`]; a long client certificate chain fits.
const UNPROCESSED_LIMIT: usize = 64 * 1024;

/// A [`Handshake`], its host, and the [`Notes`] so far.
pub(super) struct Negotiation {
    handshake: Box<Handshake>,
    notes: Notes,
    demands: Demands,
    facts: HostFacts,
}

impl Negotiation {
    /// Runs the handshake until [`Progress::Complete`] or [`Progress::EarlyData`].
    pub(super) async fn run(
        prepared: Preparation,
        io: &mut TcpStream,
        incoming: Vec<u8>,
        trace: &mut Trace<'_>,
    ) -> Result<Self, Refusal> {
        let mut negotiation = Self::new(prepared, incoming)?;
        loop {
            let progress;
            (negotiation, progress) = negotiation.advance(io, trace).await?;
            *trace.missed = negotiation.notes.resumption_failure;
            match progress {
                // Tickets, or the server's flight before an early response, are sent with the first data, which saves a
                // system call and a packet.
                Progress::Complete | Progress::EarlyData => return Ok(negotiation),
                Progress::Incomplete => {
                    *trace.sent += negotiation.send(io).await?;
                    *trace.received += negotiation.receive(io).await?;
                }
                Progress::Closed => return Err(Refusal::new(HandshakeOutcome::ClientClosed)),
            }
        }
    }

    fn new(prepared: Preparation, incoming: Vec<u8>) -> Result<Self, Refusal> {
        let Preparation { config, certificate, input, demands, facts } = prepared;
        let tls = UnbufferedServerConnection::new(config)
            .map_err(|error| Refusal::because(HandshakeOutcome::Internal, &error))?;
        let handshake = Box::new(Handshake::new(Box::new(tls), incoming, input, certificate));
        Ok(Self { handshake, notes: Notes::default(), demands, facts })
    }

    /// Processes the received bytes; callbacks may wait. On an error, sends an alert to the client.
    async fn advance(
        mut self,
        io: &mut TcpStream,
        trace: &mut Trace<'_>,
    ) -> Result<(Self, Progress), Refusal> {
        // Fails only if there is no memory for a stack.
        let advanced = self.handshake.advance().await;
        let ((handshake, result), noted) =
            advanced.map_err(|error| Refusal::because(HandshakeOutcome::Internal, &error))?;
        self.handshake = handshake;
        self.notes.merge(noted);
        mark(trace.timeline, &noted);
        let error = match result {
            Ok(Progress::Incomplete) if self.handshake.incoming.len() > UNPROCESSED_LIMIT => {
                send_last(io, &alert(AlertDescription::DecodeError), trace).await;
                return Err(Refusal::new(HandshakeOutcome::TooLarge));
            }
            Ok(progress) => return Ok((self, progress)),
            Err(error) => error,
        };
        match own_alert(&error, self.notes, self.handshake.tls.protocol_version()) {
            Some(description) => send_last(io, &alert(description), trace).await,
            None => send_last(io, &self.handshake.outgoing, trace).await,
        }
        Err(Refusal::of(&error, self.notes))
    }

    /// Sends the server's flight and returns its length.
    async fn send(&mut self, io: &mut TcpStream) -> Result<u64, Refusal> {
        if self.handshake.outgoing.is_empty() {
            // Acknowledged now, because a client that sends its flight in pieces may wait before the next one.
            brisk_net::acknowledge(io);
            return Ok(0);
        }
        io.write_all(&self.handshake.outgoing).await.map_err(|error| lost(&error))?;
        let sent = self.handshake.outgoing.len() as u64;
        self.handshake.outgoing.clear();
        Ok(sent)
    }

    /// Receives part of the client's flight and returns its length.
    async fn receive(&mut self, io: &mut TcpStream) -> Result<u64, Refusal> {
        // The second flight of a client is short unless it contains a certificate.
        self.handshake.incoming.reserve(1024);
        match io.read_buf(&mut self.handshake.incoming).await {
            Ok(0) => Err(Refusal::new(HandshakeOutcome::ClientClosed)),
            Ok(len) => Ok(len as u64),
            Err(error) => Err(lost(&error)),
        }
    }

    /// The [`TlsFacts`] of the handshake, which took `took`.
    pub(super) fn facts(&self, hello: &ClientHello, took: Duration) -> TlsFacts {
        let Handshake { tls, early_data, hello_retry, .. } = &*self.handshake;
        let negotiated = Negotiated { tls, early_data: *early_data, hello_retry: *hello_retry };
        facts::of(&negotiated, self.notes, hello, self.facts, took)
    }

    /// Converts the handshake into a [`Stream`] on `io`, and returns the [`Demands`] that its client has met.
    pub(super) fn into_stream(self, io: TcpStream, records: Records, trace: &Trace<'_>) -> (Stream, Demands) {
        (Stream::new(io, *self.handshake, records, *trace.received, *trace.sent), self.demands)
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
