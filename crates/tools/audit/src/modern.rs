//! Checks that need a complete handshake: chains of TLS 1.3, sessions, early data, HTTP.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use brisk_telemetry::Resumption;
use brisk_tls_client::{
    Client, ClientSettings, ClientStream, EarlyOutcome, Observer, SavedSession, SessionUse, Verification,
};
use brisk_wire::registry::{ProtocolVersion, SignatureScheme};
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use crate::certificate::SentChain;
use crate::contact::AuditTarget;
use crate::error::AuditError;
use crate::http::{self, Http};
use crate::protocols::Protocols;
use crate::weaknesses::SILENCE;

/// Maximum number of other addresses of a name that are checked.
const ADDRESSES: usize = 4;

/// Sessions from a client's point of view.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sessions {
    /// Lifetime of a TLS 1.3 session in seconds; `None` without a session.
    pub ticket_lifetime: Option<u32>,
    /// Whether the session was resumed; `None` without a session or without a connection.
    pub resumed: Option<bool>,
    /// `max_early_data_size` in bytes; `0` for none.
    pub early_data: u32,
    /// Whether the server accepted early data twice with one session; `None` if it did not accept it once, or without a
    /// second connection.
    pub early_data_replayed: Option<bool>,
    /// Status of the response to the second early request.
    pub replay_status: Option<u16>,
    /// Other addresses of the name, and whether they resumed a session of the first.
    pub addresses: Vec<(String, bool)>,
    /// Result of a watch: duration in seconds, and whether the ticket keys changed. `None` if tickets do not name their
    /// key, or there was none at the end.
    pub watched: Option<(u64, Option<bool>)>,
}

/// Observer that keeps the chain of a connection.
#[derive(Debug, Default)]
struct Keep(Mutex<Option<SentChain>>);

impl Observer for Keep {
    fn sent(&self, _: Instant, _: &[u8]) {}

    fn received(&self, _: Instant, _: &[u8]) {}

    fn chain(&self, certificates: &[&[u8]], staple: &[u8]) {
        let chain = certificates.iter().map(|der| der.to_vec()).collect();
        let staple = (!staple.is_empty()).then(|| staple.to_vec());
        let shown = SentChain { chain, staple, scts: None, is_tls13: true };
        // A poisoned lock is used: the chain is only ever replaced as a whole.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown);
    }

    fn secret(&self, _: &str, _: &[u8], _: &[u8]) {}
}

/// Schemes that request a certificate with an ECDSA or an RSA key.
const ECDSA: &[SignatureScheme] = &[
    SignatureScheme::ECDSA_SECP256R1_SHA256,
    SignatureScheme::ECDSA_SECP384R1_SHA384,
    SignatureScheme::ECDSA_SECP521R1_SHA512,
    SignatureScheme::ED25519,
];
const RSA: &[SignatureScheme] = &[
    // RFC 8446 section 4.2.3: PKCS #1 v1.5 signs no handshakes of TLS 1.3.
    SignatureScheme::RSA_PSS_RSAE_SHA256,
    SignatureScheme::RSA_PSS_RSAE_SHA384,
    SignatureScheme::RSA_PSS_RSAE_SHA512,
];

fn settings(contact: &AuditTarget, version: ProtocolVersion) -> ClientSettings {
    let mut settings = ClientSettings::new(contact.host.clone());
    settings.versions = vec![version];
    // An untrusted chain is a finding and must not end the audit; `certificate::judge` verifies it.
    settings.verification = Verification::Off;
    settings.protocols = vec!["http/1.1".to_owned()];
    // One session is offered several times, and rustls exposes neither lifetime nor ticket of sessions for
    // one use.
    settings.session_use = SessionUse::Many;
    settings
}

/// Connects to `address`; `None` without a handshake.
async fn connect(
    contact: &AuditTarget,
    client: &Client,
    address: SocketAddr,
    session: Option<SavedSession>,
    early: Option<&[u8]>,
    observer: Option<Arc<dyn Observer>>,
) -> Result<Option<(ClientStream, Instant)>, AuditError> {
    let deadline = contact.place()?;
    // Errors of one connection are `None`: the caller decides whether they leave a property without a
    // verdict.
    let Ok(Ok(tcp)) = timeout_at(deadline.into(), TcpStream::connect(address)).await else { return Ok(None) };
    let _ = tcp.set_nodelay(true);
    let handshake = client.connect_observed(tcp, session, early, observer);
    let stream = timeout_at(deadline.into(), handshake).await;
    Ok(stream.ok().and_then(Result::ok).map(|stream| (stream, deadline)))
}

/// Chains sent to TLS 1.3 clients: for ECDSA, for RSA, or for another key if there is neither.
pub(crate) async fn chains(contact: &AuditTarget) -> Result<Vec<SentChain>, AuditError> {
    contact.step("certificates");
    let mut found: Vec<SentChain> = Vec::new();
    for schemes in [ECDSA, RSA, &[]] {
        // No schemes stand for all.
        if schemes.is_empty() && !found.is_empty() {
            break;
        }
        let mut settings = settings(contact, ProtocolVersion::TLS1_3);
        settings.schemes = schemes.to_vec();
        let client = Client::new(settings)?;
        let keep = Arc::new(Keep::default());
        let mut shown = None;
        // One connection may fail.
        for _ in 0..2 {
            let observer: Arc<dyn Observer> = Arc::clone(&keep) as _;
            connect(contact, &client, contact.address, None, None, Some(observer)).await?;
            shown = keep.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            if shown.is_some() {
                break;
            }
        }
        found.extend(shown.filter(|shown| !found.contains(shown)));
    }
    Ok(found)
}

/// Checks HTTP and sessions with the newest version.
pub(crate) async fn sessions(
    contact: &AuditTarget,
    protocols: &Protocols,
    path: &str,
) -> Result<(Option<Http>, Sessions), AuditError> {
    contact.step("HTTP");
    let mut found = Sessions::default();
    let version = [ProtocolVersion::TLS1_3, ProtocolVersion::TLS1_2];
    let version = version.into_iter().find(|version| protocols.version(*version).is_some());
    let Some(version) = version else { return Ok((None, found)) };
    let client = Client::new(settings(contact, version))?;
    let Some((mut stream, deadline)) = connect(contact, &client, contact.address, None, None, None).await?
    else {
        return Ok((None, found));
    };
    let head = http::ask(&mut stream, &http::request(contact, path), deadline).await;
    // After the response: RFC 8446 section 4.6.1 permits tickets at any time after the handshake.
    let session = session_of(&mut stream).await;
    drop(stream);
    contact.step("sessions");
    if let Some(session) = session {
        found.ticket_lifetime = session.lifetime();
        found.early_data = session.early_data_limit();
        resume(contact, &client, &session, &mut found).await?;
        replay(contact, &client, &session, path, &mut found).await?;
        addresses(contact, &client, &session, &mut found).await?;
    }
    Ok((head.as_ref().map(http::judge), found))
}

async fn resume(
    contact: &AuditTarget,
    client: &Client,
    session: &SavedSession,
    found: &mut Sessions,
) -> Result<(), AuditError> {
    // One connection may fail.
    for _ in 0..2 {
        let again = connect(contact, client, contact.address, session.try_clone(), None, None).await?;
        if let Some((stream, _)) = again {
            found.resumed = Some(stream.facts().resumption != Resumption::Full);
            return Ok(());
        }
    }
    // Without a connection it is not known.
    contact.failed();
    Ok(())
}

/// Sends the same harmless request as early data twice with one session.
async fn replay(
    contact: &AuditTarget,
    client: &Client,
    session: &SavedSession,
    path: &str,
    found: &mut Sessions,
) -> Result<(), AuditError> {
    if session.early_data_limit() == 0 {
        return Ok(());
    }
    contact.step("early data");
    // A session that was resumed may be used up: the test begins with one of its own.
    let Some((mut stream, deadline)) = connect(contact, client, contact.address, None, None, None).await?
    else {
        return Ok(());
    };
    http::ask(&mut stream, &http::request(contact, path), deadline).await;
    let fresh = session_of(&mut stream).await;
    drop(stream);
    let Some(fresh) = fresh else { return Ok(()) };
    let request = http::request(contact, path);
    let mut accepted = Vec::new();
    for _ in 0..2 {
        let early = Some(request.as_bytes());
        let again = connect(contact, client, contact.address, fresh.try_clone(), early, None).await?;
        // Without a connection it is not known.
        let Some((mut stream, deadline)) = again else {
            contact.failed();
            return Ok(());
        };
        let is_early = stream.facts().early_data == EarlyOutcome::Accepted;
        let head = if is_early { http::head(&mut stream, deadline).await } else { None };
        // 425 (RFC 8470): it was taken and not acted on.
        accepted.push(is_early && head.as_ref().is_some_and(|head| head.status != 425));
        found.replay_status = head.map(|head| head.status);
    }
    // A server that refuses early data at the first use has no replay to test.
    if accepted[0] {
        found.early_data_replayed = Some(accepted[1]);
    }
    Ok(())
}

async fn addresses(
    contact: &AuditTarget,
    client: &Client,
    session: &SavedSession,
    found: &mut Sessions,
) -> Result<(), AuditError> {
    contact.step("resumption across addresses");
    for &address in contact.others.iter().take(ADDRESSES) {
        let again = connect(contact, client, address, session.try_clone(), None, None).await?;
        // An address without an answer, as IPv6 where there is none, says nothing.
        if let Some((stream, _)) = again {
            let resumed = stream.facts().resumption != Resumption::Full;
            found.addresses.push((address.to_string(), resumed));
        }
    }
    Ok(())
}

/// Session issued until now or within [`SILENCE`]; `None` without one.
async fn session_of(stream: &mut ClientStream) -> Option<SavedSession> {
    match stream.take_sessions().pop() {
        Some(session) => Some(session),
        None => timeout(SILENCE, stream.next_session()).await.ok().and_then(Result::ok).flatten(),
    }
}

/// First 16 bytes of a ticket, which usually contain the name of its key.
async fn key_name(contact: &AuditTarget, client: &Client) -> Result<Option<[u8; 16]>, AuditError> {
    let Some((mut stream, deadline)) = connect(contact, client, contact.address, None, None, None).await?
    else {
        return Ok(None);
    };
    http::ask(&mut stream, &http::request(contact, "/"), deadline).await;
    let session = session_of(&mut stream).await;
    // RFC 5077 section 4 recommends that tickets begin with a key name of 16 bytes.
    Ok(session.and_then(|session| session.ticket().and_then(|ticket| ticket.first_chunk().copied())))
}

/// Watches the names of ticket keys for `time`. Blocks.
pub(crate) fn watch(
    runtime: &tokio::runtime::Runtime,
    contact: &mut AuditTarget,
    time: Duration,
    progress: &mut dyn FnMut(&str),
) -> Result<Option<bool>, AuditError> {
    contact.step("ticket keys");
    let client = Client::new(settings(contact, ProtocolVersion::TLS1_3))?;
    let first = runtime.block_on(key_name(contact, &client))?;
    let second = runtime.block_on(key_name(contact, &client))?;
    // Tickets that begin with random bytes name no key.
    let (Some(first), true) = (first, first == second) else { return Ok(None) };
    contact.extend(time);
    let begun = Instant::now();
    let mut is_known = true;
    loop {
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(is_known.then_some(false));
        }
        progress(&format!("watching ticket keys for {} s more", left.as_secs()));
        // About four connections for the whole watch: each counts against the limit of the audit, and the
        // moment of a change does not matter.
        thread::sleep(left.min(time / 4).max(Duration::from_millis(100)));
        match runtime.block_on(key_name(contact, &client))? {
            Some(name) if name != first => return Ok(Some(true)),
            last => is_known = last.is_some(),
        }
    }
}
