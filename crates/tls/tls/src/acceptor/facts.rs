//! [`TlsFacts`] of a handshake for the log and the metrics.

use std::time::Duration;

use brisk_certs::Fingerprint;
use brisk_telemetry::{ClientFingerprints, EarlyData, Resumption, ResumptionFailure, TlsFacts};
use brisk_wire::HttpVersion;
use brisk_wire::client_hello::ClientHello;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use rustls::{CommonState, HandshakeKind};

use crate::notes::Notes;

/// The result of a handshake over TCP or QUIC, from which [`of`] makes [`TlsFacts`].
#[derive(Clone, Copy)]
pub(crate) struct Negotiated<'a> {
    pub(crate) tls: &'a CommonState,
    /// Whether early data was accepted.
    pub(crate) early_data: bool,
    /// Whether a `HelloRetryRequest` was sent.
    pub(crate) hello_retry: bool,
}

/// The [`TlsFacts`] of a handshake that is complete or has received early data.
pub(crate) fn of(
    negotiated: &Negotiated<'_>,
    notes: Notes,
    hello: &ClientHello,
    host: HostFacts,
    took: Duration,
) -> TlsFacts {
    let Negotiated { tls, early_data, hello_retry } = *negotiated;
    let version = ProtocolVersion(tls.protocol_version().map_or(0, u16::from));
    let resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
    let resumption = match notes.resumption.filter(|_| resumed) {
        None => Resumption::Full,
        Some(_) if early_data => Resumption::EarlyData,
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
        resumption_failure: resumption_failure(resumption, notes, hello, version),
        early_data: hello.early_data.then_some(match resumption {
            Resumption::EarlyData => EarlyData::Accepted,
            _ if !host.takes_early_data => EarlyData::Disabled,
            Resumption::Full => EarlyData::NotResumed,
            _ => EarlyData::Unsuitable,
        }),
        server_name: hello.server_name.as_deref().map(Box::from),
        alpn: tls.alpn_protocol().and_then(HttpVersion::from_alpn),
        client_subject: tls
            .peer_certificates()
            .and_then(|chain| brisk_certs::subject(chain.first()?))
            .map(String::into_boxed_str),
        client_chain: client_chain(tls, host.keeps_client_chain),
        fingerprints: fingerprints(tls, hello, host.hashes_client_certificate),
        hello_retry,
        handshake_time: took,
    }
}

/// Settings of the host that [`TlsFacts`] depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFacts {
    pub(crate) takes_early_data: bool,
    pub(crate) keeps_client_chain: bool,
    pub(crate) hashes_client_certificate: bool,
}

/// The [`ClientFingerprints`] that the configuration has a use for.
fn fingerprints(
    tls: &CommonState,
    hello: &ClientHello,
    hashes_certificate: bool,
) -> Option<Box<ClientFingerprints>> {
    let chain = tls.peer_certificates().filter(|_| hashes_certificate);
    let certificate = chain.and_then(<[_]>::first);
    let certificate =
        certificate.map(|certificate| Fingerprint::of(certificate).to_string().into_boxed_str());
    let is_any = hello.ja4.is_some() || certificate.is_some();
    is_any.then(|| Box::new(ClientFingerprints { ja4: hello.ja4.clone(), certificate }))
}

fn client_chain(tls: &CommonState, keep: bool) -> Box<[Box<[u8]>]> {
    let chain = tls.peer_certificates().filter(|_| keep).unwrap_or_default();
    chain.iter().map(|certificate| certificate.as_ref().into()).collect()
}

/// The [`ResumptionFailure`] of the client's session; `None` if it was resumed, or if the client offered none.
fn resumption_failure(
    resumption: Resumption,
    notes: Notes,
    hello: &ClientHello,
    version: ProtocolVersion,
) -> Option<ResumptionFailure> {
    if resumption != Resumption::Full || !offered_session(hello, version, notes) {
        return None;
    }
    // Found, but rejected by rustls: it checks the name, the suite, and the extended master secret.
    let unsuitable = notes.resumption.map(|_| ResumptionFailure::Unsuitable);
    // No look-up took place: sessions of this kind are disabled, such as tickets on a server without tickets.
    Some(unsuitable.or(notes.resumption_failure).unwrap_or(ResumptionFailure::NoSession))
}

/// Whether the client offered a session of this version. The presence of a session ID does not suffice: besides a
/// ticket it is random (RFC 5077 section 3.4), some clients send a random one even without a ticket, and in TLS 1.3 it
/// is sent for middleboxes (RFC 8446 appendix D.4).
fn offered_session(hello: &ClientHello, version: ProtocolVersion, notes: Notes) -> bool {
    if version == ProtocolVersion::TLS1_3 {
        return hello.has_psk;
    }
    hello.has_ticket || (hello.session_id_len > 0 && !notes.foreign_id)
}
