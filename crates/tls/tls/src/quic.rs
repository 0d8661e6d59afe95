//! The TLS side of QUIC (RFC 9001): sessions that select their host once the `ClientHello` is complete, and handshakes that
//! wait without blocking the worker.
//!
//! quinn-proto calls its session as a plain function. A call that may wait runs as a [`SuspendedCall`], and the session
//! waits inside it, as over TCP: for certificates, key operations and session stores.

mod challenge;
mod keys;
pub(crate) mod padding;
mod session;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::crypto::{Keys, ServerConfig, Session, UnsupportedVersion};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, crypto};

use crate::acceptor::Acceptor;
use crate::notes;
use crate::refusal::Refusal;
use crate::suspend::Suspendable;
use crate::{TlsError, host_config};
pub use challenge::bare_challenge;
pub use session::Handshaken;
use session::LazySession;

/// The version of QUIC that is served (RFC 9000).
pub const VERSION: u32 = 1;

/// The TLS configuration of a QUIC server for quinn-proto. One value serves all connections of all workers.
pub struct QuicSessions {
    acceptor: Box<dyn Fn() -> Arc<Acceptor> + Send + Sync>,
    /// Keys of Initial packets and tags of Retry packets, which are the same for all servers (RFC 9001 section 5).
    initial: Arc<QuicServerConfig>,
}

impl QuicSessions {
    /// Sessions that are accepted by the value of `acceptor` at the time of the `ClientHello`, so that a reload applies to the
    /// next handshake. Only hosts of an acceptor with [`TlsSettings::quic`](crate::TlsSettings::quic) can be reached.
    pub fn new(acceptor: impl Fn() -> Arc<Acceptor> + Send + Sync + 'static) -> Result<Arc<Self>, TlsError> {
        let initial = Arc::new(host_config::quic_initial()?);
        Ok(Arc::new(Self { acceptor: Box::new(acceptor), initial }))
    }
}

impl ServerConfig for QuicSessions {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        keys::initial(version, id, || self.initial.initial_keys(version, id))
    }

    fn retry_tag(&self, version: u32, original_id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.initial.retry_tag(version, original_id, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, parameters: &TransportParameters) -> Box<dyn Session> {
        Box::new(LazySession::new((self.acceptor)(), self.initial.clone(), version, parameters))
    }
}

/// The result of a [`SuspendedCall`], and the [`Refusal`] of its handshake, if it was refused.
pub type Ended<T> = (T, Option<Box<Refusal>>);

/// A call into quinn-proto in which a session may wait. It stays on its thread. Dropping it unwinds its stack, so that its
/// values are dropped too.
pub struct SuspendedCall<T>(Suspendable<T>);

impl<T: 'static> SuspendedCall<T> {
    /// Prepares `call` for a connection of `client`, whose key operations are limited by the
    /// [`KeyGate`](crate::KeyGate). `call` should capture little (a box). Fails only without memory for a stack.
    pub fn new(client: Option<IpAddr>, call: impl FnOnce() -> T + 'static) -> io::Result<Self> {
        Suspendable::new(move || {
            notes::update(|notes| notes.input.client = client);
            call()
        })
        .map(Self)
    }

    /// Runs the call to its end, or until it waits.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended<T>> {
        let (value, _) = ready!(self.0.poll_resume(cx));
        Poll::Ready((value, self.0.take_refusal()))
    }
}

/// Derives the keys of a QUIC server from a secret that all of its workers, and all gateways of a fleet, share: a client's
/// token is then accepted by each of them.
pub fn endpoint_keys(secret: &[u8]) -> EndpointKeys {
    use aws_lc_rs::{hkdf, hmac};
    // The salt must not change: gateways of different versions accept the tokens of each other.
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, b"brisk quic").extract(secret);
    // A key for each purpose, so that no key reveals anything about another.
    let derive = |label: &'static [u8]| {
        let mut key = [0; 32];
        let labels = [label];
        let expanded = extracted.expand(&labels, hkdf::HKDF_SHA256);
        expanded.and_then(|expanded| expanded.fill(&mut key)).expect("HKDF yields 32 bytes");
        key
    };
    EndpointKeys {
        reset: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &derive(b"stateless reset"))),
        tokens: Arc::new(
            hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&derive(b"address validation token")),
        ),
    }
}

/// Keys of a QUIC server that are not keys of a connection, from [`endpoint_keys`].
#[derive(Clone)]
pub struct EndpointKeys {
    /// Authenticates stateless resets (RFC 9000 section 10.3).
    pub reset: Arc<dyn crypto::HmacKey>,
    /// Protects the tokens of Retry and `NEW_TOKEN` (RFC 9000 section 8.1).
    pub tokens: Arc<dyn crypto::HandshakeTokenKey>,
}
