//! The TLS side of QUIC (RFC 9001) for quinn-proto: handshakes with the settings, sessions and facts of a [`Client`].

use std::any::Any;
use std::fmt;
use std::io::Cursor;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use brisk_telemetry::Resumption;
use brisk_tls_base::suites;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use quinn_proto::crypto::{
    ClientConfig, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::quic::{ClientConnection, DirectionalKeys, KeyChange, Secrets, Suite, Version};
use rustls::{AlertDescription, HandshakeKind, SupportedCipherSuite};

use super::Client;
use super::error::ClientError;
use super::facts::{ClientFacts, EarlyOutcome};
use super::notes::Notes;
use super::session::SavedSession;
use super::settings::StapleRequest;
use super::staple;

/// The version of QUIC that is offered (RFC 9000).
pub const VERSION: u32 = 1;

/// Whether early data (0-RTT) is offered with a session that permits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyData {
    /// Offered.
    Offered,
    /// Not offered.
    Omitted,
}

/// One handshake over QUIC. It is begun by quinn-proto with [`config`](Self::config), and its outcome is here.
#[derive(Clone)]
pub struct QuicHandshake(Arc<Begun>);

struct Begun {
    client: Client,
    early_data: EarlyData,
    started: Instant,
    notes: Mutex<Notes>,
    failure: Mutex<Option<ClientError>>,
}

impl Client {
    /// Prepares one handshake over QUIC, which resumes `session`. The settings apply as over TCP, except that only TLS 1.3
    /// is offered, and that a session is resumed once.
    pub fn quic(&self, session: Option<SavedSession>, early_data: EarlyData) -> QuicHandshake {
        let early_data = match &session {
            Some(session) if session.early_data_limit() > 0 => early_data,
            _ => EarlyData::Omitted,
        };
        let notes = Notes { offered: session.and_then(SavedSession::into_value), ..Notes::default() };
        QuicHandshake(Arc::new(Begun {
            client: self.clone(),
            early_data,
            started: Instant::now(),
            notes: Mutex::new(notes),
            failure: Mutex::default(),
        }))
    }
}

impl QuicHandshake {
    /// The [`ClientConfig`] of the connection for quinn-proto, for one use.
    pub fn config(&self) -> Arc<dyn ClientConfig> {
        self.0.clone()
    }

    /// The sessions received since the last call, the newest last. Servers send them after the handshake.
    pub fn take_sessions(&self) -> Vec<SavedSession> {
        mem::take(&mut self.0.notes().received).into_iter().map(Into::into).collect()
    }

    /// Whether a session has been received and not been taken by [`take_sessions`](Self::take_sessions).
    pub fn has_session(&self) -> bool {
        !self.0.notes().received.is_empty()
    }

    /// The [`ClientError`] with which this side has ended the handshake; `None` if the server has ended it, and after the first
    /// call.
    pub fn take_failure(&self) -> Option<ClientError> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The error for a TLS alert of the server, which QUIC transports as an error code (RFC 9001 section 4.8). `None` for
    /// other codes.
    pub fn alert(code: u64) -> Option<ClientError> {
        let alert = u8::try_from(code.checked_sub(0x100)?).ok()?;
        Some(ClientError::of_alert(AlertDescription::from(alert)))
    }

    /// The [`ClientFacts`] of a complete handshake that quinn-proto has performed with `session`, without its bytes, which are
    /// facts of the packets. `None` before the end.
    pub fn facts(&self, session: &dyn Session) -> Option<ClientFacts> {
        let mut facts = *session.handshake_data()?.downcast::<ClientFacts>().ok()?;
        facts.handshake_time = self.0.started.elapsed();
        Some(facts)
    }
}

impl Begun {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientConfig for Begun {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        _: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        if version != VERSION {
            return Err(ConnectError::UnsupportedVersion);
        }
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        let inner = &self.client.inner;
        let config = match self.early_data {
            EarlyData::Offered => &inner.early_config,
            EarlyData::Omitted => &inner.config,
        };
        let begin = || ClientConnection::new(config.clone(), Version::V1, inner.name.clone(), encoded);
        let tls = {
            let mut notes = self.notes();
            let tls = notes.lend(begin);
            // Not taken: the session is one of TLS 1.2.
            notes.offered = None;
            tls.map_err(|error| ConnectError::InvalidServerName(error.to_string()))?
        };
        Ok(Box::new(ClientSession { begun: self, tls, next_secrets: None, is_announced: false }))
    }
}

/// The session of one connection.
struct ClientSession {
    begun: Arc<Begun>,
    tls: ClientConnection,
    next_secrets: Option<Secrets>,
    /// Whether the end of the handshake has been announced.
    is_announced: bool,
}

impl ClientSession {
    /// The negotiated parameters, without counts of bytes.
    fn facts(&self) -> ClientFacts {
        let tls = &self.tls;
        let kind = tls.handshake_kind();
        let resumed = kind == Some(HandshakeKind::Resumed);
        let early_data = match self.begun.early_data {
            EarlyData::Omitted => EarlyOutcome::None,
            EarlyData::Offered if tls.is_early_data_accepted() => EarlyOutcome::Accepted,
            EarlyData::Offered => EarlyOutcome::Rejected,
        };
        let resumption = match early_data {
            _ if !resumed => Resumption::Full,
            EarlyOutcome::Accepted => Resumption::EarlyData,
            _ => Resumption::Psk,
        };
        let certificates = tls.peer_certificates().filter(|_| !resumed).unwrap_or_default();
        let notes = self.begun.notes();
        let name = &self.begun.client.inner.settings.server_name;
        let distrust = notes.distrust.as_ref();
        ClientFacts {
            version: ProtocolVersion(tls.protocol_version().map_or(0, u16::from)),
            suite: CipherSuite(tls.negotiated_cipher_suite().map_or(0, |suite| suite.suite().into())),
            group: tls.negotiated_key_exchange_group().map(|group| NamedGroup(group.name().into())),
            scheme: notes.scheme.map(|scheme| SignatureScheme(scheme.into())),
            resumption,
            early_data,
            protocol: tls.alpn_protocol().map(|name| String::from_utf8_lossy(name).into()),
            hello_retry: kind == Some(HandshakeKind::FullWithHelloRetryRequest),
            bytes_received: 0,
            bytes_sent: 0,
            first_flight: 0,
            first_write: 0,
            certificate_bytes: certificates.iter().map(|certificate| certificate.len()).sum(),
            staple_bytes: notes.staple_bytes,
            distrust: distrust.map(|error| ClientError::of_handshake(error, name).to_string().into()),
            handshake_time: self.begun.started.elapsed(),
        }
    }
}

impl Session for ClientSession {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        let keys = initial_suite().keys(id, side.into(), Version::V1);
        boxed(keys.local, keys.remote)
    }

    /// The [`ClientFacts`], at the end of the handshake.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        (!self.tls.is_handshaking()).then(|| Box::new(self.facts()) as Box<dyn Any>)
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.tls.zero_rtt_keys()?;
        Some((Box::new(keys.header), Box::new(keys.packet)))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        Some(self.tls.is_early_data_accepted())
    }

    fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let read = self.begun.notes().lend(|| self.tls.read_hs(bytes));
        if let Err(error) = read {
            let name = &self.begun.client.inner.settings.server_name;
            let failure = ClientError::of_handshake(&error, name);
            let alert = self.tls.alert().unwrap_or(AlertDescription::InternalError);
            let reason = failure.to_string();
            *self.begun.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            return Err(TransportError {
                code: TransportErrorCode::crypto(alert.into()),
                frame: None,
                reason,
            });
        }
        // quinn-proto reports an event for each `true`, so `true` is returned once.
        Ok(!self.tls.is_handshaking() && !mem::replace(&mut self.is_announced, true))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(encoded) = self.tls.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(Side::Client, &mut Cursor::new(encoded))?))
    }

    fn write_handshake(&mut self, buffer: &mut Vec<u8>) -> Option<Keys> {
        let begin = buffer.len();
        let change = self.begun.notes().lend(|| self.tls.write_hs(buffer));
        if self.begun.client.inner.settings.staple_request == StapleRequest::Omitted {
            // RFC 9001 section 3: QUIC carries handshake messages without records, so the hello itself
            // begins here.
            staple::omit_request(&mut buffer[begin..]);
        }
        let keys = match change? {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                self.next_secrets = Some(next);
                keys
            }
        };
        Some(boxed(keys.local, keys.remote))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next_secrets.as_mut()?.next_packet_keys();
        Some(KeyPair { local: Box::new(keys.local), remote: Box::new(keys.remote) })
    }

    fn is_valid_retry(&self, original_id: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        is_valid_retry(original_id, header, payload)
    }

    /// Not supported: HTTP/3 derives no keys from its connection.
    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

impl fmt::Debug for QuicHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicHandshake").field("early_data", &self.0.early_data).finish_non_exhaustive()
    }
}

/// The suite of Initial packets (RFC 9001 section 5.2).
fn initial_suite() -> Suite {
    let found = suites().iter().filter_map(SupportedCipherSuite::tls13).find_map(|suite| {
        let is_initial = suite.common.suite == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
        suite.quic_suite().filter(|_| is_initial)
    });
    found.expect("the suite is supported")
}

fn boxed(local: DirectionalKeys, remote: DirectionalKeys) -> Keys {
    Keys {
        header: KeyPair { local: Box::new(local.header), remote: Box::new(remote.header) },
        packet: KeyPair { local: Box::new(local.packet), remote: Box::new(remote.packet) },
    }
}

/// Key and nonce of the tags of Retry packets (RFC 9001 section 5.8).
const RETRY_KEY: [u8; 16] = 0xbe0c_690b_9f66_575a_1d76_6b54_e368_c84e_u128.to_be_bytes();
const RETRY_NONCE: [u8; 12] = [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];

/// Whether a Retry packet has the tag of the server that the first packet reached. `payload` ends with the tag.
fn is_valid_retry(original_id: &[u8], header: &[u8], payload: &[u8]) -> bool {
    let Some((token, tag)) = payload.split_last_chunk::<16>() else { return false };
    // RFC 9001 section 5.8: the pseudo-packet begins with the client's first destination ID.
    let pseudo = [&[original_id.len() as u8][..], original_id, header, token].concat();
    // RFC 9001 section 5.8 fixes key and nonce: the tag protects against corruption and packets from off
    // the path.
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &RETRY_KEY).expect("a key of 16 bytes"));
    let nonce = Nonce::assume_unique_for_key(RETRY_NONCE);
    key.open_in_place(nonce, Aad::from(&pseudo), &mut tag.to_vec()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_retry_packet_of_the_standard_is_valid() {
        // RFC 9001 appendix A.4.
        let id = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let header = [0xff, 0, 0, 0, 1, 0, 8, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5];
        let tag = 0x04a2_65ba_2eff_4d82_9058_fb3f_0f24_96ba_u128.to_be_bytes();
        let payload = [&b"token"[..], &tag].concat();
        assert!(is_valid_retry(&id, &header, &payload));
        for position in 0..payload.len() {
            let mut changed = payload.clone();
            changed[position] ^= 1;
            assert!(!is_valid_retry(&id, &header, &changed), "byte {position}");
        }
        assert!(!is_valid_retry(&id[1..], &header, &payload));
        assert!(!is_valid_retry(&id, &header, &payload[..15]));
    }
}
