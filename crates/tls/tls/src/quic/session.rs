//! The [`Session`] of one connection: collects the [`ClientHello`], selects the host, then performs the handshake with
//! [`rustls`].

use std::any::Any;
use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_telemetry::{HandshakeOutcome, TlsFacts};
use brisk_wire::client_hello::{ClientHello, HelloError, Progress};
use brisk_wire::ja4::Transport;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::AlertDescription;
use rustls::quic::{Connection, DirectionalKeys, KeyChange, ServerConnection, Version};
use rustls::sign::CertifiedKey;

use super::challenge;
use super::keys::{self, KeyPhases};
use super::padding::{self, Packets};
use crate::acceptor::Acceptor;
use crate::acceptor::facts::{self, HostFacts, Negotiated};
use crate::acceptor::selection::Preparation;
use crate::demands::Demands;
use crate::notes::{self, HandshakeInput, Notes, Running};
use crate::refusal::{Refusal, own_alert};
use crate::suspend;

/// A [`Session`] that begins when the `ClientHello` is complete, because that decides about the host.
pub(super) struct LazySession {
    acceptor: Arc<Acceptor>,
    initial: Arc<QuicServerConfig>,
    version: u32,
    /// Our transport parameters, encoded.
    parameters: Vec<u8>,
    state: State,
}

enum State {
    /// Bytes of the `ClientHello` until now.
    Hello(Vec<u8>),
    Handshake(Box<Handshake>),
    /// The handshake was refused.
    Refused,
}

/// A handshake with its host, from the complete `ClientHello` on.
struct Handshake {
    tls: Connection,
    hello: ClientHello,
    host: usize,
    demands: Demands,
    facts: HostFacts,
    certificate: Option<Arc<CertifiedKey>>,
    input: HandshakeInput,
    notes: Notes,
    started: Instant,
    took: Option<Duration>,
    key_phases: Option<KeyPhases>,
    /// Number of key changes: the first is for Handshake packets.
    key_changes: u8,
    is_announced: bool,
}

/// The outcome of a handshake that is complete or has accepted early data; the value of
/// [`Session::handshake_data`].
#[derive(Debug)]
pub struct Handshaken {
    /// The negotiated parameters.
    pub facts: TlsFacts,
    /// Index of the host in the list given to `Acceptor::new`.
    pub host: usize,
    /// The demands of the host on client certificates.
    pub demands: Demands,
    /// Whether early data was accepted, which may be a replay until the handshake is complete, though not of data that
    /// this fleet has accepted before.
    pub early_data: bool,
}

impl LazySession {
    pub(super) fn new(
        acceptor: Arc<Acceptor>,
        initial: Arc<QuicServerConfig>,
        version: u32,
        parameters: &TransportParameters,
    ) -> Self {
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        Self { acceptor, initial, version, parameters: encoded, state: State::Hello(Vec::new()) }
    }

    fn handshake(&self) -> Option<&Handshake> {
        match &self.state {
            State::Handshake(handshake) => Some(handshake),
            State::Hello(_) | State::Refused => None,
        }
    }

    /// Selects the host for a complete [`ClientHello`]. Waits for its certificate.
    fn begin(&mut self, hello: ClientHello) -> Result<Box<Handshake>, Failure> {
        let started = Instant::now();
        // From the `SuspendedCall`, because quinn-proto gives a session no address.
        let client = notes::current().input.client;
        let (host, config) = self
            .acceptor
            .select_for_quic(&hello)
            .map_err(|(alert, refusal)| Failure { alert, refusal: refusal.refined(hello.clone()) })?;
        let prepared = suspend::wait(host.prepare(config, &hello, client));
        let internal = |reason: &str| {
            let refusal = Refusal::because(HandshakeOutcome::Internal, &reason);
            Failure::new(AlertDescription::InternalError, refusal)
        };
        let prepared =
            prepared.ok_or_else(|| internal("a certificate is loaded outside of a suspended call"))?;
        let Preparation { config, certificate, input, demands, facts } = prepared;
        let parameters = std::mem::take(&mut self.parameters);
        let tls = ServerConnection::new(config, Version::V1, parameters)
            .map_err(|error| internal(&error.to_string()))?;
        Ok(Box::new(Handshake {
            tls: Connection::Server(tls),
            hello,
            host: host.place,
            demands,
            facts,
            certificate,
            input,
            notes: Notes::default(),
            started,
            took: None,
            key_phases: None,
            key_changes: 0,
            is_announced: false,
        }))
    }

    /// Processes handshake bytes; callbacks may wait.
    fn read(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let collected = match &mut self.state {
            State::Handshake(handshake) => return handshake.read(bytes),
            State::Refused => {
                let refusal = Refusal::new(HandshakeOutcome::ProtocolError);
                return Err(Failure::new(AlertDescription::UnexpectedMessage, refusal));
            }
            State::Hello(collected) => collected,
        };
        collected.extend_from_slice(bytes);
        let mut hello = match ClientHello::read_message(collected, self.acceptor.hello_size()) {
            Ok(Progress::Incomplete) => return Ok(false),
            Ok(Progress::Complete(hello)) => *hello,
            Err(error) => return Err(Failure::of_hello(&error)),
        };
        let collected = std::mem::take(collected);
        if self.acceptor.computes_ja4() {
            hello.fingerprint_message(&collected, Transport::Quic);
        }
        let mut handshake = self.begin(hello)?;
        let read = handshake.read(&collected);
        self.state = State::Handshake(handshake);
        read
    }
}

impl Session for LazySession {
    fn initial_keys(&self, id: &ConnectionId, _side: Side) -> Keys {
        keys::initial(self.version, id, || self.initial.initial_keys(self.version, id))
            .expect("the version of the connection")
    }

    /// The [`Handshaken`] of a session whose hello was complete.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.handshake()?.outcome()))
    }

    // Not used: `Handshaken::facts` describes the certificate of the client.
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.handshake()?.tls.zero_rtt_keys()?;
        Some((Box::new(keys.header), padding::wrap(Box::new(keys.packet), Packets::Data)))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.handshake().is_none_or(|handshake| handshake.tls.is_handshaking())
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        self.read(bytes).map_err(|Failure { alert, refusal }| {
            // The collected bytes are used up, so later bytes must not be read as another `ClientHello`.
            if self.handshake().is_none() {
                self.state = State::Refused;
            }
            notes::refuse(refusal);
            // Without the reason, as over TCP: it is for the log.
            TransportError {
                code: TransportErrorCode::crypto(alert.into()),
                frame: None,
                reason: String::new(),
            }
        })
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(encoded) = self.handshake().and_then(|handshake| handshake.tls.quic_transport_parameters())
        else {
            return Ok(None);
        };
        Ok(Some(TransportParameters::read(Side::Server, &mut Cursor::new(encoded))?))
    }

    fn write_handshake(&mut self, buffer: &mut Vec<u8>) -> Option<Keys> {
        let State::Handshake(handshake) = &mut self.state else { return None };
        let keys = match handshake.tls.write_hs(buffer)? {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                handshake.key_phases = Some(KeyPhases::new(next));
                keys
            }
        };
        handshake.key_changes = handshake.key_changes.saturating_add(1);
        // rustls changes to the keys of Handshake packets first, then to the keys of 1-RTT packets.
        let packets = if handshake.key_changes == 1 { Packets::Handshake } else { Packets::Data };
        let (local_header, local) = boxed(keys.local);
        let (remote_header, remote) = boxed(keys.remote);
        let header = KeyPair { local: local_header, remote: remote_header };
        let keys = padding::joining(Keys { header, packet: KeyPair { local, remote } }, packets);
        Some(if packets == Packets::Data { challenge::trimming(keys) } else { keys })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let State::Handshake(handshake) = &mut self.state else { return None };
        Some(handshake.key_phases.as_mut()?.next())
    }

    /// Servers receive no Retry packets.
    fn is_valid_retry(&self, _original_id: &ConnectionId, _header: &[u8], _payload: &[u8]) -> bool {
        false
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let handshake = self.handshake().ok_or(ExportKeyingMaterialError)?;
        let exported = handshake.tls.export_keying_material(output, label, Some(context));
        exported.map(drop).map_err(|_| ExportKeyingMaterialError)
    }
}

fn boxed(keys: DirectionalKeys) -> (Box<dyn HeaderKey>, Box<dyn PacketKey>) {
    (Box::new(keys.header), Box::new(keys.packet))
}

impl Handshake {
    /// Lets [`rustls`] process `bytes`; returns whether [`Handshaken`] is available for the first time.
    fn read(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        // The callbacks use thread-local notes, which belong to another handshake when this call is not suspendable.
        let mut running = Running::new(self.input, self.certificate.clone());
        notes::swap(&mut running);
        let result = self.tls.read_hs(bytes);
        notes::swap(&mut running);
        self.notes.merge(running.notes);
        result.map_err(|error| {
            let alert = own_alert(&error, self.notes, self.tls.protocol_version());
            let alert = alert.or_else(|| self.tls.alert()).unwrap_or(AlertDescription::InternalError);
            Failure { alert, refusal: Refusal::of(&error, self.notes).refined(self.hello.clone()) }
        })?;
        if self.has_early_data() && !self.input.early_data {
            // Unreachable by construction, since early data is then disabled: the last line of defence against replays.
            let reason = "early data with a session that others may have";
            let refusal = Refusal::because(HandshakeOutcome::Internal, &reason);
            return Err(Failure::new(AlertDescription::InternalError, refusal));
        }
        if !self.tls.is_handshaking() || self.has_early_data() {
            self.took.get_or_insert_with(|| self.started.elapsed());
        }
        Ok(!std::mem::replace(&mut self.is_announced, true))
    }

    fn has_early_data(&self) -> bool {
        self.tls.zero_rtt_keys().is_some()
    }

    fn outcome(&self) -> Handshaken {
        let early_data = self.has_early_data();
        let took = self.took.unwrap_or_else(|| self.started.elapsed());
        let hello_retry = self.tls.handshake_kind() == Some(rustls::HandshakeKind::FullWithHelloRetryRequest);
        let negotiated = Negotiated { tls: &self.tls, early_data, hello_retry };
        let facts = facts::of(&negotiated, self.notes, &self.hello, self.facts, took);
        Handshaken { facts, host: self.host, demands: self.demands.clone(), early_data }
    }
}

/// A refused handshake, and the alert for its client.
struct Failure {
    alert: AlertDescription,
    refusal: Refusal,
}

impl Failure {
    fn new(alert: AlertDescription, refusal: Refusal) -> Self {
        Self { alert, refusal }
    }

    fn of_hello(error: &HelloError) -> Self {
        let outcome = match error {
            HelloError::TooLarge { .. } => HandshakeOutcome::TooLarge,
            _ => HandshakeOutcome::Malformed,
        };
        Self::new(AlertDescription::DecodeError, Refusal::because(outcome, error))
    }
}
